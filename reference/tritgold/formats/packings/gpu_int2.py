"""The int2 weights of bitnet.cpp's CUDA kernels: tiles of 16 rows x 32 columns, permuted for decoding one token.

Source: microsoft/BitNet ``gpu/pack_weight.py`` and ``gpu/bitnet_kernels``.
"""

from typing import ClassVar

import numpy as np

from tritgold.formats.packings.packing_base import Packing, count_threes

ROWS, COLUMNS = 16, 32
TILE = ROWS * COLUMNS // 4


class GpuInt2(Packing):
    """Tiles in row-major order, 128 bytes each = 32 little-endian words, each with 16 weights of one row.

    ::

        word t = 0..31 of a tile: row 8 (t // 16) + t % 8, columns 16 (t % 16 // 8) + e, e = 0..15
        weight e in bits 8 (e % 4) + 2 (e // 4) of the word, so that its byte b = 0..3 holds

        bits    7 6     5 4    3 2     1 0
        weight  b + 12  b + 8  b + 4    b         code 1 2 3 = trit -1 0 +1; code 0 would be -2 and is refused

    Some matrices are fused before packing, such as q, k and v: their rows are concatenated. The scale is a separate
    tensor of four bf16, one for each of them. The codes are one higher than in other formats: bytes of 0x55 are -1,
    not 0.

    >>> tile = np.zeros((16, 32), np.int8); tile[0, 0] = 1; tile[8, 21] = -1
    >>> packed = GpuInt2().pack(tile)
    >>> {i: hex(byte) for i, byte in enumerate(packed) if byte != 0xAA}
    {0: '0xab', 97: '0xa6'}
    """

    name: ClassVar[str] = "gpu_int2"
    stores_scale: ClassVar[bool] = False
    invalid_code: ClassVar[str] = "code 0"
    invalid_kind: ClassVar[str] = "code-0"

    def packed_size(self, shape: tuple[int, ...]) -> int:
        """out * in / 4 bytes; out must be a multiple of 16 and in of 32."""
        shape = self._sizes(shape)
        if shape[0] % ROWS or shape[1] % COLUMNS:
            raise self._no_such_shape(shape, f"out a multiple of {ROWS}, in a multiple of {COLUMNS}")
        return shape[0] * shape[1] // 4

    def byte_of(self, row: int, column: int, shape: tuple[int, int]) -> int:
        """128 * tile + 4 * t + column % 4, with the tile and its word t as in the class's map."""
        tile = row // ROWS * (shape[1] // COLUMNS) + column // COLUMNS
        word = 16 * (row % 16 // 8) + 8 * (column % 32 // 16) + row % 8
        return TILE * tile + 4 * word + column % 4

    def _count_invalid(self, data: np.ndarray, shape: tuple[int, int]) -> int:
        return count_threes(~data)

    def _encode(self, codes: np.ndarray, scale: np.ndarray) -> bytes:
        rows, columns = codes.shape
        # Axes: tile row, upper or lower 8 rows, row; tile column, left or right 16 columns, pair of bits, byte.
        axes = (codes + np.uint8(1)).reshape(rows // ROWS, 2, 8, columns // COLUMNS, 2, 4, 4)
        words = axes.transpose(5, 0, 3, 1, 4, 2, 6)
        return (words[0] | words[1] << 2 | words[2] << 4 | words[3] << 6).tobytes()

    def _decode(self, data: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        pairs = (data[:, None] >> np.array([0, 2, 4, 6], np.uint8)) & 3
        axes = pairs.reshape(shape[0] // ROWS, shape[1] // COLUMNS, 2, 2, 8, 4, 4)
        # Code 0 wraps to 255, which is more than 2 like every code that is not a trit.
        return axes.transpose(0, 2, 4, 1, 3, 6, 5).reshape(shape) - np.uint8(1)
