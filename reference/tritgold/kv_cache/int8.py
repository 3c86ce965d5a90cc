"""int8 with a scale for each token and head."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tritgold.kv_cache.base import KvShape, Side
from tritgold.kv_cache.token_rows import TokenScheme


@dataclass(frozen=True)
class Int8(TokenScheme):
    """Symmetric, a byte per value, with a float32 scale for each token and head.

    ::

        s = f32(max|x| / 127);  code = clamp(half_even(f32(x / s)), -127, 127);  value = f32(code * s)
        row: all codes, head by head, then the scales of the heads, little-endian

    A head of zeros has scale 0 and codes 0, and so has a head whose values are all below 9e-44: its scale is too small
    for float32.

    >>> row = Int8().store(np.array([[[127.0, 0.5, 1.5, -127.0]]], np.float32))
    >>> row.view(np.int8)[0, :4].tolist(), row[:, 4:].view("<f4").tolist()
    ([127, 0, 2, -127], [[1.0]])
    """

    name: ClassVar[str] = "int8"

    def row_bytes(self, shape: KvShape, side: Side = "k") -> int:
        """One byte per value and four per head."""
        return shape.kv_heads * (shape.head_dim + 4)

    def _encode(self, x: np.ndarray, layer: int, side: Side) -> np.ndarray:
        tokens, heads, width = x.shape
        scale = np.abs(x).max(axis=2, keepdims=True) / np.float32(127)
        codes = np.rint(x / np.where(scale == 0, np.float32(np.inf), scale))
        codes = np.clip(codes, -127, 127).astype(np.int8)
        parts = codes.reshape(tokens, heads * width).view(np.uint8), scale.astype("<f4")[:, :, 0].view(np.uint8)
        return np.concatenate(parts, axis=1)

    def _decode(self, rows: np.ndarray, shape: KvShape, layer: int, side: Side) -> np.ndarray:
        tokens, width = rows.shape[0], shape.kv_heads * shape.head_dim
        codes = rows[:, :width].view(np.int8).astype(np.float32).reshape(tokens, shape.kv_heads, shape.head_dim)
        return codes * np.ascontiguousarray(rows[:, width:]).view("<f4").astype(np.float32)[:, :, None]
