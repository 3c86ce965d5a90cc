"""Codes of 2 to 8 bits with a scale and a zero point for each head (or token), as QuaRot quantises its KV cache.

Source: QuaRot (arXiv 2404.00456), spcl/QuaRot ``fake_quant/quant_utils.py`` (ActQuantizer). There scale and zero point
keep the model's float type; here they are stored as float16 and a byte, and codes are made with the stored scale.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from tritgold.kv_cache.base import KvShape, Side, as_half
from tritgold.kv_cache.bit_packing import pack_codes, packed_bytes, unpack_codes
from tritgold.kv_cache.token_rows import TokenScheme
from tritgold.option_values import is_count, real_number


@dataclass(frozen=True)
class Affine(TokenScheme):
    """One scale s for each head of a token, or for each whole token (``per``).

    ::

        asymmetric: low = min(x, 0) * clip, high = max(x, 0) * clip, s = half((high - low) / (2**bits - 1)),
                    z = half_even(-low / s), code = clamp(half_even(x / s) + z, 0, 2**bits - 1), value = (code - z) * s
        symmetric:  s = half(max|x| * clip / (2**(bits-1) - 1)), code = clamp(half_even(x / s), -2**(bits-1),
                    2**(bits-1) - 1), value = code * s; stored with 2**(bits-1) added
        a row, for each head: packed codes, s as float16, and, if asymmetric, z as a byte

    Zero is always representable, so zeros stay zeros. If s would be 0 (only zeros, or values below 1e-7), the s of
    [-1, 1] is used. clip: below 1, the largest values are clipped and all others get finer steps.

    >>> from tritgold.kv_cache.base import Sizes
    >>> row = Affine(bits=4).store(np.array([[[0, 15, 7.5, 3]]], np.float32))
    >>> row.tolist(), Affine(bits=4).load(row, Sizes(1, 1, 4)).tolist()  # s = 1, z = 0
    ([[240, 56, 0, 60, 0]], [[[0.0, 15.0, 8.0, 3.0]]])
    """

    name: ClassVar[str] = "affine"
    bits: int = 4
    symmetric: bool = False
    clip: float = 1.0
    per: Literal["head", "token"] = "head"

    def __post_init__(self) -> None:
        if not is_count(self.bits, 2, 8):
            raise self.no_such_option("bits", "2 to 8")
        if not 0 < real_number(self.clip) <= 1:
            raise self.no_such_option("clip", "above 0, at most 1")
        if self.per not in ("head", "token"):
            raise self.no_such_option("per", "head or token")

    def row_bytes(self, shape: KvShape, side: Side = "k") -> int:
        """Codes and their scales; the codes of each group are padded to whole bytes."""
        groups, width = self._groups(shape.kv_heads, shape.head_dim)
        return groups * self._group_bytes(width)

    def _groups(self, kv_heads: int, head_dim: int) -> tuple[int, int]:
        return (kv_heads, head_dim) if self.per == "head" else (1, kv_heads * head_dim)

    def _group_bytes(self, width: int) -> int:
        return packed_bytes(width, self.bits) + (2 if self.symmetric else 3)

    def _encode(self, x: np.ndarray, layer: int, side: Side) -> np.ndarray:
        groups, width = self._groups(*x.shape[1:])
        x = x.reshape(x.shape[0], groups, width)
        clip, top = np.float32(self.clip), (1 << self.bits) - 1
        if self.symmetric:
            scale = self._scale(np.abs(x).max(axis=2, keepdims=True) * clip, top // 2)
            zero = np.full(scale.shape, 1 << self.bits - 1, np.float32)
        else:
            low = np.minimum(x.min(axis=2, keepdims=True), 0) * clip
            with np.errstate(over="ignore"):  # an infinite spread gives an infinite scale, which is refused
                scale = self._scale(np.maximum(x.max(axis=2, keepdims=True), 0) * clip - low, top)
            zero = np.minimum(np.rint(-low / scale), top)  # a subnormal s can be too small by a third
        codes = np.clip(np.rint(x / scale) + zero, 0, top).astype(np.uint8)
        parts = [pack_codes(codes, self.bits), scale.astype("<f2").view(np.uint8), zero.astype(np.uint8)]
        packed = np.concatenate(parts[:2] if self.symmetric else parts, axis=2)
        return packed.reshape(x.shape[0], groups * self._group_bytes(width))

    @staticmethod
    def _scale(spread: np.ndarray, steps: int) -> np.ndarray:
        """spread / steps, rounded to float16, as float32; 2 / steps instead of 0."""
        scale = as_half(spread / np.float32(steps)).astype(np.float32)
        return np.where(scale == 0, np.float32(np.float16(2 / steps)), scale)

    def _decode(self, rows: np.ndarray, shape: KvShape, layer: int, side: Side) -> np.ndarray:
        groups, width = self._groups(shape.kv_heads, shape.head_dim)
        packed = rows.reshape(rows.shape[0], groups, self._group_bytes(width))
        end = packed_bytes(width, self.bits)
        codes = unpack_codes(packed[:, :, :end], self.bits, width).astype(np.float32)
        scale = np.ascontiguousarray(packed[:, :, end : end + 2]).view("<f2").astype(np.float32)
        zero = np.float32(1 << self.bits - 1) if self.symmetric else packed[:, :, end + 2 :].astype(np.float32)
        return (codes - zero) * scale
