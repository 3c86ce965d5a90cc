"""Options that cannot be meant: each is refused by kind, before the model is asked anything."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from plain_diffusion import BLOCK, MASK, small_model
from refusals import refusal

from tritgold.decode.block_diffusion import block_diffusion
from tritgold.decode.diffusion_options import Defect, Diffusion, resolve
from tritgold.decode.diffusion_presets import PRESETS, preset
from tritgold.decode.sampling import Sampling
from tritgold.decode.unmasking import Thresholds
from tritgold.errors import ConfigError
from tritgold.options import Sizes

CONFIG = replace(small_model(0).config, eos=(257,))
HOT = Sampling(temperature=0.7)


def no_model(tokens: list[int], start: int, end: int, rows: list[int]) -> Any:
    raise AssertionError("was asked")


@pytest.mark.parametrize(
    ("kind", "name", "changes"),
    [
        ("mask-id", "greedy", {"mask": 259}),
        ("mask-id", "greedy", {"mask": -1}),
        ("mask-id", "greedy", {"mask": 257}),  # ends a sequence
        ("mask-id", "greedy", {"mask": 1.0}),
        ("block", "greedy", {"block": 0}),
        ("block", "greedy", {"block": -8}),
        ("block", "greedy", {"block": 2.0}),
        ("sub-block", "small-block", {"sub_block": 3}),
        ("sub-block", "small-block", {"sub_block": 16}),
        ("sub-block", "small-block", {"sub_block": 0}),
        ("sub-block", "small-block", {"sub_block": -2}),
        ("max-passes", "iterative", {"max_passes": 0}),
        ("diffusion-option", "iterative", {"sub_block": 4}),  # a budget of passes is a block's
        ("diffusion-option", "fast-dllm-v2", {"attention": "sideways"}),
        ("diffusion-option", "fast-dllm-v2", {"cache": "prefixes"}),
        ("diffusion-option", "fast-dllm-v2", {"token_ties": "any"}),
        ("diffusion-option", "fast-dllm-v2", {"noise": "white"}),
        ("diffusion-option", "fast-dllm-v2", {"confidence": "high"}),
        ("diffusion-option", "fast-dllm-v2", {"commit": "merged"}),
        ("diffusion-option", "fast-dllm-v2", {"commit": "none"}),
        ("diffusion-option", "greedy", {"commit": "none"}),
        ("diffusion-option", "llada", {"commit": "pass"}),
        ("diffusion-option", "llada", {"sampling": Sampling(temperature=1.0, top_p=0.5)}),
        ("diffusion-option", "llada", {"sampling": Sampling(temperature=1.0, top_k=5)}),
        ("diffusion-option", "fast-dllm-v2", {"sampling": Sampling(temperature=1.0, repetition_penalty=1.1)}),
        ("diffusion-option", "fast-dllm-v2", {"sampling": HOT, "noise": "none"}),
        ("diffusion-option", "fast-dllm-v2", {"defects": {"no-commit"}}),
        ("diffusion-option", "fast-dllm-v2", {"defects": None}),
        ("diffusion-option", "fast-dllm-v2", {"shift": "no"}),
        ("diffusion-option", "fast-dllm-v2", {"shift": 2}),
        ("diffusion-option", "fast-dllm-v2", {"rule": None}),
        ("diffusion-option", "fast-dllm-v2", {"sampling": None}),
        ("diffusion-option", "iterative", {"sampling": Sampling(repetition_penalty=50)}),
        ("diffusion-option", "dream", {"cache": "prefix", "max_passes": 1}),
        ("diffusion-option", "llada", {"cache": "dual", "shift": True, "max_passes": 1}),
        ("block", "small-block", {"block": 80_000_000_000}),
        ("block", "iterative", {"block": 65}),
        *(
            ("diffusion-option", "fast-dllm-v2", {"defects": frozenset({defect})})
            for defect in ("no-commit", "stale-prefix", "overwritten-prompt", "short-prompt", "compact-feed")
        ),
        ("diffusion-option", "fast-dllm-v2", {"defects": frozenset({Defect.SHARED_REFRESH})}),
        ("diffusion-option", "iterative", {"defects": frozenset({Defect.COMPACT_FEED})}),
        ("diffusion-option", "greedy", {"defects": frozenset({Defect.LOST_BLOCK})}),
        ("diffusion-option", "greedy", {"cache": "none", "defects": frozenset({Defect.NO_COMMIT})}),
    ],
)
def test_refused_before_any_compute(kind: str, name: str, changes: dict[str, Any]) -> None:
    options = preset(name, **{"sub_block": 4 if name.startswith("fast") else None, **changes})
    assert refusal(lambda: block_diffusion([1], CONFIG, no_model, 5, options)).kind == kind


def test_each_defect_has_its_place() -> None:
    for defect in Defect:
        fits = []
        for name in PRESETS:
            options = preset(name, sub_block=BLOCK, max_passes=None, defects=frozenset({defect}))
            with suppress(ConfigError):
                resolve(options, CONFIG)
                fits.append(name)
        assert fits, defect


def test_mask_and_block_come_from_the_options_or_else_from_the_model() -> None:
    assert resolve(Diffusion(), CONFIG) == Sizes(MASK, BLOCK, BLOCK)
    assert resolve(Diffusion(block=6, sub_block=3, mask=5), CONFIG) == Sizes(5, 6, 3)
    bare = replace(CONFIG, mask=None, block=None)
    assert resolve(Diffusion(block=6, mask=5), bare) == Sizes(5, 6, 6)
    for changes in ({"block": 6}, {"mask": 5}, {}):
        assert refusal(lambda changes=changes: resolve(Diffusion(**changes), bare)).kind == "no-diffusion"


def test_presets() -> None:
    for name in PRESETS:
        assert not preset(name).defects
        assert resolve(preset(name, block=32), CONFIG).block == 32
    assert preset("fast-dllm-v2", 0.7, cache="dual") == preset("fast-dllm-v2-dual", 0.7)
    assert preset("iterative", 0.7).rule == Thresholds((0.7,))
    assert preset("llada", 0.7).rule == Thresholds((0.7,), inclusive=True)
    assert preset("greedy", 0.7) == preset("greedy", 0.2)


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    error = refusal(lambda: preset("fast-dllm-v3"))
    assert (error.kind, error.expected) == ("unknown-preset", ", ".join(PRESETS))
    error = refusal(lambda: preset("greedy", colour="red"))
    assert (error.kind, error.got) == ("diffusion-option", "colour")
    assert refusal(lambda: preset("iterative", -0.1)).kind == "threshold"
