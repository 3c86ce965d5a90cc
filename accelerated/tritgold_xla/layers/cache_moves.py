"""Rows of the KV cache moved to other positions, keys turned: an approximation that is only made when asked for.

A key is turned by its position, so turning it on, or back, gives the key of the same activation at another position.
But above the first layer activations depend on all tokens before them, which at the other place are others.
"""

import jax
import jax.numpy as jnp
from jax import lax

from tritgold_xla.kv_cache.base import KvCache
from tritgold_xla.kv_cache.kv_scheme import kv_scheme
from tritgold_xla.layers.rotary import rotate
from tritgold_xla.runtime.flags import jit

PIECE = 64  # positions that one call moves at most


def _move(
    cache: KvCache, start: jax.Array, to: jax.Array, count: jax.Array, sequence: jax.Array, sin: jax.Array,
    cos: jax.Array, *, scheme: str, kv_heads: int,
) -> KvCache:  # fmt: skip
    """The cache with positions start to start + count - 1 of every layer at ``to`` and up; to <= start, count <= PIECE.

    sin, cos: float32 [positions, half], the rotation table. The cache is donated.
    """
    kind, layers = kv_scheme(scheme), cache.keys.shape[0]
    inside = (lax.iota(jnp.int32, PIECE) < count)[:, None]

    def part(array: jax.Array, at: jax.Array) -> jax.Array:
        size = (layers, kv_heads, PIECE, array.shape[3])
        return lax.dynamic_slice(array, (jnp.int32(0), sequence * kv_heads, at, jnp.int32(0)), size)

    def put(array: jax.Array, rows: jax.Array) -> jax.Array:
        kept = jnp.where(inside, rows, part(array, to))
        return lax.dynamic_update_slice(array, kept, (jnp.int32(0), sequence * kv_heads, to, jnp.int32(0)))

    rows = kind.load(part(cache.keys, start), part(cache.key_scales, start))
    flat = rows.reshape(-1, 1, rows.shape[-1])
    back = [jnp.broadcast_to(table[start - to], (flat.shape[0], table.shape[1])) for table in (-sin, cos)]
    keys, scales = kind.store(rotate(flat, *back).reshape(rows.shape))
    return KvCache(
        put(cache.keys, keys),
        put(cache.values, part(cache.values, start)),
        put(cache.key_scales, scales) if kind.scales else cache.key_scales,
        put(cache.value_scales, part(cache.value_scales, start)) if kind.scales else cache.value_scales,
    )


move = jit(_move, static=("scheme", "kv_heads"), donate=("cache",))
