"""Rows of the cache that are in use survive whatever is written beside them; schemes store the golden bytes."""

import jax
import numpy as np
import pytest
from engine_cases import LLAMA
from hypothesis import given, settings
from hypothesis import strategies as st

from tritgold.errors import ConfigError
from tritgold.kv_cache.base import Sizes
from tritgold.kv_cache.kv_scheme import kv_scheme as golden_scheme
from tritgold_xla.kv_cache import base as kv_cache
from tritgold_xla.kv_cache.kv_scheme import SCHEMES, kv_scheme
from tritgold_xla.runtime.chunks import CHUNKS
from tritgold_xla.runtime.flags import jit

_append = jit(kv_cache.append, static=("scheme",))
_read = jit(kv_cache.read, static=("scheme", "size", "kv_heads"))
NARROW = [name for name in SCHEMES if name != "f32"]


def full_cache(scheme="f32"):
    empty = kv_cache.new_cache(LLAMA, 20, jax.devices("cpu")[0], scheme)
    rng = np.random.default_rng(0)
    if empty.keys.dtype == np.uint8:  # numbers of 8 bits, none of them NaN
        return kv_cache.KvCache(*(rng.integers(0, 0x70, a.shape).astype(a.dtype) for a in empty))
    return kv_cache.KvCache(*(rng.standard_normal(a.shape).astype(a.dtype) for a in empty))


def block(tokens):
    rng = np.random.default_rng(1)
    shape = (tokens, LLAMA.kv_heads, LLAMA.head_dim)
    return rng.standard_normal(shape).astype(np.float32), rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("start", [0, 5, 19])
@pytest.mark.parametrize("size", CHUNKS)
def test_a_chunk_of_any_size_fits_behind_the_last_position_of_the_capacity(start, size):
    before, (k, v) = full_cache(), block(size)
    after = _append(before, scheme="f32", layer=np.int32(1), start=np.int32(start), k=k, v=v)
    for old, new, rows in ((before.keys, after.keys, k), (before.values, after.values, v)):
        expected = old.copy()
        expected[1, :, start : start + size] = rows.transpose(1, 0, 2)
        np.testing.assert_array_equal(new, expected)


def test_positions_leave_room_for_a_padded_chunk():
    for capacity in (1, 127, 128, 129, 4096):
        assert kv_cache.positions(capacity) >= capacity - 1 + CHUNKS[-1]
        assert kv_cache.positions(capacity) % kv_cache.PART == 0


@pytest.mark.parametrize("scheme", ["f32", "bf16", "fp8_e4m3"])
def test_what_stands_behind_the_length_is_never_read(scheme):
    cache = full_cache(scheme)
    kind = kv_scheme(scheme)
    nan = 0xFF if kind.dtype == np.uint8 else np.nan
    cache.keys[2, :, 9:], cache.values[2, :, 9:] = nan, nan
    read = _read(cache, scheme=scheme, layer=np.int32(2), first=np.int32(4), size=16, length=np.int32(9), kv_heads=1)
    for got, rows in zip(read, (cache.keys, cache.values), strict=True):
        assert got.shape == (LLAMA.kv_heads, 16, LLAMA.head_dim)
        np.testing.assert_array_equal(got[:, :5], kind.load(rows[2, :, 4:9], np.zeros(0)))
        assert not np.asarray(got)[:, 5:].any()


@settings(deadline=None, derandomize=True, max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), spread=st.sampled_from([1e-9, 1e-3, 1.0, 30.0, 500.0, 6e4]))
@pytest.mark.parametrize("name", NARROW)
def test_what_is_read_back_is_what_the_golden_scheme_reads_back(name, seed, spread):
    rng = np.random.default_rng(seed)
    rows = (rng.standard_normal((5, 2, 32)) * rng.uniform(0, spread, (5, 2, 1))).astype(np.float32)
    rows[0, 0] = 0
    rows = np.clip(rows, -6e4, 6e4)  # float16 refuses what it cannot hold
    scheme, golden = kv_scheme(name), golden_scheme(name)
    stored, scales = jit(scheme.store)(rows)
    sizes = Sizes(layers=1, kv_heads=2, head_dim=32)
    np.testing.assert_array_equal(np.asarray(jit(scheme.load)(stored, scales)), golden.load(golden.store(rows), sizes))
    assert 2 * scheme.row_bytes(32) == golden.row_bytes(sizes)


@pytest.mark.parametrize("name", ["fp8_e4m3", "fp8_e5m2"])
def test_every_8_bit_float_between_two_neighbours_goes_where_the_golden_one_goes(name):
    golden = golden_scheme(name).format
    numbers = golden.magnitudes()
    middle = (numbers[1:] + numbers[:-1]) / 2
    x = np.concatenate([numbers, middle, np.nextafter(middle, 0), np.nextafter(middle, np.inf), [1e30]]).astype(
        np.float32
    )
    x = np.concatenate([x, -x])
    stored, _ = jit(kv_scheme(name).store)(x[None])
    np.testing.assert_array_equal(np.asarray(stored).view(np.uint8)[0], golden.encode(x))


@pytest.mark.parametrize("name", NARROW)
def test_a_row_that_is_no_number_stays_none(name):
    rows = np.ones((1, 32), np.float32)
    rows[0, 3] = np.nan
    scheme = kv_scheme(name)
    found = np.asarray(jit(scheme.load)(*jit(scheme.store)(rows)))
    assert np.isnan(found[0, 3])
    assert name == "int8" or (found[0, 4:] == 1).all()


def test_an_unknown_scheme_is_refused_with_the_list():
    with pytest.raises(ConfigError, match=r"q4_0.*f32, bf16, f16, fp8_e4m3, fp8_e5m2, int8.*unknown-kv-scheme"):
        kv_scheme("q4_0")
