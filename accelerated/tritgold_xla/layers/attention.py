"""Grouped-query attention on a preallocated cache, twice: in traced steps, and faster over parts of the cache.

``ends`` is for every token the number of positions it sees, 0 to ends - 1: for causal attention, or for blocks that
see all of themselves. Query head h reads key head h // (heads / kv_heads).
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Float32, Int32

from tritgold_xla.kv_cache import base as kv_cache
from tritgold_xla.kv_cache.base import PART, PART_OF_ONE, KvCache
from tritgold_xla.runtime.flags import PRECISION
from tritgold_xla.runtime.ieee import divide, multiply, rounded, tree_max, tree_sum


def softmax_weights(
    q: Float32[jax.Array, "tokens heads head_dim"],
    keys: Float32[jax.Array, "kv_heads positions head_dim"],
    ends: Int32[jax.Array, " tokens"],
    begins: Int32[jax.Array, " tokens"] | None = None,
) -> Float32[jax.Array, "heads tokens positions"]:
    """softmax(q k / sqrt(head_dim)) over the positions that each token sees; exactly 0 for all others.

    begins: the first position that each token sees, where it is not 0 for all.
    """
    tokens, heads, _ = q.shape
    scores = _scores(_grouped(q, keys.shape[0]), keys)
    positions, groups = lax.iota(jnp.int32, keys.shape[1]), scores.shape[1] // tokens
    seen = positions < _repeated(ends, groups)
    if begins is not None:
        seen &= positions >= _repeated(begins, groups)
    scores = jnp.where(seen, scores, -jnp.inf)
    powers = rounded(jnp.exp(scores - tree_max(scores)[:, :, None]))
    return divide(powers, tree_sum(powers)[:, :, None]).reshape(heads, tokens, -1)


def mix_values(
    weights: Float32[jax.Array, "heads tokens positions"],
    values: Float32[jax.Array, "kv_heads positions head_dim"],
) -> Float32[jax.Array, "tokens width"]:
    """Weighted sum of the values, heads concatenated: width = heads * head_dim. Unseen values must be finite."""
    heads, tokens, positions = weights.shape
    mixed = _mix(weights.reshape(values.shape[0], -1, positions), values)
    return _ungrouped(mixed, heads, tokens)


def attend(
    q: Float32[jax.Array, "tokens heads head_dim"],
    cache: KvCache,
    scheme: str,
    layer: Int32[jax.Array, ""],
    length: Int32[jax.Array, ""],
    ends: Int32[jax.Array, " tokens"],
    kv_heads: int,
    sequence: Int32[jax.Array, ""] | int = 0,
    begins: Int32[jax.Array, " tokens"] | None = None,
) -> Float32[jax.Array, "tokens width"]:
    """Both steps above over the first ``length`` positions of one layer, one part at a time.

    The number of iterations is known only at run time, so one program's cost is proportional to the positions in use.
    Each part has its own maximum; earlier sums are rescaled to the larger one (arXiv 2205.14135).
    """
    tokens, heads, _ = q.shape
    grouped = _grouped(q, kv_heads)
    groups = grouped.shape[1] // tokens
    seen, since = _repeated(ends, groups), None if begins is None else _repeated(begins, groups)
    size = PART_OF_ONE if tokens == 1 else PART

    def part(index: jax.Array, so_far: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        largest, total, mixed = so_far
        keys, values = kv_cache.read(cache, scheme, layer, index * size, size, length, kv_heads, sequence)
        positions = index * size + lax.iota(jnp.int32, size)
        visible = positions < seen if since is None else (positions < seen) & (positions >= since)
        scores = jnp.where(visible, _scores(grouped, keys), -jnp.inf)
        larger = jnp.maximum(largest, tree_max(scores)[:, :, None])
        powers, kept = jnp.exp(scores - larger), jnp.exp(largest - larger)
        total = multiply(total, kept) + tree_sum(powers)[:, :, None]
        return larger, total, multiply(mixed, kept) + _mix(powers, values)

    # Every token sees position 0, so the first part leaves no maximum at the -inf that this one begins with; with a
    # window it may see none of a part, and -inf less -inf is NaN.
    shape, first = (*grouped.shape[:2], 1), jnp.int32(0)
    lowest = -jnp.inf if begins is None else float(np.finfo(np.float32).min)
    if begins is not None:
        first = jnp.maximum(begins.min(), 0) // size
    empty = jnp.full(shape, lowest), jnp.zeros(shape), jnp.zeros(grouped.shape)
    _, total, mixed = lax.fori_loop(first, (length + size - 1) // size, part, empty)
    return _ungrouped(divide(mixed, total), heads, tokens)


def attend_each(
    q: Float32[jax.Array, "sequences heads head_dim"],
    cache: KvCache,
    scheme: str,
    layer: Int32[jax.Array, ""],
    ends: Int32[jax.Array, " sequences"],
    kv_heads: int,
    begins: Int32[jax.Array, " sequences"] | None = None,
) -> Float32[jax.Array, "sequences width"]:
    """Attention of one token of each sequence, which sees the first ``ends`` positions of its own sequence.

    A loop over the sequences: the cost is proportional to each length, and the float32 data stays in a core's cache.
    All at once is slower for more than a few sequences, three times with 64.
    """
    sequences, heads, head_dim = q.shape

    def one(sequence: jax.Array, mixed: jax.Array) -> jax.Array:
        own, end = lax.dynamic_slice_in_dim(q, sequence, 1), ends[sequence]
        begin = None if begins is None else begins[sequence][None]
        row = attend(own, cache, scheme, layer, end, end[None], kv_heads, sequence, begin)
        return lax.dynamic_update_slice_in_dim(mixed, row, sequence, axis=0)

    return lax.fori_loop(0, sequences, one, jnp.zeros((sequences, heads * head_dim), jnp.float32))


def _grouped(q: jax.Array, kv_heads: int) -> jax.Array:
    """[tokens, heads, head_dim] -> [kv_heads, query heads of each * tokens, head_dim]."""
    tokens, _, head_dim = q.shape
    return q.transpose(1, 0, 2).reshape(kv_heads, -1, head_dim) if tokens > 1 else q.reshape(kv_heads, -1, head_dim)


def _ungrouped(rows: jax.Array, heads: int, tokens: int) -> jax.Array:
    """[kv_heads, query heads of each * tokens, head_dim] -> [tokens, heads * head_dim]."""
    return rows.reshape(heads, tokens, -1).transpose(1, 0, 2).reshape(tokens, -1)


def _repeated(ends: jax.Array, groups: int) -> jax.Array:
    """[tokens] -> [1, groups * tokens, 1]."""
    return jnp.tile(ends, groups)[None, :, None]


def _scores(grouped: jax.Array, keys: jax.Array) -> jax.Array:
    scores = lax.dot_general(grouped, keys, (((2,), (2,)), ((0,), (0,))), precision=PRECISION)
    return multiply(scores, jnp.float32(1 / math.sqrt(keys.shape[2])))


def _mix(weights: jax.Array, values: jax.Array) -> jax.Array:
    return lax.dot_general(weights, values, (((2,), (1,)), ((0,), (0,))), precision=PRECISION)
