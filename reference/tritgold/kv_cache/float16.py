"""float16: llama.cpp's default."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tritgold.kv_cache.base import KvShape, Side, as_half
from tritgold.kv_cache.token_rows import TokenScheme


@dataclass(frozen=True)
class F16(TokenScheme):
    """Two bytes per value, little-endian, rounded half to even; subnormal numbers are kept.

    A magnitude of 65520 or more would become infinity, with which engines compute NaN; it is refused.

    >>> F16().store(np.array([[[1.0, -2.0]]], np.float32)).tolist()
    [[0, 60, 0, 192]]
    """

    name: ClassVar[str] = "f16"

    def row_bytes(self, shape: KvShape, side: Side = "k") -> int:
        """Two bytes per value."""
        return 2 * shape.kv_heads * shape.head_dim

    def _encode(self, x: np.ndarray, layer: int, side: Side) -> np.ndarray:
        return as_half(x).reshape(x.shape[0], x.shape[1] * x.shape[2]).view(np.uint8)

    def _decode(self, rows: np.ndarray, shape: KvShape, layer: int, side: Side) -> np.ndarray:
        return rows.view("<f2").astype(np.float32)
