"""Arithmetic.alter: one output of a pass replaced by its name, and nothing else moved."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.golden.seeded import Shape, write_seeded_model
from tritgold.graph import operations, trace_names
from tritgold.kv_cache.float32 import Float32Cache
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC
from tritgold.model import forward
from tritgold.trace import Trace

TOKENS = [256, 1, 2, 3, 4, 5]
Seen = Mapping[str, np.ndarray]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder: Path = tmp_path_factory.mktemp("model")
    write_seeded_model(folder, Shape(hidden=64, inter=96, layers=2, heads=2, kv_heads=1, context=32))
    return open_checkpoint(folder)


def traced(checkpoint: Checkpoint, alter: object, cut: int = 0) -> Trace:
    arithmetic = replace(GOLDEN_ARITHMETIC, alter=alter)  # type: ignore[arg-type]
    trace, cache = Trace(), Float32Cache(checkpoint.config, len(TOKENS))
    for part in (TOKENS[:cut], TOKENS[cut:]) if cut else (TOKENS,):
        forward(part, checkpoint.weights, checkpoint.config, cache, trace, arithmetic=arithmetic)
    return trace


def test_without_it_and_with_one_that_alters_nothing_the_bits_are_the_same(checkpoint: Checkpoint) -> None:
    plain = traced(checkpoint, None)
    assert GOLDEN_ARITHMETIC.alter is None
    assert traced(checkpoint, lambda name, value, seen: value).digest() == plain.digest()
    assert plain.mode == "golden/1"


def test_the_mode_of_an_altered_pass_is_not_the_golden_one(checkpoint: Checkpoint) -> None:
    assert traced(checkpoint, lambda name, value, seen: value).mode == "altered-golden/1"


def test_every_output_passes_by_in_execution_order_with_those_it_was_made_of(checkpoint: Checkpoint) -> None:
    names: list[str] = []

    def alter(name: str, value: np.ndarray, seen: Seen) -> np.ndarray:
        assert list(seen) == names
        names.append(name)
        return value

    traced(checkpoint, alter)
    assert names == trace_names(checkpoint.config)


@pytest.mark.parametrize("cut", [0, 2])
def test_what_is_altered_is_what_the_pass_goes_on_with(checkpoint: Checkpoint, cut: int) -> None:
    plain = traced(checkpoint, None)
    for operation in operations(checkpoint.config):
        target = next(iter(operation.writes.values()))

        def alter(name: str, value: np.ndarray, seen: Seen, target: str = target) -> np.ndarray:
            return np.zeros_like(value) if name == target else value

        trace = traced(checkpoint, alter, cut)
        assert not trace[target].any()
        order = list(plain.arrays)
        before = order[: order.index(target)]
        assert all(np.array_equal(trace[name], plain[name]) for name in before)
        if target != "logits":
            assert not np.array_equal(trace["logits"], plain["logits"]), target
