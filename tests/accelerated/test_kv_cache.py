"""Rows of the cache that are in use survive whatever is written beside them."""

import jax
import numpy as np
import pytest
from engine_cases import LLAMA
from jax import lax

from tritgold_xla import kv_cache
from tritgold_xla.flags import jit

CAPACITY = 20
_append = jit(kv_cache.append)
_read = jit(kv_cache.read)


def full_cache():
    empty = kv_cache.new_cache(LLAMA, CAPACITY, jax.devices("cpu")[0])
    rng = np.random.default_rng(0)
    return kv_cache.KvCache(*(rng.standard_normal(a.shape).astype(np.float32) for a in empty))


def block(tokens):
    rng = np.random.default_rng(1)
    shape = (tokens, LLAMA.kv_heads, LLAMA.head_dim)
    return rng.standard_normal(shape).astype(np.float32), rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("start", [0, 5, 11, 13, 19])
@pytest.mark.parametrize("count", [1, 3, 7])
@pytest.mark.parametrize("size", [8, 32])
def test_only_the_tokens_own_rows_change(start, count, size):
    if start + count > CAPACITY:
        count = CAPACITY - start
    before, (k, v) = full_cache(), block(size)
    after = _append(before, np.int32(1), np.int32(start), np.int32(count), k, v)
    for old, new, rows in zip(before, after, (k, v), strict=True):
        expected = old.copy()
        expected[1, start : start + count] = rows[:count]
        np.testing.assert_array_equal(new, expected)


def test_a_block_write_would_move_down_over_earlier_rows():
    # The mistake that the test above must be able to see: 8 rows at 17 of 20 land at 12.
    before, (k, _) = full_cache(), block(8)
    after = np.asarray(lax.dynamic_update_slice(before.keys, k[None], (1, 17, 0, 0)))
    assert (after[1, 12:17] != before.keys[1, 12:17]).all()


def test_what_stands_behind_the_length_is_never_read():
    cache = full_cache()
    cache.keys[2, 9:], cache.values[2, 9:] = np.nan, np.inf
    for got, rows in zip(_read(cache, np.int32(2), np.int32(9)), cache, strict=True):
        assert got.shape == (LLAMA.kv_heads, CAPACITY, LLAMA.head_dim)
        np.testing.assert_array_equal(got[:, :9], rows[2, :9].transpose(1, 0, 2))
        assert not np.asarray(got)[:, 9:].any()
