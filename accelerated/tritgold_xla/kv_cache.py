"""The KV cache on the device: room for ``capacity`` positions of every layer, float32, allocated once.

How many positions are filled is the engine's knowledge, not the cache's. Whatever stands behind them is never read.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from tritgold.config import ModelConfig


class KvCache(NamedTuple):
    """Keys (after RoPE) and values, float32 [layers, capacity, kv_heads, head_dim]."""

    keys: jax.Array
    values: jax.Array

    @property
    def capacity(self) -> int:
        """Positions of a layer."""
        return self.keys.shape[1]


def new_cache(config: ModelConfig, capacity: int, device: jax.Device) -> KvCache:
    """An empty cache. Two buffers, because the cache is donated and one buffer cannot be given away twice."""
    shape = (config.layers, capacity, config.kv_heads, config.head_dim)
    return KvCache(jnp.zeros(shape, jnp.float32, device=device), jnp.zeros(shape, jnp.float32, device=device))


def append(cache: KvCache, layer: jax.Array, start: jax.Array, count: jax.Array, k: jax.Array, v: jax.Array) -> KvCache:
    """The cache with k and v, float32 [tokens, kv_heads, head_dim], at start to start + count - 1 of one layer.

    The padding behind ``count`` is dropped, row by row. A block write would move a chunk that reaches beyond the
    capacity down over rows that are in use: ``dynamic_update_slice`` clamps its start.
    """
    token = lax.iota(jnp.int32, k.shape[0])
    rows = jnp.where(token < count, start + token, cache.capacity)
    return KvCache(
        cache.keys.at[layer, rows].set(k, mode="drop"),
        cache.values.at[layer, rows].set(v, mode="drop"),
    )


def read(cache: KvCache, layer: jax.Array, length: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Keys and values of one layer, float32 [kv_heads, capacity, head_dim]; zero from ``length`` on.

    Zero, because a weight of exactly 0 does not hide the NaN that a refused prompt may have left behind.
    """
    filled = (lax.iota(jnp.int32, cache.capacity) < length)[:, None, None]

    def one(rows: jax.Array) -> jax.Array:
        kept = jnp.where(filled, lax.dynamic_index_in_dim(rows, layer, axis=0, keepdims=False), jnp.float32(0))
        return kept.transpose(1, 0, 2)

    return one(cache.keys), one(cache.values)
