"""Rows of the KV cache at other positions: in the first layer what reading the tokens there gives."""

from dataclasses import replace

import numpy as np
import pytest
from engine_cases import LLAMA, make_weights

from tritgold.errors import ContextError
from tritgold.rope_scaling import RopeScaling
from tritgold_xla import XlaEngine
from tritgold_xla.kv_cache.kv_scheme import kv_scheme

TEXT = [(7 * n) % 97 for n in range(96)]


@pytest.mark.parametrize("scheme", ["f32", "int8"])
def test_moved_keys_are_those_of_the_same_tokens_there(scheme):
    engine = XlaEngine(LLAMA, make_weights(LLAMA), capacity=100, sequences=2, kv_cache=scheme)
    heads, kind = LLAMA.kv_heads, kv_scheme(scheme)

    def rows(sequence, first, stop):
        of, cache = slice(sequence * heads, (sequence + 1) * heads), engine._cache
        sides = (cache.keys, cache.key_scales), (cache.values, cache.value_scales)
        return [np.asarray(kind.load(*(array[:, of, first:stop] for array in side))) for side in sides]

    engine.read(TEXT, sequence=0)
    engine.read([*TEXT[:5], *TEXT[20:90]], sequence=1)
    fresh, before = rows(1, 5, 75), rows(0, 75, 96)
    engine.move(20, 5, 70)  # two pieces, the second one not whole, onto themselves
    for moved, read in zip(rows(0, 5, 75), fresh, strict=True):
        np.testing.assert_allclose(moved[0], read[0], atol=1e-6 if scheme == "f32" else 0.02 * np.abs(read[0]).max())
        assert np.abs(moved[1:] - read[1:]).max() > 1e-3, "above it they are those of another text"
    np.testing.assert_array_equal(before[0], rows(0, 75, 96)[0])
    np.testing.assert_array_equal(fresh[1], rows(1, 5, 75)[1])
    assert engine.lengths == (96, 75)
    for wrong in ((20, 30, 5, 0), (20, 5, 77, 0), (20, 5, 0, 0), (-1, -1, 2, 0), (20, 5, 5, 2)):
        with pytest.raises(ContextError, match="batch"):
            engine.move(*wrong)


def test_where_keys_can_be_moved():
    assert XlaEngine(LLAMA, make_weights(LLAMA), capacity=20).movable
    twice = replace(LLAMA, window=8, local_rope_theta=1e3)
    assert not XlaEngine(twice, make_weights(twice), capacity=20).movable
    scaled = replace(LLAMA, rope_scaling=RopeScaling((2.0,) * 5))
    assert not XlaEngine(scaled, make_weights(scaled), capacity=20).movable
    cut = XlaEngine(LLAMA, make_weights(LLAMA), capacity=20)
    cut._shards = object()
    assert not cut.movable
