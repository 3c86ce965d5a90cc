"""What llama.cpp's block formats share: 32 consecutive values, one or two float16 numbers, integer codes.

A block is 32 consecutive values of one token's row of kv_heads * head_dim values, as in llama.cpp's K and V caches
(``-ctk``, ``-ctv``); it may span heads. Codes are made with the unrounded scale d; values are read with d as float16.

The formulas are those of ggml ``ggml-quants.c`` (``quantize_row_*_ref``), step by step in float32. If 1/d overflows
(all values of the block below about 2e-38), the codes are undefined in C; here they are those of zeros. It makes no
difference, because d is 0 as float16.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tritgold.kv_cache.base import KvShape, Side
from tritgold.kv_cache.token_rows import TokenScheme

BLOCK = 32


@dataclass(frozen=True)
class BlockScheme(TokenScheme):
    """A row is whole blocks. block_bytes: bytes of a block of 32 values."""

    block_bytes: ClassVar[int]

    def row_bytes(self, shape: KvShape, side: Side = "k") -> int:
        """kv_heads * head_dim / 32 blocks; must be a whole number."""
        width = shape.kv_heads * shape.head_dim
        if width % BLOCK:
            raise self.no_such_shape(shape, f"kv_heads * head_dim a multiple of {BLOCK}; {width} is not")
        return width // BLOCK * self.block_bytes

    def _encode(self, x: np.ndarray, layer: int, side: Side) -> np.ndarray:
        blocks = x.size // BLOCK
        packed = self.pack(x.reshape(blocks, BLOCK))
        return packed.reshape(x.shape[0], x.shape[1] * x.shape[2] // BLOCK * self.block_bytes)

    def _decode(self, rows: np.ndarray, shape: KvShape, layer: int, side: Side) -> np.ndarray:
        return self.unpack(rows.reshape(rows.size // self.block_bytes, self.block_bytes))

    @abstractmethod
    def pack(self, x: np.ndarray) -> np.ndarray:
        """float32 [blocks, 32] -> uint8 [blocks, block_bytes]."""

    @abstractmethod
    def unpack(self, blocks: np.ndarray) -> np.ndarray:
        """uint8 [blocks, block_bytes] -> float32 [blocks, 32]."""


def signed_extreme(x: np.ndarray) -> np.ndarray:
    """The value with the largest magnitude of each block, with its sign; the first if several: [blocks, 1]."""
    return np.take_along_axis(x, np.argmax(np.abs(x), axis=1)[:, None], axis=1)


def finite_quotient(numerator: int, d: np.ndarray) -> np.ndarray:
    """numerator / d in float32; 0 where the result is not finite."""
    with np.errstate(divide="ignore", over="ignore"):
        quotient = np.float32(numerator) / d
    return np.where(np.isfinite(quotient), quotient, np.float32(0))


def to_codes(x: np.ndarray, inverse: np.ndarray, offset: float, top: int, fused: bool = False) -> np.ndarray:
    """min(top, trunc(x * inverse + offset)) as uint8; at least 0. fused: round only once, after the sum."""
    total = multiply_add(x, inverse, offset) if fused else x * inverse + np.float32(offset)
    return np.clip(np.trunc(total), 0, top).astype(np.uint8)


def multiply_add(a: np.ndarray, b: np.ndarray, c: float) -> np.ndarray:
    """a * b + c of float32 numbers, rounded once, as a fused multiply-add does.

    In float64 the product is exact, but the sum may need more than 53 bits. It is rounded to odd (the last bit of an
    inexact sum is 1), so that the rounding to float32 still knows on which side of a midpoint the sum is.

    The float32 nearest to 1/3 is a little more than 1/3. Three times that rounds to 1, and the excess is lost:

    >>> x = np.array([1 / 3], np.float32)
    >>> bool(multiply_add(x, np.float32(3), -1.0)[0] > 0), bool(x[0] * np.float32(3) - np.float32(1) > 0)
    (True, False)
    """
    product = np.multiply(a, b, dtype=np.float64)
    total = product + c
    back = total - product
    error = (product - (total - back)) + (c - back)  # exact (Knuth's two-sum)
    even = (total.view(np.int64) & 1) == 0
    odd = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    return np.where((error != 0) & even, odd, total).astype(np.float32)


def pack_nibbles(codes: np.ndarray) -> np.ndarray:
    """uint8 [blocks, 32] below 16 -> [blocks, 16]: byte j is code j (low nibble) and code j + 16 (high nibble)."""
    return codes[:, :16] | codes[:, 16:] << np.uint8(4)


def unpack_nibbles(packed: np.ndarray) -> np.ndarray:
    """The inverse of ``pack_nibbles``."""
    return np.concatenate([packed & np.uint8(15), packed >> np.uint8(4)], axis=1)


def read_half(blocks: np.ndarray, at: int) -> np.ndarray:
    """float32 [blocks, 1]: the float16 in bytes ``at`` and ``at + 1`` of each block."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)
