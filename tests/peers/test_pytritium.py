"""Squared ReLU, RoPE and the payload of I2_S, TQ1_0 and TQ2_0 against pytritium: next tokens, for it gives no logits.

Tokens are a coarse witness: those of the Q8_K mode are the same here, while SiLU changes two in five. Recorded answers
first; then pytritium here and now, where TRITGOLD_PEERS_PYTHON names a Python that has it.
"""

import json
import os
import platform
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from engine_files import write_engine_file
from light_cases import (
    NEW_TOKENS,
    RECORDED,
    SQUARED_RELU,
    Case,
    RefusedError,
    continuation,
    kjv_ar,
    model_of,
    squared_relu_model,
    tritium,
    with_silu,
)

from tritgold.checkpoint import Checkpoint
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC
from tritgold.model import forward

PYTHON = os.environ.get("TRITGOLD_PEERS_PYTHON", "")
live = pytest.mark.skipif(
    not PYTHON or platform.machine() == "aarch64",  # no wheel for Linux on Arm
    reason="pytritium runs only where TRITGOLD_PEERS_PYTHON names its python",
)


def next_tokens(model: Checkpoint, ids: list[int]) -> list[int]:
    """The first maximum at each position."""
    logits = forward(ids, model.weights, model.config)
    return [int(np.argmax(row)) for row in logits]


def assert_agrees(model: Checkpoint, ids: list[int], peer: dict[str, list[int]]) -> None:
    assert peer["next"] == next_tokens(model, ids)
    assert peer["generated"] == continuation(model, ids, GOLDEN_ARITHMETIC)
    assert len(peer["generated"]) == NEW_TOKENS


def recording() -> dict[str, dict[str, list[int]]]:
    """What pytritium made of I2_S files."""
    answers: dict[str, dict[str, list[int]]] = json.loads((RECORDED / "pytritium.json").read_text())
    return answers


@pytest.mark.parametrize("name", SQUARED_RELU)
def test_the_golden_tokens_are_those_recorded(name: str, tmp_path: Path) -> None:
    assert_agrees(squared_relu_model(name, tmp_path / name), SQUARED_RELU[name], recording()[name])


def test_silu_and_a_wrong_theta_are_told_apart(tmp_path: Path) -> None:
    for name, ids in SQUARED_RELU.items():
        model, answer = squared_relu_model(name, tmp_path / name), recording()[name]["next"]
        other_theta = replace(model, config=replace(model.config, rope_theta=100.0))
        for wrong in (with_silu(model), other_theta):
            same = sum(a == b for a, b in zip(next_tokens(wrong, ids), answer, strict=True))
            assert same < len(ids), name


@live
@pytest.mark.parametrize("embedding", ["F32", "F16"])
@pytest.mark.parametrize("weights", ["I2_S", "TQ1_0", "TQ2_0"])
@pytest.mark.parametrize("architecture", ["bitnet", "bitnet-b1.58"])
@pytest.mark.parametrize("name", SQUARED_RELU)
def test_every_next_token_is_the_golden_one(
    name: str, architecture: str, weights: str, embedding: str, tmp_path: Path
) -> None:
    model = squared_relu_model(name, tmp_path / name)
    file = write_engine_file(tmp_path / "model.gguf", model, architecture, weights, embedding)
    assert_agrees(model, SQUARED_RELU[name], tritium(PYTHON, file, SQUARED_RELU[name]))


@live
@pytest.mark.parametrize(
    ("architecture", "weights", "embedding"),
    [("bitnet-25", "I2_S", "F32"), ("bitnet", "F32", "F32"), ("bitnet", "TQ2_0", "BF16")],
)
def test_what_pytritium_refuses(architecture: str, weights: str, embedding: str, tmp_path: Path) -> None:
    file = write_engine_file(tmp_path / "model.gguf", kjv_ar(), architecture, weights, embedding)
    with pytest.raises(RefusedError):
        tritium(PYTHON, file, SQUARED_RELU["kjv-ar"])


@live
def test_pytritium_refuses_llama(tmp_path: Path) -> None:
    model = model_of(Case("llama", "TQ2_0", 4), tmp_path)
    file = write_engine_file(tmp_path / "model.gguf", model, "llama", "TQ2_0")
    with pytest.raises(RefusedError):
        tritium(PYTHON, file, [1, 2, 3])
