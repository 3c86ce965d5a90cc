"""The KV cache on the device: ``capacity`` positions of every layer, allocated once and written in place.

Several sequences are concatenated along the heads: the first has heads 0 to kv_heads - 1, the second the next kv_heads.

The engine, not the cache, knows how many positions are filled. What stands after them never has an effect.
"""

from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Sharding

from tritgold.config import ModelConfig
from tritgold_xla.kv_cache.kv_scheme import kv_scheme
from tritgold_xla.runtime.chunks import CHUNKS

# Positions that attention reads at once, for a chunk of tokens and for one token: the float32 copy must fit into a
# core's cache. One token uses each number only once, so the unused rest of the last part matters more: a smaller part.
# PART_AS_STORED: of a bfloat16 cache, which one token reads without a float32 copy, as far as whole parts are filled.
PART, PART_OF_ONE, PART_AS_STORED = 128, 64, 256


class KvCache(NamedTuple):
    """Keys (after RoPE), values and their scales, [layers, sequences * kv_heads, positions, head_dim or scales].

    positions: the capacity plus one chunk, rounded up to a multiple of PART, so that a padded chunk and a part of PART
    positions always fit: otherwise ``dynamic_update_slice`` would shift them down over rows that are in use.
    """

    keys: jax.Array
    values: jax.Array
    key_scales: jax.Array
    value_scales: jax.Array

    @property
    def positions(self) -> int:
        """Positions of a layer, padding included."""
        return self.keys.shape[2]


class ExtendedCache(Protocol):
    """The result of a program that has written to the cache; finite: bool []."""

    @property
    def cache(self) -> KvCache:
        """The given cache, extended."""

    @property
    def finite(self) -> Any:
        """Whether every activation was finite."""


Extended = TypeVar("Extended", bound=ExtendedCache)


def positions(capacity: int) -> int:
    """The number of positions that a cache of capacity ``capacity`` allocates.

    >>> positions(128), positions(129)
    (256, 384)
    """
    return -(-(capacity + CHUNKS[-1]) // PART) * PART


def cache_bytes(config: ModelConfig, capacity: int, scheme: str, sequences: int = 1) -> int:
    """Bytes of a whole cache, padding included."""
    row = kv_scheme(scheme).row_bytes(config.head_dim)
    return 2 * config.layers * sequences * config.kv_heads * positions(capacity) * row


def new_cache(
    config: ModelConfig, capacity: int, device: jax.Device | Sharding, scheme: str = "f32", sequences: int = 1
) -> KvCache:
    """An empty cache, on a device or over several.

    Each array has its own buffer, because the cache is donated and a buffer can be donated once.
    """
    kind = kv_scheme(scheme)
    shape = (config.layers, sequences * config.kv_heads, positions(capacity))

    def side() -> tuple[jax.Array, jax.Array]:
        stored = jnp.zeros((*shape, config.head_dim), kind.dtype, device=device)
        return stored, jnp.zeros((*shape, kind.scales), jnp.float32, device=device)

    (keys, key_scales), (values, value_scales) = side(), side()
    return KvCache(keys, values, key_scales, value_scales)


def append(
    cache: KvCache,
    scheme: str,
    layer: jax.Array,
    start: jax.Array,
    k: jax.Array,
    v: jax.Array,
    sequence: jax.Array | int = 0,
) -> KvCache:
    """The cache with k and v, float32 [tokens, kv_heads, head_dim], written to one layer from position ``start`` on.

    The chunk's padding is written too, after the last valid position; the next chunk overwrites it.
    """
    kind, at = kv_scheme(scheme), (layer, sequence * k.shape[1], start, 0)

    def put(stored: jax.Array, scales: jax.Array, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
        new, new_scales = kind.store(rows.transpose(1, 0, 2))
        stored = lax.dynamic_update_slice(stored, new[None], at)
        return stored, lax.dynamic_update_slice(scales, new_scales[None], at) if kind.scales else scales

    keys, key_scales = put(cache.keys, cache.key_scales, k)
    values, value_scales = put(cache.values, cache.value_scales, v)
    return KvCache(keys, values, key_scales, value_scales)


def read(
    cache: KvCache,
    scheme: str,
    layer: jax.Array,
    first: jax.Array,
    size: int,
    length: jax.Array,
    kv_heads: int,
    sequence: jax.Array | int = 0,
) -> tuple[jax.Array, jax.Array]:
    """Keys and values of one layer, positions first to first + size - 1, float32 [kv_heads, size, head_dim].

    Zero from ``length`` on: a refused prompt may have left NaN there, and a weight of 0 times NaN is NaN.
    """
    kind = kv_scheme(scheme)
    filled = (first + lax.iota(jnp.int32, size) < length)[:, None]
    stored = stored_part(cache, layer, first, size, kv_heads, sequence)

    def loaded(rows: jax.Array, scales: jax.Array) -> jax.Array:
        return jnp.where(filled, kind.load(rows, scales), jnp.float32(0))

    return loaded(stored.keys, stored.key_scales), loaded(stored.values, stored.value_scales)


def stored_part(
    cache: KvCache,
    layer: jax.Array,
    first: jax.Array,
    size: int,
    kv_heads: int,
    sequence: jax.Array | int = 0,
) -> KvCache:
    """What the cache holds of these positions of one layer, in its own dtype, filled or not: [kv_heads, size, ...]."""

    def part(array: jax.Array) -> jax.Array:
        size_of = (1, kv_heads, size, array.shape[3])
        return lax.dynamic_slice(array, (layer, sequence * kv_heads, first, 0), size_of)[0]

    return KvCache(*map(part, cache))


def append_each(
    cache: KvCache, scheme: str, layer: jax.Array, positions: jax.Array, k: jax.Array, v: jax.Array
) -> KvCache:
    """The cache with k and v, float32 [sequences, kv_heads, head_dim]: one row per sequence, at its own position."""

    def one(sequence: jax.Array, cache: KvCache) -> KvCache:
        own_k, own_v = (lax.dynamic_slice_in_dim(of_all, sequence, 1) for of_all in (k, v))
        return append(cache, scheme, layer, positions[sequence], own_k, own_v, sequence)

    return lax.fori_loop(0, k.shape[0], one, cache)
