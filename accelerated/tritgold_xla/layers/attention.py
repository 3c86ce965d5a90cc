"""Grouped-query attention on a preallocated cache: in traced steps, and faster over parts of the cache.

The parts are float32 copies or, of a bfloat16 cache that one token reads, multiplied as they are stored.

``ends`` is for every token the number of positions it sees, 0 to ends - 1: for causal attention, or for blocks that
see all of themselves. Query head h reads key head h // (heads / kv_heads).
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Float32, Int32

from tritgold_xla.kv_cache import base as kv_cache
from tritgold_xla.kv_cache.base import PART, PART_AS_STORED, PART_OF_ONE, KvCache
from tritgold_xla.kv_cache.kv_scheme import kv_scheme
from tritgold_xla.layers.bfloat16_pieces import PIECES, added, pieces
from tritgold_xla.runtime.flags import PRECISION
from tritgold_xla.runtime.ieee import barrier, divide, multiply, rounded, tree_max, tree_sum
from tritgold_xla.ternary_matmul.choose import library_dots

# Of the parts so far: the largest score, the sum of the powers, the sum of the values [kv_heads, rows, head_dim].
Sums = tuple[jax.Array, jax.Array, jax.Array]


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
    Each part has its own maximum; earlier sums are rescaled to the larger one (arXiv 2205.14135). A bfloat16 cache is
    multiplied as it is stored where there is one token and the library has a product of bfloat16, else as float32.
    """
    where = layer, length, ends, kv_heads, sequence, begins
    if q.shape[0] == 1 and kv_scheme(scheme).dtype == jnp.bfloat16 and library_dots():
        return _attend_stored(q, cache, *where)
    return _attend_loaded(q, cache, scheme, *where)


def _attend_loaded(
    q: jax.Array, cache: KvCache, scheme: str, layer: jax.Array, length: jax.Array, ends: jax.Array, kv_heads: int,
    sequence: jax.Array | int, begins: jax.Array | None,
) -> jax.Array:  # fmt: skip
    """``attend`` on float32 copies of the parts."""
    tokens, heads, _ = q.shape
    grouped = _grouped(q, kv_heads)
    groups = grouped.shape[1] // tokens
    seen, since = _repeated(ends, groups), None if begins is None else _repeated(begins, groups)
    size = PART_OF_ONE if tokens == 1 else PART

    def part(index: jax.Array, so_far: Sums) -> Sums:
        keys, values = kv_cache.read(cache, scheme, layer, index * size, size, length, kv_heads, sequence)
        positions = index * size + lax.iota(jnp.int32, size)
        visible = positions < seen if since is None else (positions < seen) & (positions >= since)
        return _with_part(so_far, _scores(grouped, keys), visible, lambda powers: _mix(powers, values))

    first = _first_part(begins, size)
    _, total, mixed = lax.fori_loop(first, (length + size - 1) // size, part, _no_sums(grouped, begins))
    return _ungrouped(divide(mixed, total), heads, tokens)


def _attend_stored(
    q: jax.Array, cache: KvCache, layer: jax.Array, length: jax.Array, ends: jax.Array, kv_heads: int,
    sequence: jax.Array | int, begins: jax.Array | None,
) -> jax.Array:  # fmt: skip
    """``attend`` for one token, on a bfloat16 cache that is multiplied as it is.

    As many filled parts of PART_AS_STORED as there are, then smaller ones. Keys and values are the left and the right
    operand as they lie in the cache: with values as a transposed left operand a layer takes three times as long. An
    infinite key or value gives NaN, also where float32 would give 0 or infinity.
    """
    grouped = _grouped(q, kv_heads)
    queries = barrier(jnp.concatenate(pieces(grouped), axis=1))

    def part(first: jax.Array, size: int, filled: bool, so_far: Sums) -> Sums:
        stored = kv_cache.stored_part(cache, layer, first, size, kv_heads, sequence)
        positions = first + lax.iota(jnp.int32, size)
        visible = positions < ends if begins is None else (positions < ends) & (positions >= begins)
        values = stored.values
        if not filled:  # a weight of 0 times NaN is NaN; as integers, which the compiler selects faster
            bits = lax.bitcast_convert_type(values, jnp.uint16)
            values = lax.bitcast_convert_type(jnp.where((positions < length)[:, None], bits, 0), jnp.bfloat16)
        dots = lax.dot_general(stored.keys, queries, (((2,), (2,)), ((0,), (0,))), preferred_element_type=jnp.float32)
        scores = added(*jnp.split(dots, PIECES, axis=2)).transpose(0, 2, 1)

        def mix(powers: jax.Array) -> jax.Array:
            weights = barrier(jnp.concatenate(pieces(powers), axis=1))
            dots = lax.dot_general(weights, values, (((2,), (1,)), ((0,), (0,))), preferred_element_type=jnp.float32)
            return added(*jnp.split(dots, PIECES, axis=1))

        return _with_part(so_far, _scaled(scores, q.shape[2]), visible, mix)

    def in_parts(size: int, begin: jax.Array, end: jax.Array, filled: bool, so_far: Sums) -> Sums:
        """The positions of the parts begin to end - 1, each of ``size``."""
        return lax.fori_loop(begin, end, lambda index, sums: part(index * size, size, filled, sums), so_far)

    sums, rest = _no_sums(grouped, begins), _first_part(begins, PART_OF_ONE)
    # Of a cache of one such part, the compiler would read it outside the loop, even if the loop never runs.
    if cache.positions > PART_AS_STORED:
        whole = length // PART_AS_STORED
        sums = in_parts(PART_AS_STORED, _first_part(begins, PART_AS_STORED), whole, True, sums)
        rest = jnp.maximum(whole * (PART_AS_STORED // PART_OF_ONE), rest)
    _, total, mixed = in_parts(PART_OF_ONE, rest, (length + PART_OF_ONE - 1) // PART_OF_ONE, False, sums)
    return _ungrouped(divide(mixed, total), q.shape[1], 1)


def _no_sums(grouped: jax.Array, begins: jax.Array | None) -> Sums:
    """The sums before any part. Every token sees position 0, so the first part leaves no maximum at the -inf that this
    one begins with; with a window it may see none of a part, and -inf less -inf is NaN.
    """
    shape = (*grouped.shape[:2], 1)
    lowest = -jnp.inf if begins is None else float(np.finfo(np.float32).min)
    return jnp.full(shape, lowest), jnp.zeros(shape), jnp.zeros(grouped.shape)


def _first_part(begins: jax.Array | None, size: int) -> jax.Array:
    return jnp.int32(0) if begins is None else jnp.maximum(begins.min(), 0) // size


def _with_part(so_far: Sums, scores: jax.Array, visible: jax.Array, mix: Callable[[jax.Array], jax.Array]) -> Sums:
    """The sums with one part more; mix: of its powers with its values."""
    largest, total, mixed = so_far
    scores = jnp.where(visible, scores, -jnp.inf)
    larger = jnp.maximum(largest, tree_max(scores)[:, :, None])
    powers, kept = jnp.exp(scores - larger), jnp.exp(largest - larger)
    total = multiply(total, kept) + tree_sum(powers)[:, :, None]
    return larger, total, multiply(mixed, kept) + mix(powers)


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

    A loop over the sequences: the cost is proportional to each length, and a part stays in a core's cache.
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
    return _scaled(scores, keys.shape[2])


def _scaled(scores: jax.Array, head_dim: int) -> jax.Array:
    return multiply(scores, jnp.float32(1 / math.sqrt(head_dim)))


def _mix(weights: jax.Array, values: jax.Array) -> jax.Array:
    return lax.dot_general(weights, values, (((2,), (1,)), ((0,), (0,))), precision=PRECISION)
