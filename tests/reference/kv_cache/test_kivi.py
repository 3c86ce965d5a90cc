"""KIVI against a plain second writing that keeps everything and asks, at each pass, what is quantised by now."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kv_cases import SHAPE, fill, random_kv, read

from tritgold.errors import ConfigError, ContextError, NonFiniteError
from tritgold.kv_cache.base import Sizes
from tritgold.kv_cache.kivi import Kivi, Kivi2, Kivi4

F = np.float32
SCHEMES = {"kivi2": Kivi2(group=8, window=16), "kivi4": Kivi4(group=16, window=16), "default": Kivi4()}
EACH = pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)


def quantised(values: Sequence[np.float32], bits: int) -> list[np.float32]:
    """One group: what is read for it."""
    low = np.float16(min(values))
    scale = np.float16((max(values) - min(values)) / F(2**bits - 1))
    read = []
    for x in values:
        code = round(float(min(max((x - F(low)) / F(scale), F(0)), F(2**bits - 1)))) if scale else 0
        read.append(F(code) * F(scale) + F(low))
    return read


def expected(scheme: Kivi, k: np.ndarray, v: np.ndarray, past: int) -> tuple[np.ndarray, np.ndarray]:
    """Keys and values of a pass that finds ``past`` tokens: whole windows of keys, values older than a window."""
    g, r = scheme.group, scheme.window
    keys, values = k.copy(), v.copy()
    for start in range(0, past // r * r, g):
        for h, c in np.ndindex(*k.shape[1:]):
            keys[start : start + g, h, c] = quantised(list(k[start : start + g, h, c]), scheme.bits)
    for t in range(max(0, past - r)):
        for h in range(k.shape[1]):
            for c in range(0, k.shape[2], g):
                values[t, h, c : c + g] = quantised(list(v[t, h, c : c + g]), scheme.bits)
    return keys, values


@EACH
@pytest.mark.parametrize("passes", [[1] * 40, [40], [16, 1, 15, 1, 7], [15, 17, 8], [33, 7], [3, 13, 16, 8]])
def test_every_pass_sees_what_it_should(scheme: Kivi, passes: list[int]) -> None:
    k, v = random_kv(40, shape=Sizes(1, 1, 32))
    k[:16, 0, 3] = 1.5  # a group of one value, whose scale is 0
    cache, start = scheme.cache(Sizes(1, 1, 32), 40), 0
    for size in passes:
        got = cache.append(0, k[start : start + size], v[start : start + size])
        cache.advance(size)
        for ours, theirs in zip(got, expected(scheme, k[: start + size], v[: start + size], start), strict=True):
            assert np.array_equal(ours, theirs)
            assert ours.dtype == F
        start += size


def test_the_default_window_of_128() -> None:
    k, v = random_kv(260, shape=Sizes(1, 1, 32))
    for past in (127, 128, 129, 256, 259):
        cache = Kivi2().cache(Sizes(1, 1, 32), 260)
        keys, values = fill(cache, k[: past + 1], v[: past + 1], [past, 1])
        full = [(a == b).all(axis=(1, 2)) for a, b in ((keys, k[: past + 1]), (values, v[: past + 1]))]
        assert full[0].sum() == past + 1 - past // 128 * 128
        assert full[1].sum() == min(past, 128) + 1


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(0, 1000))
def test_what_is_quantised_in_the_end_does_not_depend_on_the_passes(passes: list[int], seed: int) -> None:
    scheme, shape = Kivi2(window=32), Sizes(2, 2, 64)
    k, v = random_kv(sum(passes), seed)
    one, other = (scheme.cache(shape, sum(passes)) for _ in range(2))
    for layer in range(2):
        one.append(layer, k, v)
    one.advance(len(k))
    start = 0
    for size in passes:
        for layer in range(2):
            other.append(layer, k[start : start + size], v[start : start + size])
        other.advance(size)
        start += size
    for layer in range(2):
        assert all(np.array_equal(a, b) for a, b in zip(read(one, layer), read(other, layer), strict=True))


@EACH
@pytest.mark.parametrize("past", [5, 16, 31, 32])
def test_a_pass_that_is_forgotten_leaves_no_trace(scheme: Kivi, past: int) -> None:
    """Block diffusion does so several times a block."""
    k, v = random_kv(60)
    tried, straight = (scheme.cache(SHAPE, 60) for _ in range(2))
    for cache in (tried, straight):
        fill(cache, k[:past], v[:past], [past])
    for _ in range(3):
        tried.append(0, v[:20], k[:20])
        tried.advance(20)
        tried.truncate(past)
    assert tried.length == past
    got, wanted = (fill(cache, k[past:40], v[past:40], [40 - past]) for cache in (tried, straight))
    assert all(np.array_equal(a, b) for a, b in zip(got, wanted, strict=True))


def test_a_cut_through_quantised_keys_is_refused_and_changes_nothing() -> None:
    k, v = random_kv(40)
    scheme = Kivi2(group=8, window=16)
    cache = scheme.cache(SHAPE, 40)
    fill(cache, k, v, [32, 8])
    before = read(cache)
    for length in (1, 9, 31):
        with pytest.raises(ContextError, match="expected a multiple of 8, or 32 and more") as refused:
            cache.truncate(length)
        assert refused.value.kind == "kv-truncate"
    assert all(np.array_equal(a, b) for a, b in zip(read(cache), before, strict=True))
    cache.truncate(50)
    assert cache.length == 40
    cache.truncate(35)
    assert cache.length == 35
    cache.truncate(24)
    keys, values = cache.append(0, k[24:40], v[24:40])
    assert np.array_equal(keys[:24], before[0][:24]), "what is quantised stays quantised"
    assert np.array_equal(keys[24:], k[24:40])
    assert np.array_equal(values[24:], v[24:40])
    cache.truncate(0)
    assert np.array_equal(cache.append(0, k, v)[0], k)


def test_what_float16_cannot_hold_is_refused_before_it_is_kept() -> None:
    cache = Kivi4().cache(SHAPE, 4)
    k, v = random_kv(2)
    v[1, 0, 3] = -65520
    with pytest.raises(NonFiniteError, match=r"layers\.1\.v: does not fit float16"):
        cache.append(1, k, v)
    assert read(cache, 1)[0].shape == (0, 2, 64)


@pytest.mark.parametrize("options", [{"group": 4}, {"group": 12}, {"group": 0}, {"window": 16}, {"window": 100}])
def test_options_that_cannot_be(options: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=f"kivi2 {next(iter(options))}: is not usable"):
        Kivi2(**options)


@pytest.mark.parametrize("head_dim", [6, 48, 80])
def test_heads_that_are_no_whole_groups_are_refused(head_dim: int) -> None:
    with pytest.raises(ConfigError, match="head_dim a multiple of group = 32"):
        Kivi2().cache(Sizes(1, 1, head_dim), 4)


def test_its_bytes() -> None:
    """Three bits a value for two; what is in the windows is float32."""
    shape = Sizes(3, 2, 64)
    assert Kivi2().bits_per_value(shape) == 3
    assert Kivi4().bits_per_value(shape) == 5
    assert Kivi2(group=128).bits_per_value(Sizes(1, 1, 128)) == 2.25
    assert Kivi2().cache_bytes(shape, 100) == 3 * 100 * 2 * 128 * 4
    # 300 tokens: 256 keys quantised and 44 not, 172 values quantised and 128 not
    assert Kivi2().cache_bytes(shape, 300) == 3 * ((256 + 172) * 128 * 3 // 8 + (44 + 128) * 128 * 4)
