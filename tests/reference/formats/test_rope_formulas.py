"""Divisors of RoPE's frequencies: the published formulas written once more, frequency by frequency."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refusal

from tritgold.errors import ConfigError
from tritgold.formats.json_keys import JsonKeys
from tritgold.formats.rope_formulas import rope_scaling, yarn_magnitude
from tritgold.formats.rope_keys import read_rope
from tritgold.rope_scaling import RopeScaling

HEAD_DIM, THETA = 128, 500000.0
LLAMA_3_1 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
YARN: dict[str, Any] = {"factor": 4.0, "original_max_position_embeddings": 32768}


def frequencies() -> list[float]:
    return [THETA ** (-2 * i / HEAD_DIM) for i in range(HEAD_DIM // 2)]


def made(kind: str, numbers: dict[str, Any]) -> RopeScaling:
    found = rope_scaling(kind, numbers, HEAD_DIM, THETA)
    assert found is not None
    assert json.loads(found.source) == {"rope_type": kind, **numbers}
    return found


def test_llama3_as_its_reference_code_has_it() -> None:
    """meta-llama ``apply_scaling``: by wavelength, with a smooth piece between."""
    expected = []
    for frequency in frequencies():
        wavelength = 2 * math.pi / frequency
        if wavelength < 8192 / 4:
            scaled = frequency
        elif wavelength > 8192 / 1:
            scaled = frequency / 8
        else:
            smooth = (8192 / wavelength - 1) / (4 - 1)
            scaled = (1 - smooth) * frequency / 8 + smooth * frequency
        expected.append(frequency / scaled)
    found = made("llama3", LLAMA_3_1)
    assert found.magnitude == 1
    assert {1.0, 8.0} < set(found.divisors)
    np.testing.assert_allclose(found.divisors, expected, rtol=1e-6)


def test_yarn_as_its_reference_code_has_it() -> None:
    """arXiv 2309.00071: the ramp between the dimensions that turn 32 times and once in the original context."""

    def dimension(turns: float) -> float:
        return HEAD_DIM * math.log(32768 / (turns * 2 * math.pi)) / (2 * math.log(THETA))

    low, high = math.floor(dimension(32)), math.ceil(dimension(1))
    expected = []
    for i, frequency in enumerate(frequencies()):
        ramp = min(max((i - low) / (high - low), 0), 1)
        expected.append(frequency / (frequency / 4 * ramp + frequency * (1 - ramp)))
    found = made("yarn", YARN)
    assert found.magnitude == float(np.float32(0.1 * math.log(4) + 1))
    np.testing.assert_allclose(found.divisors, expected, rtol=1e-6)
    assert made("yarn", YARN | {"attention_factor": 1.5}).magnitude == 1.5
    both = made("yarn", YARN | {"mscale": 0.707, "mscale_all_dim": 0.5}).magnitude
    assert both == pytest.approx((0.0707 * math.log(4) + 1) / (0.05 * math.log(4) + 1))
    assert made("yarn", YARN | {"beta_fast": 16.0}).divisors != found.divisors
    assert made("yarn", YARN | {"truncate": False}).divisors != found.divisors
    assert yarn_magnitude(0.5) == 1


def test_longrope_within_the_original_context() -> None:
    short = [1.0 + i / 64 for i in range(64)]
    numbers = {"short_factor": short, "long_factor": [9.0] * 64, "original_max_position_embeddings": 4096}
    assert made("longrope", numbers).divisors == tuple(short)
    factor = made("longrope", numbers | {"factor": 4.0}).magnitude
    assert factor == pytest.approx(math.sqrt(1 + math.log(4) / math.log(4096)))


def test_what_scales_nothing_is_none() -> None:
    assert rope_scaling("linear", {"factor": 1.0}, HEAD_DIM, THETA) is None
    assert (
        rope_scaling("longrope", {"short_factor": [1.0] * 64, "original_max_position_embeddings": 8}, 128, 1e4) is None
    )


@pytest.mark.parametrize("divisors", [(1.0, 0.0), (1.0, -2.0), (float("inf"),), (float("nan"),)])
def test_divisors_that_are_none(divisors: tuple[float, ...]) -> None:
    assert refusal(lambda: RopeScaling(divisors)).kind == "config-value"


def test_both_places_may_say_the_same() -> None:
    section = {"rope_type": "linear", "factor": 2.0}
    values = {"rope_parameters": {"rope_theta": 1e4, **section}, "rope_scaling": section, "rope_theta": 1e4}
    theta, scaling = read_rope(JsonKeys(Path("c.json"), values), 8, 64)
    assert (theta, scaling) == (1e4, RopeScaling((2.0,) * 4))
    values["rope_scaling"] = {"rope_type": "linear", "factor": 3.0}
    error = refusal(lambda: read_rope(JsonKeys(Path("c.json"), values), 8, 64))
    assert isinstance(error, ConfigError)
    assert error.kind == "config-contradiction"


@pytest.mark.parametrize("kind", ["proportional", "su", 3, None, ["linear"]])
def test_kinds_without_a_table_are_refused_by_name(kind: object) -> None:
    values = {"rope_theta": 1e4, "rope_scaling": {"type": kind, "factor": 2.0}}
    error = refusal(lambda: read_rope(JsonKeys(Path("c.json"), values), 8, 64))
    assert error.kind == "config-unsupported"
    assert str(kind) in str(error)
