"""Attention against the golden one, in its two steps and in parts of the cache."""

import jax
import numpy as np
import pytest

import tritgold.layers.attention as golden
from tritgold_xla.kv_cache import base as kv_cache
from tritgold_xla.kv_cache.base import PART
from tritgold_xla.layers import attention
from tritgold_xla.runtime.flags import jit

U = 2.0**-24

_softmax = jit(attention.softmax_weights)
_mix = jit(attention.mix_values)
_attend = jit(attention.attend, static=("scheme", "kv_heads"))
SHAPES = [(4, 1, 10), (3, 3, 64)]  # heads, kv_heads, head_dim


def inputs(heads, kv_heads, head_dim, tokens=40):
    rng = np.random.default_rng(heads)
    return [rng.standard_normal((tokens, n, head_dim)).astype(np.float32) for n in (heads, kv_heads, kv_heads)]


def cached(rows, positions=50):
    """[tokens, kv_heads, head_dim] as the cache gives it."""
    return np.pad(rows.transpose(1, 0, 2), ((0, 0), (0, positions - rows.shape[0]), (0, 0)))


def causal(start, count, size):
    return np.minimum(start + np.arange(size) + 1, start + count).astype(np.int32)


def attended(q, k, v, start, ends, scheme="f32"):
    """What ``attend`` makes of a cache that holds k and v in its second layer, with NaN after them."""
    config = type("Shape", (), {"layers": 2, "kv_heads": k.shape[1], "head_dim": k.shape[2]})
    cache = kv_cache.new_cache(config, 2 * PART, jax.devices("cpu")[0], scheme)
    cache = jax.tree.map(lambda a: a + np.float32(np.nan) if a.dtype == np.float32 else a, cache)
    cache = jit(kv_cache.append, static=("scheme",))(
        cache, scheme=scheme, layer=np.int32(1), start=np.int32(0), k=k, v=v
    )
    return np.asarray(
        _attend(q, cache, scheme=scheme, layer=np.int32(1), length=np.int32(len(k)), ends=ends, kv_heads=k.shape[1])
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_the_two_steps_equal_golden_and_hardly_depend_on_the_chunk(shape):
    q, k, v = inputs(*shape)
    expected = golden.softmax_weights(q, k, start=0)
    probs = np.asarray(_softmax(q, cached(k), causal(0, 40, 40)))
    assert not probs[:, :, 40:].any()
    assert not np.triu(probs[:, :, :40], 1).any(), "a key after its token has a weight"
    np.testing.assert_allclose(probs[:, :, :40], expected, rtol=50 * U, atol=0)
    mixed = np.asarray(_mix(probs, cached(v)))
    np.testing.assert_allclose(mixed, golden.mix_values(probs[:, :, :40], v), rtol=0, atol=50 * U)
    for start, count, size in [(0, 1, 1), (39, 1, 1), (33, 7, 32)]:
        rows = np.pad(q[start : start + count], ((0, size - count), (0, 0), (0, 0)), constant_values=9)
        part = np.asarray(_softmax(rows, cached(k[: start + count]), causal(start, count, size)))
        np.testing.assert_allclose(part[:, :count], probs[:, start : start + count], rtol=50 * U, atol=0)
        mix = np.asarray(_mix(part, cached(v[: start + count])))
        np.testing.assert_allclose(mix[:count], mixed[start : start + count], rtol=0, atol=50 * U)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("tokens", [1, 7, PART, PART + 1, 2 * PART])
def test_in_parts_it_is_the_same_attention(shape, tokens):
    q, k, v = inputs(*shape, tokens=tokens)
    expected = golden.mix_values(golden.softmax_weights(q, k, start=0), v)
    np.testing.assert_allclose(attended(q, k, v, 0, causal(0, tokens, tokens)), expected, rtol=0, atol=50 * U)
    last = attended(q[-1:], k, v, tokens - 1, np.array([tokens], np.int32))
    np.testing.assert_allclose(last, expected[-1:], rtol=0, atol=50 * U)


def test_tokens_of_a_block_see_it_whole():
    q, k, v = inputs(3, 3, 64)
    ends = np.minimum((np.arange(40) // 16 + 1) * 16, 40).astype(np.int32)
    got = attended(q, k, v, 0, ends)
    for token, end in enumerate(ends.tolist()):
        alone = golden.mix_values(golden.softmax_weights(q[token : token + 1], k[:end], start=end - 1), v[:end])
        np.testing.assert_allclose(got[token], alone[0], rtol=0, atol=50 * U)
    assert np.abs(got - attended(q, k, v, 0, causal(0, 40, 40))).max() > 1e-3, "the mask has no effect"


def test_large_scores_do_not_overflow():
    q, k, v = inputs(4, 1, 10, tokens=PART + 9)
    q *= 1e4
    expected = golden.mix_values(golden.softmax_weights(q, k, start=0), v)
    got = attended(q, k, v, 0, causal(0, len(q), len(q)))
    assert np.isfinite(got).all()
    # Scores of 1e4 carry roundings of 1e-3: only weights that are all or nothing can be compared.
    clear = golden.softmax_weights(q, k, start=0).max(axis=(0, 2)) > 1 - 1e-6
    np.testing.assert_allclose(got[clear], expected[clear], rtol=0, atol=1e-3)
