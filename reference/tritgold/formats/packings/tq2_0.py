"""TQ2_0 (GGUF type 35): blocks of 256 weights in 64 bytes, least significant pair first, and a float16 scale.

Source: ggml ``ggml-quants.c`` (quantize_row_tq2_0_ref) and gguf-py ``quants.py`` (TQ2_0).
"""

from typing import ClassVar

import numpy as np

from tritgold.formats.packings.packing_base import Bytes, Packing
from tritgold.formats.packings.scale_fields import float16_scales

BLOCK, BYTES = 256, 66


class TQ20(Packing):
    """Blocks of 256 consecutive columns = 66 bytes: two halves of 32 bytes, then the scale d as float16.

    ::

        half h = 0, 1; byte 32 h + m, m = 0..31
        bits     7 6        5 4        3 2       1 0
        weight  128h+96+m  128h+64+m  128h+32+m  128h+m       code 0 1 2 = trit -1 0 +1
        bytes 64, 65: d, little-endian float16, multiplies

    The order of the pairs is the reverse of I2_S. llama.cpp's quantiser and gguf-py write it; their input must already
    be trits times a scale, because they scale each block by its maximum. They read code 3 as +2 d; here it is refused.

    All blocks of a BitNet tensor have the same scale; d is float16, so a float32 scale is rounded (relative error up
    to 2**-11), but a scale from bf16 is exact in float16's normal range. ``unpack`` returns the scales as
    stored, float32 [out, in / 256].

    >>> block = np.zeros((1, 256), np.int8); block[0, [0, 1, 32, 128, 255]] = [1, -1, 1, -1, 1]
    >>> packed = TQ20().pack(block, 1.0)
    >>> [packed[i:i + 1].hex() for i in (0, 1, 2, 32, 63)], packed[64:].hex()
    (['5a', '54', '55', '54', '95'], '003c')
    """

    name: ClassVar[str] = "tq2_0"
    stores_scale: ClassVar[bool] = True

    def packed_size(self, shape: tuple[int, ...]) -> int:
        """out * in / 256 * 66 bytes; rows are never padded, so in must be a multiple of 256."""
        shape = self._sizes(shape)
        if shape[1] % BLOCK:
            raise self._no_such_shape(shape, f"rows that are a multiple of {BLOCK}; {shape[1]} is not")
        return shape[0] * shape[1] // BLOCK * BYTES

    def byte_of(self, row: int, column: int, shape: tuple[int, int]) -> int:
        """66 (i // 256) + 32 (i % 256 // 128) + i % 32 of the flat index i = row * in + column."""
        block, place = divmod(row * shape[1] + column, BLOCK)
        return BYTES * block + 32 * (place // 128) + place % 32

    def _bytes_of_row(self, columns: int) -> int | None:
        return columns // BLOCK * BYTES

    def scales(self, data: Bytes, shape: tuple[int, int]) -> np.ndarray:
        """d of each block, float32 [out, in / 256]."""
        blocks = self._checked(data, shape).reshape(-1, BYTES)
        return np.ascontiguousarray(blocks[:, 64:]).view("<f2").astype(np.float32).reshape(shape[0], -1)

    def _encode(self, codes: np.ndarray, scale: np.ndarray) -> bytes:
        d = float16_scales(self.name, scale, (codes.shape[0], codes.shape[1] // BLOCK))
        g = codes.reshape(-1, 2, 4, 32)
        qs = g[:, :, 0] | g[:, :, 1] << 2 | g[:, :, 2] << 4 | g[:, :, 3] << 6
        return np.concatenate([qs.reshape(-1, 64), d.reshape(-1, 1).view(np.uint8)], axis=1).tobytes()

    def _payload(self, data: np.ndarray) -> np.ndarray:
        return data.reshape(-1, BYTES)[:, :64]

    def _decode(self, data: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        qs = self._payload(data).reshape(-1, 2, 1, 32)
        shifts = np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)
        return ((qs >> shifts) & 3).reshape(shape)
