"""The exact KV cache: keys after RoPE and values as float32, nothing rounded."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tritgold.kv_cache.base import EXACT, KvCache, KvShape, Side
from tritgold.kv_cache.token_rows import TokenScheme


class Float32Cache(KvCache):
    """Keys and values as float32, unchanged, including infinity and NaN."""

    def __init__(self, config: KvShape, capacity: int) -> None:
        super().__init__(EXACT, config, capacity)
        shape = (config.layers, capacity, config.kv_heads, config.head_dim)
        self._keys, self._values = np.zeros(shape, np.float32), np.zeros(shape, np.float32)

    def append(self, layer: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Store k and v, float32 [tokens, kv_heads, head_dim]; return all keys and values of the layer so far.

        Raises ContextError as ``check_pass`` does; then nothing is overwritten.
        """
        self.check_pass(layer, k, v)
        end = self.length + k.shape[0]
        self._keys[layer, self.length : end] = k
        self._values[layer, self.length : end] = v
        return self._keys[layer, :end], self._values[layer, :end]


@dataclass(frozen=True)
class F32(TokenScheme):
    """Four bytes per value, little-endian. Its cache is the golden one; its rows of bytes are for paged storage."""

    name: ClassVar[str] = EXACT

    def row_bytes(self, shape: KvShape, side: Side = "k") -> int:
        """Four bytes per value."""
        return 4 * shape.kv_heads * shape.head_dim

    def cache(self, shape: KvShape, capacity: int) -> Float32Cache:
        """The golden cache, which stores float32 arrays, not rows of bytes."""
        return Float32Cache(shape, capacity)

    def _encode(self, x: np.ndarray, layer: int, side: Side) -> np.ndarray:
        return x.astype("<f4").reshape(x.shape[0], x.shape[1] * x.shape[2]).view(np.uint8)

    def _decode(self, rows: np.ndarray, shape: KvShape, layer: int, side: Side) -> np.ndarray:
        return rows.view("<f4").astype(np.float32)
