"""The formulas of docs/sharding.md: its table is theirs, and they say what is loaded."""

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from engine_cases import MIXED, Matrix, make_weights
from measure.sharding_model import ASSUMED, SHAPES, Machine, step, table

from tritgold_xla import XlaEngine

PAGE = Path(__file__).parents[3] / "docs/sharding.md"


def test_the_table_of_the_page():
    assert table() in PAGE.read_text(encoding="utf-8")


def test_bytes_are_those_of_an_engine():
    weights = make_weights(MIXED)
    bits = weights.embedding.array.view(np.uint32) & np.uint32(0xFFFF0000)
    engine = XlaEngine(MIXED, replace(weights, embedding=Matrix(bits.view(np.float32))), kv_cache="bf16")
    parts = engine._parameters
    bytes_of = [leaf.nbytes for name in parts.layers.linears.values() for leaf in [name.planes.bits]]
    expected = sum(bytes_of) + parts.head.nbytes
    assert step(MIXED, Machine(1, 1, 0, 1), context=0).bytes_read == expected
    assert jax.tree.leaves(parts.head)[0].dtype == "bfloat16"


@pytest.mark.parametrize("name", SHAPES)
def test_more_devices_hold_less_and_send_more(name):
    steps = [step(SHAPES[name], replace(ASSUMED, devices=count)) for count in (1, 2, 4)]
    assert [s.held for s in steps] == sorted((s.held for s in steps), reverse=True)
    assert steps[0].collectives == steps[0].bytes_sent == 0 < steps[1].bytes_sent < steps[2].bytes_sent
    assert steps[0].seconds > steps[1].seconds > steps[2].seconds


def test_sizes_are_those_that_their_names_say():
    for name, config in SHAPES.items():
        linears = sum(np.prod(config.linear_shape(each)) for each in ("q", "k", "v", "o", "gate", "up", "down"))
        weights = linears * config.layers + 2 * config.vocab * config.hidden
        assert float(name.removesuffix("B")) == pytest.approx(weights / 1e9, rel=0.1)
