"""Q2_0 and Q1_0 (GGUF types 42 and 41): a float16 scale, then the weights of its block in order.

Source: ggml ``ggml-quants.c`` (quantize_row_q1_0_ref, quantize_row_q2_0_ref; 2026), PrismML's llama.cpp.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tritgold.errors import PackingError
from tritgold.formats.packings.packing_base import Bytes, Packing, check_option
from tritgold.formats.packings.scale_fields import float16_scales


class _ScaleFirst(Packing):
    """Blocks of consecutive columns: the scale d as little-endian float16, then the block's weights."""

    stores_scale: ClassVar[bool] = True

    bits: ClassVar[int]
    block: int

    @property
    def _bytes(self) -> int:
        """Bytes of a block, scale included."""
        return 2 + self.block * self.bits // 8

    def packed_size(self, shape: tuple[int, ...]) -> int:
        """out * in / block * bytes of a block; in must be a multiple of the block, because rows are never padded."""
        shape = self._sizes(shape)
        if shape[1] % self.block:
            raise self._no_such_shape(shape, f"rows that are a multiple of {self.block}; {shape[1]} is not")
        return shape[0] * shape[1] // self.block * self._bytes

    def byte_of(self, row: int, column: int, shape: tuple[int, int]) -> int:
        """(i // block) * bytes of a block + 2 + (i % block) * bits // 8, with the flat index i = row * in + column."""
        block, place = divmod(row * shape[1] + column, self.block)
        return self._bytes * block + 2 + place * self.bits // 8

    def _bytes_of_row(self, columns: int) -> int | None:
        return columns // self.block * self._bytes

    def scales(self, data: Bytes, shape: tuple[int, int]) -> np.ndarray:
        """d of each block, float32 [out, in / block]."""
        blocks = self._checked(data, shape).reshape(-1, self._bytes)
        return np.ascontiguousarray(blocks[:, :2]).view("<f2").astype(np.float32).reshape(shape[0], -1)

    def _payload(self, data: np.ndarray) -> np.ndarray:
        return data.reshape(-1, self._bytes)[:, 2:]

    def _with_scales(self, payload: np.ndarray, d: np.ndarray) -> bytes:
        return np.concatenate([d.reshape(-1, 1).view(np.uint8), payload], axis=1).tobytes()


@dataclass(frozen=True)
class Q20(_ScaleFirst):
    """Blocks of a scale and weights; each byte holds four consecutive weights, least significant pair first.

    ::

        bytes 0, 1: d, little-endian float16, multiplies
        byte 2 + i, bits  7 6     5 4     3 2     1 0
        weight            4i + 3  4i + 2  4i + 1  4i        code 0 1 2 = trit -1 0 +1

    block: 64 weights = 18 bytes, in ggml; or 128 = 34 bytes, in PrismML's files from before ggml had the type, with
    the same type number 42 (now 142, PQ2_0). ggml's kernels read code 3 as +2d; here it is refused.

    >>> Q20().pack(np.array([[1, -1] + [0] * 62], np.int8), 0.5).hex()
    '003852555555555555555555555555555555'
    """

    name: ClassVar[str] = "q2_0"
    bits: ClassVar[int] = 2
    block: int = 64

    def __post_init__(self) -> None:
        check_option(self.name, "block", self.block, (64, 128))

    def _encode(self, codes: np.ndarray, scale: np.ndarray) -> bytes:
        d = float16_scales(self.name, scale, (codes.shape[0], codes.shape[1] // self.block))
        g = codes.reshape(-1, self.block // 4, 4)
        return self._with_scales(g[:, :, 0] | g[:, :, 1] << 2 | g[:, :, 2] << 4 | g[:, :, 3] << 6, d)

    def _decode(self, data: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        pairs = self._payload(data)[:, :, None] >> np.array([0, 2, 4, 6], np.uint8)
        return (pairs & 3).reshape(shape)


class Q10(_ScaleFirst):
    """One bit per weight, blocks of 128 weights = 18 bytes: bit 1 is +d, bit 0 is -d, and there is no zero.

    ::

        bytes 0, 1: d, little-endian float16, multiplies
        byte 2 + i, bit  7       6  ...  0
        weight          8i + 7     ...   8i

    Every bit pattern is valid. Zeros are possible only as a block of 128 zeros: d = 0 and, as ggml writes it, all bits
    1; it unpacks to zero trits with a scale of 0. ``pack`` refuses a 0 in any other block (PackingError
    ``zero-trit``), which ggml's quantiser would make +d, and a scale of 0 for trits that are not zero
    (``scale-zero``).

    >>> Q10().pack(np.array([[1, -1] + [1] * 126], np.int8), 1.0)[:4].hex()
    '003cfdff'
    """

    name: ClassVar[str] = "q1_0"
    bits: ClassVar[int] = 1
    block = 128

    def _count_invalid(self, data: np.ndarray, shape: tuple[int, int]) -> int:
        return 0

    def _encode(self, codes: np.ndarray, scale: np.ndarray) -> bytes:
        blocks = codes.reshape(codes.shape[0], -1, 128)
        zero = (blocks == 1).all(axis=2)
        if ((blocks == 1) & ~zero[:, :, None]).any():
            row, block, place = np.argwhere((blocks == 1) & ~zero[:, :, None])[0].tolist()
            raise PackingError(
                f"q1_0 has no zero, and the trit at [{row}, {128 * block + place}] is one among others",
                kind="zero-trit",
                got=0,
                expected="-1 or +1, or a block of 128 zeros",
                hint="a ternary matrix with zeros needs a 2-bit or base-3 format: q2_0, tq1_0, tq2_0",
            )
        d = np.where(zero, np.float16(0), float16_scales(self.name, scale, zero.shape)).astype("<f2")
        if ((d == 0) & ~zero).any():
            raise PackingError("q1_0: a scale of 0 would erase trits", kind="scale-zero", got=0.0)
        return self._with_scales(np.packbits(codes.reshape(-1, 128) != 0, axis=1, bitorder="little"), d)

    def _decode(self, data: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        bits = np.unpackbits(self._payload(data), axis=1, bitorder="little") << np.uint8(1)
        silent = self.scales(data, shape).reshape(-1, 1) == 0
        return np.where(silent, np.uint8(1), bits).reshape(shape)
