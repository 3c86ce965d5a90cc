"""Forms in float32 and bfloat16: head, reductions, attention; and the compile time of a whole program."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tritgold_xla.kv_cache.base import KvCache
from tritgold_xla.layers import attention, lm_head
from tritgold_xla.layers.bfloat16_pieces import PIECES, added, pieces
from tritgold_xla.runtime.flags import PRECISION
from tritgold_xla.runtime.ieee import barrier, multiply, tree_max, tree_sum
from tritgold_xla.studies.study import Form

SEED = 159
SUMS = 1e-5  # tolerance of float32 sums in another order, relative to the largest result


def forms(vocab: int = 32_064, hidden: int = 2560, positions: int = 4096, layers: int = 12) -> Iterator[Form]:
    """All forms of this file. vocab: large enough that the head does not fit into a core's cache; positions: of a KV
    cache, an eighth of which is in use.
    """
    rng = np.random.default_rng(SEED)
    rows = jnp.asarray(rng.standard_normal((vocab, hidden), np.float32), jnp.bfloat16)
    x = rng.standard_normal((1, hidden), np.float32)
    yield Form(
        "head: bfloat16 rows, float32 activation", "rows converted to float32, float32 dot",
        "three bfloat16 pieces of the activation",
        lambda w, x: lax.dot_general(x, w.astype(jnp.float32), (((1,), (1,)), ((), ())), precision=PRECISION),
        lambda w, x: lm_head._head_left(x, w), (rows, x), vocab * hidden, tolerance=SUMS,
    )  # fmt: skip
    yield Form(
        "head: columns", "three", "four, one of them empty", lambda w, x: _pieces(w, x, 3),
        lambda w, x: _pieces(w, x, 4), (rows, x), vocab * hidden, tolerance=SUMS,
    )  # fmt: skip
    many = rng.standard_normal((32, hidden), np.float32)
    yield Form(
        "head: 32 tokens", "weights on the left", "weights on the right (the same bits)",
        lambda w, x: lm_head._head_left(x, w), lambda w, x: lm_head._head_right(x, w), (rows, many),
        32 * vocab * hidden,
    )  # fmt: skip
    yield Form(
        "head: float32 copy", "of the whole head", "of a block of rows at a time (where XLA has no bfloat16 kernels)",
        lambda w, x: lax.dot_general(x, w.astype(jnp.float32), (((1,), (1,)), ((), ())), precision=PRECISION),
        lambda w, x: lm_head._in_blocks(x, w), (rows, x), vocab * hidden, tolerance=SUMS,
    )  # fmt: skip
    scores = rng.standard_normal(4 * vocab, np.float32)
    yield Form(
        "greedy token: candidates", "`top_k`, whose last value is read", "the same after a barrier",
        lambda s: _candidates(lax.top_k(s, 256)), lambda s: _candidates(barrier(lax.top_k(s, 256))), (scores,),
    )  # fmt: skip
    wide = np.abs(rng.standard_normal((64, hidden), np.float32))
    yield Form(
        "sum of float32", "`sum(axis=-1)`", "by halves, element by element (`ieee.tree_sum`)",
        lambda x: x.sum(axis=-1), tree_sum, (wide,), tolerance=SUMS,
    )  # fmt: skip
    yield Form(
        "maximum of float32",
        "`max(axis=-1)`",
        "the same (`ieee.tree_max`)",
        lambda x: x.max(axis=-1),
        tree_max,
        (wide,),
    )
    yield from _attention(rng, positions)
    yield _layers(layers)


def _candidates(best: tuple[jax.Array, jax.Array]) -> jax.Array:
    """The rows above the least value (else -1), which reads a slice of the values."""
    values, rows = best
    return jnp.where(values > values[-1], rows, -1)


def _pieces(rows: jax.Array, x: jax.Array, count: int) -> jax.Array:
    """``lm_head._head_left`` with ``count`` columns."""
    empty = [jnp.zeros(x.shape, jnp.bfloat16)] * (count - PIECES)
    columns = barrier(jnp.concatenate([*pieces(x), *empty]))
    dots = lax.dot_general(rows, columns, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
    return added(*dots.T[:PIECES])[None]


def _attention(rng: np.random.Generator, positions: int) -> Iterator[Form]:
    """One token, 20 query heads on 5 key heads: an eighth of a float32 cache in use, and all of a bfloat16 one."""
    kv_heads, heads, head_dim = 5, 20, 128
    stored = [jnp.asarray(rng.standard_normal((1, kv_heads, positions, head_dim), np.float32)) for _ in range(2)]
    empty = jnp.zeros((1, kv_heads, positions, 0), jnp.float32)
    q, layer = rng.standard_normal((1, heads, head_dim), np.float32), jnp.int32(0)

    def whole(q: jax.Array, cache: KvCache, length: jax.Array) -> jax.Array:
        weights = attention.softmax_weights(q, cache.keys[0], length[None])
        return attention.mix_values(weights, cache.values[0])

    def in_parts(q: jax.Array, cache: KvCache, length: jax.Array) -> jax.Array:
        return attention.attend(q, cache, "f32", layer, length, length[None], kv_heads)

    arrays = q, KvCache(stored[0], stored[1], empty, empty), np.int32(positions // 8)
    yield Form(
        "attention, an eighth of the cache in use", "over the whole cache, masked", "a loop over the parts in use",
        whole, in_parts, arrays, tolerance=SUMS,
    )  # fmt: skip

    def loaded(q: jax.Array, cache: KvCache, length: jax.Array) -> jax.Array:
        return attention._attend_loaded(q, cache, "bf16", layer, length, length[None], kv_heads, 0, None)

    def as_stored(q: jax.Array, cache: KvCache, length: jax.Array) -> jax.Array:
        return attention._attend_stored(q, cache, layer, length, length[None], kv_heads, 0, None)

    narrow = [side.astype(jnp.bfloat16) for side in stored]
    yield Form(
        "attention on a bfloat16 cache", "parts of 64 converted to float32",
        "parts of 256 multiplied as they are, three bfloat16 pieces of the float32 side",
        loaded, as_stored, (q, KvCache(narrow[0], narrow[1], empty, empty), np.int32(positions)), tolerance=SUMS,
    )  # fmt: skip


def _layers(layers: int) -> Form:
    weights = np.random.default_rng(SEED).standard_normal((layers, 128, 128), np.float32) / 16
    x = np.ones((1, 128), np.float32)

    def layer(x: jax.Array, w: jax.Array) -> jax.Array:
        mixed = lax.dot_general(x, w, (((1,), (1,)), ((), ())), precision=PRECISION)
        return multiply(mixed, jnp.float32(1) / jnp.sqrt(tree_sum(jnp.square(mixed)))[:, None])

    def unrolled(x: jax.Array, w: jax.Array) -> jax.Array:
        for index in range(layers):
            x = layer(x, w[index])
        return x

    def scanned(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.scan(lambda x, w: (layer(x, w), None), x, w)[0]

    return Form(
        f"{layers} layers: compiling", "unrolled", "`lax.scan` over stacked weights", unrolled, scanned, (x, weights),
        compiles=True, tolerance=1e-4,
    )  # fmt: skip
