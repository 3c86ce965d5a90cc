"""IQ1_BN, IQ2_BN and IQ2_BN_R4 (GGUF types 134, 135, 335 of ik_llama.cpp): a scale per row, blocks of 64 weights.

Source: ik_llama.cpp ``ggml/src/ggml-common.h`` (block_iq1_bn, block_iq2_bn) and ``ggml/src/iqk/iqk_quantize.cpp``
(quantize_one_row_1bn, quantize_one_row_2bn, repack_iq2_bn, dequantize_row_iq2_bn_r4), commit 8337e4c.
"""

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from tritgold.errors import PackingError
from tritgold.formats.packings.packing_base import Bytes, Packing, count_threes
from tritgold.formats.packings.scale_fields import float16_scales
from tritgold.formats.packings.tq1_0 import ODD_OF_FIVE, to_bytes, to_digits

BLOCK = 64
_PAIRS = np.array([0, 2, 4, 6], np.uint8)


class _ScaleOfRows(Packing):
    """For each row its scale, which multiplies, then its blocks of 64 consecutive columns.

    ik_llama.cpp writes an all-zero row as +1 with a scale of 0; here it is read as zero trits. ``pack`` writes it as
    zero trits with the given scale. ik_llama.cpp's quantiser uses the largest magnitude of a row as its scale and
    makes weights below half of it 0, so its input must already be trits times a scale.
    """

    stores_scale: ClassVar[bool] = True
    rows_together: ClassVar[int] = 1  # rows that are stored together: their scales, then their blocks
    scale_dtype: ClassVar[str]
    block_bytes: ClassVar[int]

    def packed_size(self, shape: tuple[int, ...]) -> int:
        """out times the bytes of a row, which are its scale and in / 64 blocks; in must be a multiple of 64."""
        rows, columns = self._sizes(shape)
        if columns % BLOCK:
            raise self._no_such_shape(shape, f"rows that are a multiple of {BLOCK}; {columns} is not")
        if rows % self.rows_together:
            raise self._no_such_shape(shape, f"out a multiple of {self.rows_together}")
        return rows * self._row_bytes(columns)

    def scales(self, data: Bytes, shape: tuple[int, int]) -> np.ndarray:
        """The scale of each row, float32 [out, 1]."""
        head = self._stretches(self._checked(data, shape), shape)[:, : self._head]
        return np.ascontiguousarray(head).view(self.scale_dtype).astype(np.float32).reshape(-1, 1)

    def payload(self, data: Bytes, shape: tuple[int, int]) -> np.ndarray:
        """The bytes of all blocks, without the scales: uint8, a view of the data."""
        return self._stretches(self._checked(data, shape), shape)[:, self._head :]

    def _row_bytes(self, columns: int) -> int:
        return np.dtype(self.scale_dtype).itemsize + columns // BLOCK * self.block_bytes

    @property
    def _head(self) -> int:
        """Bytes of the scales that are stored together."""
        return self.rows_together * np.dtype(self.scale_dtype).itemsize

    def _stretches(self, data: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        return data.reshape(-1, self.rows_together * self._row_bytes(shape[1]))

    def _count_invalid(self, data: np.ndarray, shape: tuple[int, int]) -> int:
        return count_threes(self._stretches(data, shape)[:, self._head :])

    def _encode(self, codes: np.ndarray, scale: np.ndarray) -> bytes:
        head = self._scale_words(scale, codes.shape[0]).reshape(-1, self.rows_together).view(np.uint8)
        blocks = self._blocks(codes)
        return np.concatenate([head, blocks.reshape(len(head), -1)], axis=1).tobytes()

    def _decode(self, data: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        codes = self._codes(self._stretches(data, shape)[:, self._head :], shape)
        silent = self.scales(data, shape) == 0
        return np.where(silent & (codes <= 2), np.uint8(1), codes) if silent.any() else codes

    def _scale_words(self, scale: np.ndarray, rows: int) -> np.ndarray:
        if scale.ndim and scale.shape[1] > 1:
            got, expected = list(scale.shape), f"[] or [{rows}, 1]"
            what = f"{self.name} stores one scale a row"
            raise PackingError(what, kind="scale-shape", got=got, expected=expected)
        if self.scale_dtype == "<f2":
            return float16_scales(self.name, scale, (rows, 1))
        return np.broadcast_to(scale, (rows, 1)).astype("<f4")

    @abstractmethod
    def _blocks(self, codes: np.ndarray) -> np.ndarray:
        """Codes uint8 [out, in] -> the bytes of all blocks in file order."""

    @abstractmethod
    def _codes(self, payload: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        """The inverse: payload uint8 [out / rows_together, bytes] -> codes [out, in]."""


class IQ1BN(_ScaleOfRows):
    """For each row its scale d as little-endian float16, then blocks of 64 weights = 13 bytes of base-3 digits.

    ::

        byte 3 g + b, g = 0..3, b = 0..2   weights 16 g + 5 b + 0 .. 4, the first least significant
        byte 12                            weights 15, 31, 47, 63, the first least significant
                                           digit 0 1 2 = trit -1 0 +1

    A byte is a fraction of 256, as in TQ1_0: for q = w0 + 3 w1 + 9 w2 + 27 w3 + 81 w4 it is ceil(256 q / 243), with
    w4 = 0 in byte 12. The digits are in the reverse order of TQ1_0, where the first weight is the most significant.

    Every byte decodes to trits. Encoders write only 243 of the 256 values, and in byte 12 only the 81 of them below
    86; ``odd_bytes`` counts the others. ``unpack`` returns the scales as stored, float32 [out, 1]. Rows may begin at
    odd addresses.

    >>> row = np.zeros((1, 64), np.int8); row[0, [0, 15, 16, 63]] = [1, -1, 1, 1]
    >>> packed = IQ1BN().pack(row, 1.0)
    >>> packed[:2].hex(), [packed[2 + i : 3 + i].hex() for i in (0, 1, 3, 12)]
    ('003c', ['81', '80', '81', '46'])
    """

    name: ClassVar[str] = "iq1_bn"
    scale_dtype: ClassVar[str] = "<f2"
    block_bytes: ClassVar[int] = 13

    def byte_of(self, row: int, column: int, shape: tuple[int, int]) -> int:
        """row * bytes of a row + 2 + 13 (column // 64) + the byte of weight column % 64 in the class's map."""
        block, place = divmod(column, BLOCK)
        byte = 12 if place % 16 == 15 else 3 * (place // 16) + place % 16 // 5
        return row * self._row_bytes(shape[1]) + 2 + 13 * block + byte

    def odd_bytes(self, data: Bytes, shape: tuple[int, int]) -> int:
        """Number of bytes that decode but that no encoder writes; the class lists them."""
        blocks = self.payload(data, shape).reshape(-1, 13)
        odd = ODD_OF_FIVE[blocks]
        odd[:, 12] |= blocks[:, 12] > 85
        return int(np.count_nonzero(odd))

    def _count_invalid(self, data: np.ndarray, shape: tuple[int, int]) -> int:
        return 0  # every digit is 0, 1 or 2, and each is a trit

    def _blocks(self, codes: np.ndarray) -> np.ndarray:
        groups = codes.reshape(-1, 4, 16)
        fives = groups[:, :, :15].reshape(-1, 12, 5).swapaxes(1, 2)
        last = np.concatenate([groups[:, :, 15], np.zeros((len(groups), 1), np.uint8)], axis=1)[:, :, None]
        return np.concatenate([to_bytes(fives[:, ::-1]), to_bytes(last[:, ::-1])], axis=1)

    def _codes(self, payload: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        digits = to_digits(payload.reshape(-1, 13), 5)[:, ::-1]  # [blocks, 5, 13], least significant first
        fives = digits[:, :, :12].swapaxes(1, 2).reshape(-1, 4, 15)
        return np.concatenate([fives, digits[:, :4, 12][:, :, None]], axis=2).reshape(shape)


class IQ2BN(_ScaleOfRows):
    """For each row its scale d as little-endian float32, then blocks of 64 weights = 16 bytes.

    ::

        byte m, bits   7 6      5 4      3 2      1 0
        weight         48 + m   32 + m   16 + m   m         code 0 1 2 = trit -1 0 +1

    The pairs are in the same order as in TQ2_0, with a stride of 16 instead of 32. ik_llama.cpp reads code 3 as +2 d;
    here it is refused. Float32 holds every scale exactly. ``unpack`` returns the scales as stored, float32 [out, 1].

    >>> row = np.zeros((1, 64), np.int8); row[0, [0, 1, 16, 63]] = [1, -1, 1, -1]
    >>> IQ2BN().pack(row, 1.0).hex()
    '0000803f5a545555555555555555555555555515'
    """

    name: ClassVar[str] = "iq2_bn"
    scale_dtype: ClassVar[str] = "<f4"
    block_bytes: ClassVar[int] = 16

    def byte_of(self, row: int, column: int, shape: tuple[int, int]) -> int:
        """row * bytes of a row + 4 + 16 (column // 64) + column % 16."""
        return row * self._row_bytes(shape[1]) + 4 + 16 * (column // BLOCK) + column % 16

    def _blocks(self, codes: np.ndarray) -> np.ndarray:
        g = codes.reshape(-1, 4, 16)
        return g[:, 0] | g[:, 1] << 2 | g[:, 2] << 4 | g[:, 3] << 6

    def _codes(self, payload: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        return (payload.reshape(-1, 1, 16) >> _PAIRS.reshape(1, 4, 1) & np.uint8(3)).reshape(shape)


class IQ2BNR4(_ScaleOfRows):
    """Four rows together: their four scales as little-endian float32, then 64 bytes for every 64 columns.

    ::

        byte 16 g + 4 r + i of 64: row r of the four, g = 0..3, i = 0..3
        bits      7 6           5 4          3 2          1 0
        column    16 g + 12 + i  16 g + 8 + i  16 g + 4 + i  16 g + i     code 0 1 2 = trit -1 0 +1

    IQ2_BN repacked, in a file by llama-quantize or in memory (``-rtr``): the same size, another type number. Code 3 is
    refused. ``unpack`` returns the scales as stored, float32 [out, 1].

    >>> rows = np.zeros((4, 64), np.int8); rows[0, 0], rows[1, 4], rows[3, 63] = 1, -1, 1
    >>> packed = IQ2BNR4().pack(rows, 1.0)
    >>> packed[:16].hex(), [packed[16 + i : 17 + i].hex() for i in (0, 4, 63)]
    ('0000803f0000803f0000803f0000803f', ['56', '51', '95'])
    """

    name: ClassVar[str] = "iq2_bn_r4"
    rows_together: ClassVar[int] = 4
    scale_dtype: ClassVar[str] = "<f4"
    block_bytes: ClassVar[int] = 16

    def byte_of(self, row: int, column: int, shape: tuple[int, int]) -> int:
        """(row // 4) * bytes of four rows + 16 + 64 (column // 64) + 16 (column % 64 // 16) + 4 (row % 4)
        + column % 4.
        """
        within = 16 * (column % BLOCK // 16) + 4 * (row % 4) + column % 4
        return row // 4 * 4 * self._row_bytes(shape[1]) + 16 + BLOCK * (column // BLOCK) + within

    def _blocks(self, codes: np.ndarray) -> np.ndarray:
        # [four rows, row, block, g, pair, i] -> [four rows, block, g, row, i] with the pairs in one byte
        g = codes.reshape(-1, 4, codes.shape[1] // BLOCK, 4, 4, 4).transpose(4, 0, 2, 3, 1, 5)
        packed: np.ndarray = g[0] | g[1] << 2 | g[2] << 4 | g[3] << 6
        return packed

    def _codes(self, payload: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        pairs = payload.reshape(-1, shape[1] // BLOCK, 4, 4, 4, 1) >> _PAIRS & np.uint8(3)  # ..., row, i, pair
        return pairs.transpose(0, 3, 1, 2, 5, 4).reshape(shape)
