from pathlib import Path

import numpy as np
import pytest

import tritgold.layers.attention as golden
from tritgold_xla import attention
from tritgold_xla.flags import jit

U = 2.0**-24
CAPACITY = 50
# 0 is bit for bit, where XLA vectorises for AVX2. For AVX-512 it sums the products of a single token in another order
# than those of a chunk: 11 roundings seen.
CPU = Path("/proc/cpuinfo")
ROUNDINGS = 16 if CPU.is_file() and "avx512f" in CPU.read_text() else 0

_softmax = jit(attention.softmax_weights)
_mix = jit(attention.mix_values)
SHAPES = [(4, 1, 10), (3, 3, 64)]  # heads, kv_heads, head_dim


def inputs(heads, kv_heads, head_dim, tokens=40):
    rng = np.random.default_rng(heads)
    return [rng.standard_normal((tokens, n, head_dim)).astype(np.float32) for n in (heads, kv_heads, kv_heads)]


def cached(rows):
    """[tokens, kv_heads, head_dim] as the cache gives it."""
    return np.pad(rows.transpose(1, 0, 2), ((0, 0), (0, CAPACITY - rows.shape[0]), (0, 0)))


@pytest.mark.parametrize("shape", SHAPES)
def test_equals_golden_and_hardly_depends_on_the_chunk(shape):
    q, k, v = inputs(*shape)
    expected = golden.softmax_weights(q, k, start=0)
    probs = np.asarray(_softmax(q, cached(k), np.int32(0), np.int32(40)))
    assert not probs[:, :, 40:].any()
    assert not np.triu(probs[:, :, :40], 1).any(), "a key behind its token has a weight"
    np.testing.assert_allclose(probs[:, :, :40], expected, rtol=50 * U, atol=0)
    mixed = np.asarray(_mix(probs, cached(v), np.int32(40)))
    np.testing.assert_allclose(mixed, golden.mix_values(probs[:, :, :40], v), rtol=0, atol=50 * U)
    for start, count, size in [(0, 1, 1), (39, 1, 1), (33, 7, 32)]:
        rows = np.pad(q[start : start + count], ((0, size - count), (0, 0), (0, 0)), constant_values=9)
        part = np.asarray(_softmax(rows, cached(k[: start + count]), np.int32(start), np.int32(count)))
        np.testing.assert_allclose(part[:, :count], probs[:, start : start + count], rtol=ROUNDINGS * U, atol=0)
        assert not part[:, count:].any(), "padding was computed"
        mix = np.asarray(_mix(part, cached(v[: start + count]), np.int32(count)))
        np.testing.assert_allclose(mix[:count], mixed[start : start + count], rtol=0, atol=ROUNDINGS * U)
        assert not mix[count:].any()
