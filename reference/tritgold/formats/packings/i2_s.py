"""I2_S (GGUF type 36 of the bitnet.cpp fork) and its variants: four weights per byte, most significant pair first.

Source: microsoft/BitNet ``src/ggml-bitnet-mad.cpp`` (quantize_i2_s) and ``utils/convert-hf-to-gguf-bitnet.py``.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tritgold.formats.packings.packing_base import Packing, check_option
from tritgold.formats.packings.scale_fields import TRAILER, WithTrailer

_SHIFTS = np.array([6, 4, 2, 0], np.uint8).reshape(1, 4, 1)


@dataclass(frozen=True)
class I2S(WithTrailer):
    """The flat matrix in blocks of 128 weights = 32 bytes: byte p holds weights p, p + 32, p + 64, p + 96.

    ::

        bits   7 6    5 4     3 2     1 0
        weight  p    p + 32  p + 64  p + 96        code 0 1 2 = trit -1 0 +1

    The payload of out * in / 4 bytes is followed by a trailer of 32: the scale as little-endian float32, which
    multiplies, and 28 bytes of padding, which some writers leave undefined: never compare them. bitnet.cpp's kernels
    read code 3 as +2, its dequantiser reads it as 0; here it is refused.

    block: 128, the layout of x86 and of every published file; or 64, of bitnet.cpp for ARM since November 2025:
    byte p of 16 holds weights p, p + 16, p + 32, p + 48. Both have the same type number and the same size, and nothing
    in a file shows which it is. Reading one as the other permutes the columns inside every 128: each row keeps
    its sum and its histogram, and the model writes nonsense.

    >>> row = np.zeros((1, 128), np.int8); row[0, [0, 1, 32, 127]] = [1, -1, 1, -1]
    >>> I2S().pack(row, 1.0)[:32].hex()
    'a515555555555555555555555555555555555555555555555555555555555554'
    >>> np.flatnonzero(I2S(block=64).unpack(I2S().pack(row), row.shape).trits).tolist()
    [0, 1, 16, 127]
    """

    name: ClassVar[str] = "i2_s"
    block: int = 128

    def __post_init__(self) -> None:
        check_option(self.name, "block", self.block, (64, 128))

    def packed_size(self, shape: tuple[int, ...]) -> int:
        """out * in / 4 + 32 bytes; out * in must be a multiple of the block. A block may extend over two rows."""
        shape = self._sizes(shape)
        count = shape[0] * shape[1]
        if count % self.block:
            raise self._no_such_shape(shape, f"out * in a multiple of {self.block}")
        return count // 4 + TRAILER

    def byte_of(self, row: int, column: int, shape: tuple[int, int]) -> int:
        """32 (i // 128) + i % 32 of the flat index i = row * in + column; with block 64, 16 (i // 64) + i % 16."""
        block, place = divmod(row * shape[1] + column, self.block)
        return self.block // 4 * block + place % (self.block // 4)

    def _bytes_of_row(self, columns: int) -> int | None:
        return None if columns % self.block else columns // 4

    def _encode_payload(self, codes: np.ndarray) -> bytes:
        return _strided(codes, self.block)

    def _decode(self, data: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        return ((self._payload(data).reshape(-1, 1, self.block // 4) >> _SHIFTS) & 3).reshape(shape)


class I2S4Rows(WithTrailer):
    """I2_S as bitnet.cpp packs it on x86 if built without ACT_PARALLEL: a byte holds one column of four rows.

    ::

        byte row // 4 * in + column
        bits        7 6  5 4  3 2  1 0
        row modulo   0    1    2    3        code 0 1 2 = trit -1 0 +1; trailer as in I2_S

    That flag changes only the quantiser; the kernels still read blocks of 128, so the same program that wrote such a
    file cannot run it correctly. Same type number and size as I2_S.

    >>> I2S4Rows().pack(np.array([[1], [0], [-1], [0]], np.int8))[:1].hex()
    '91'
    """

    name: ClassVar[str] = "i2_s_4rows"

    def packed_size(self, shape: tuple[int, ...]) -> int:
        """out * in / 4 + 32 bytes; out must be a multiple of 4."""
        shape = self._sizes(shape)
        if shape[0] % 4:
            raise self._no_such_shape(shape, "out a multiple of 4")
        return shape[0] * shape[1] // 4 + TRAILER

    def byte_of(self, row: int, column: int, shape: tuple[int, int]) -> int:
        """row // 4 * in + column."""
        return row // 4 * shape[1] + column

    def _encode_payload(self, codes: np.ndarray) -> bytes:
        rows = codes.reshape(-1, 4, codes.shape[1])
        payload: np.ndarray = rows[:, 0] << 6 | rows[:, 1] << 4 | rows[:, 2] << 2 | rows[:, 3]
        return payload.tobytes()

    def _decode(self, data: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        return ((self._payload(data).reshape(-1, 1, shape[1]) >> _SHIFTS) & 3).reshape(shape)


class SglBitnt(Packing):
    """The rows of an SGLBITNT file (sgl-kernel's bitnet): the payload of I2_S; every row is whole blocks of 128.

    ::

        bits   7 6    5 4     3 2     1 0
        weight  p    p + 32  p + 64  p + 96        byte p of 32; code 0 1 2 = trit -1 0 +1

    No trailer: the scale, a float32 that multiplies, is in the tensor's header.

    >>> row = np.zeros((1, 128), np.int8); row[0, [0, 1, 32, 127]] = [1, -1, 1, -1]
    >>> SglBitnt().pack(row) == I2S().pack(row)[:-32]
    True
    """

    name: ClassVar[str] = "sglbitnt"
    stores_scale: ClassVar[bool] = False

    def packed_size(self, shape: tuple[int, ...]) -> int:
        """out * in / 4 bytes; in must be a multiple of 128."""
        shape = self._sizes(shape)
        if shape[1] % 128:
            raise self._no_such_shape(shape, f"rows that are a multiple of 128; {shape[1]} is not")
        return shape[0] * shape[1] // 4

    def byte_of(self, row: int, column: int, shape: tuple[int, int]) -> int:
        """row * in / 4 + 32 (column // 128) + column % 32."""
        return row * shape[1] // 4 + 32 * (column // 128) + column % 32

    def _bytes_of_row(self, columns: int) -> int | None:
        return columns // 4

    def _encode(self, codes: np.ndarray, scale: np.ndarray) -> bytes:
        return _strided(codes, 128)

    def _decode(self, data: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        return ((data.reshape(-1, 1, 32) >> _SHIFTS) & 3).reshape(shape)


def _strided(codes: np.ndarray, block: int) -> bytes:
    """Codes -> bytes: in each block the first quarter of its codes goes to bits 7 6, the second to 5 4, and so on."""
    quarters = codes.reshape(-1, 4, block // 4)
    payload: np.ndarray = quarters[:, 0] << 6 | quarters[:, 1] << 4 | quarters[:, 2] << 2 | quarters[:, 3]
    return payload.tobytes()
