"""Attention against the golden one, in its two steps and in parts of the cache."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import tritgold.layers.attention as golden
from tritgold_xla.kv_cache import base as kv_cache
from tritgold_xla.kv_cache.base import PART, PART_AS_STORED, PART_OF_ONE
from tritgold_xla.layers import attention
from tritgold_xla.layers.bfloat16_pieces import pieces
from tritgold_xla.runtime.flags import jit
from tritgold_xla.ternary_matmul.choose import library_dots

U = 2.0**-24

_softmax = jit(attention.softmax_weights)
_mix = jit(attention.mix_values)
_attend = jit(attention.attend, static=("scheme", "kv_heads"))
SHAPES = [(4, 1, 10), (3, 3, 64)]  # heads, kv_heads, head_dim
LENGTHS = [1, PART_OF_ONE + 1, PART_AS_STORED - 1, PART_AS_STORED, 2 * PART_AS_STORED, 2 * PART_AS_STORED + 70]


def inputs(heads, kv_heads, head_dim, tokens=40):
    rng = np.random.default_rng(heads)
    return [rng.standard_normal((tokens, n, head_dim)).astype(np.float32) for n in (heads, kv_heads, kv_heads)]


def cached(rows, positions=50):
    """[tokens, kv_heads, head_dim] as the cache gives it."""
    return np.pad(rows.transpose(1, 0, 2), ((0, 0), (0, positions - rows.shape[0]), (0, 0)))


def causal(start, count, size):
    return np.minimum(start + np.arange(size) + 1, start + count).astype(np.int32)


def cache_of(k, v, scheme):
    """A cache that holds k and v in its second layer, with NaN after them."""
    config = type("Shape", (), {"layers": 2, "kv_heads": k.shape[1], "head_dim": k.shape[2]})
    cache = kv_cache.new_cache(config, 5 * PART, jax.devices("cpu")[0], scheme)
    cache = jax.tree.map(lambda a: jnp.full_like(a, np.nan), cache)
    append = jit(kv_cache.append, static=("scheme",))
    return append(cache, scheme=scheme, layer=np.int32(1), start=np.int32(0), k=k, v=v)


def attended(q, k, v, ends, scheme="f32", begins=None):
    """What ``attend`` makes of ``cache_of``."""
    at = {"layer": np.int32(1), "length": np.int32(len(k)), "ends": ends, "begins": begins}
    return np.asarray(_attend(q, cache_of(k, v, scheme), scheme=scheme, kv_heads=k.shape[1], **at))


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
    np.testing.assert_allclose(attended(q, k, v, causal(0, tokens, tokens)), expected, rtol=0, atol=50 * U)
    last = attended(q[-1:], k, v, np.array([tokens], np.int32))
    np.testing.assert_allclose(last, expected[-1:], rtol=0, atol=50 * U)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("tokens", LENGTHS)
@pytest.mark.parametrize("window", [None, 3, PART_OF_ONE + 6, PART_AS_STORED + 9])
def test_one_token_reads_a_bfloat16_cache_as_it_is_stored(shape, tokens, window):
    q, k, v = inputs(*shape, tokens=tokens)
    k, v = (rows.astype(ml_dtypes.bfloat16).astype(np.float32) for rows in (k, v))
    since = 0 if window is None else max(tokens - window, 0)
    begins = None if window is None else np.array([since], np.int32)
    weights = golden.softmax_weights(q[-1:], k[since:], start=tokens - 1 - since)
    last = attended(q[-1:], k, v, np.array([tokens], np.int32), "bf16", begins)
    np.testing.assert_allclose(last, golden.mix_values(weights, v[since:]), rtol=0, atol=8 * U)  # two pieces: 10 to 35


@pytest.mark.parametrize("window", [None, PART_OF_ONE + 6, PART_AS_STORED + 9])
def test_sequences_of_one_bfloat16_cache_are_each_as_if_alone(window):
    lengths, heads, kv_heads, width = [3, PART_AS_STORED + 70, PART_OF_ONE, 2 * PART_AS_STORED], 10, 5, 32
    config = type("Shape", (), {"layers": 2, "kv_heads": kv_heads, "head_dim": width})
    cache = kv_cache.new_cache(config, 5 * PART, jax.devices("cpu")[0], "bf16", len(lengths))
    cache = jax.tree.map(lambda a: jnp.full_like(a, np.nan), cache)
    append = jit(kv_cache.append, static=("scheme",))
    texts = [inputs(heads, kv_heads, width, tokens=length) for length in lengths]
    for sequence, (_, k, v) in enumerate(texts):
        at = {"layer": np.int32(1), "start": np.int32(0), "sequence": np.int32(sequence)}
        cache = append(cache, scheme="bf16", k=k, v=v, **at)
    ends = np.array(lengths, np.int32)
    begins = None if window is None else np.maximum(ends - window, 0)
    each = jit(attention.attend_each, static=("scheme", "kv_heads"))
    q = np.concatenate([q[-1:] for q, _, _ in texts])
    got = np.asarray(each(q, cache, scheme="bf16", layer=np.int32(1), ends=ends, kv_heads=kv_heads, begins=begins))
    for sequence, (_, k, v) in enumerate(texts):
        own = None if begins is None else begins[sequence : sequence + 1]
        alone = attended(q[sequence : sequence + 1], k, v, ends[sequence : sequence + 1], "bf16", own)
        np.testing.assert_array_equal(got[sequence], alone[0])


def test_the_sum_of_the_pieces_is_the_number():
    x = np.random.default_rng(5).standard_normal(10_000).astype(np.float32) * np.float32(1e-3)
    split = [np.asarray(piece) for piece in jit(pieces)(x)]
    assert all(piece.dtype == jnp.bfloat16 for piece in split)
    np.testing.assert_array_equal(sum(piece.astype(np.float64) for piece in split), x.astype(np.float64))
    assert (sum(piece.astype(np.float64) for piece in split[:2]) != x).any()


@pytest.mark.parametrize("scheme", ["f32", "bf16"])
def test_only_a_bfloat16_cache_is_multiplied_in_three_pieces(scheme):
    q, k, v = inputs(8, 2, 64, tokens=1)
    at = {"layer": np.int32(1), "length": np.int32(1), "ends": np.array([1], np.int32)}
    lowered = _attend.lower(q, cache_of(k, v, scheme), scheme=scheme, kv_heads=2, **at)
    three_pieces_of_four_heads = f"f32[2,{PART_OF_ONE},12]"
    products = [line for line in lowered.compile().as_text().splitlines() if three_pieces_of_four_heads in line]
    assert any("ynn" in line for line in products) == bool(products) == (scheme == "bf16" and library_dots())


def test_tokens_of_a_block_see_it_whole():
    q, k, v = inputs(3, 3, 64)
    ends = np.minimum((np.arange(40) // 16 + 1) * 16, 40).astype(np.int32)
    got = attended(q, k, v, ends)
    for token, end in enumerate(ends.tolist()):
        alone = golden.mix_values(golden.softmax_weights(q[token : token + 1], k[:end], start=end - 1), v[:end])
        np.testing.assert_allclose(got[token], alone[0], rtol=0, atol=50 * U)
    assert np.abs(got - attended(q, k, v, causal(0, 40, 40))).max() > 1e-3, "the mask has no effect"


def test_large_scores_do_not_overflow():
    q, k, v = inputs(4, 1, 10, tokens=PART + 9)
    q *= 1e4
    expected = golden.mix_values(golden.softmax_weights(q, k, start=0), v)
    got = attended(q, k, v, causal(0, len(q), len(q)))
    assert np.isfinite(got).all()
    # Scores of 1e4 carry roundings of 1e-3: only weights that are all or nothing can be compared.
    clear = golden.softmax_weights(q, k, start=0).max(axis=(0, 2)) > 1 - 1e-6
    np.testing.assert_allclose(got[clear], expected[clear], rtol=0, atol=1e-3)
