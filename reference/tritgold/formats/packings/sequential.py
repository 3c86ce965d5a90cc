"""Four consecutive columns per byte: the simple layouts of ONNX and torchao.

Sources: ONNX UINT2 and onnxruntime MatMulNBits with bits = 2 and zero point 1; torchao
``prototype/quantized_training/bitnet.py``.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tritgold.formats.packings.packing_base import Packing, check_option, count_threes

_LOW_FIRST, _HIGH_FIRST = (0, 2, 4, 6), (6, 4, 2, 0)


class _FourColumns(Packing):
    """Byte i holds the weights 4i .. 4i + 3 of the flat matrix; the scale is not in these bytes."""

    stores_scale: ClassVar[bool] = False

    def packed_size(self, shape: tuple[int, ...]) -> int:
        """out * in / 4 bytes; in must be a multiple of 4, because no byte is shared by two rows."""
        shape = self._sizes(shape)
        if shape[1] % 4:
            raise self._no_such_shape(shape, f"rows that are a multiple of 4; {shape[1]} is not")
        return shape[0] * shape[1] // 4

    def byte_of(self, row: int, column: int, shape: tuple[int, int]) -> int:
        """(row * in + column) // 4."""
        return (row * shape[1] + column) // 4

    def _bytes_of_row(self, columns: int) -> int | None:
        return columns // 4


@dataclass(frozen=True)
class Sequential(_FourColumns):
    """Codes 0, 1, 2 for -1, 0, +1, in the order of the columns.

    ::

        order   bits 7 6  5 4  3 2  1 0
        lsb     column 3   2    1    0        ONNX UINT2, onnxruntime (zero point 1)
        msb     column 0   1    2    3        how several engines have misread I2_S

    >>> row = np.array([[1, -1, 0, 0]], np.int8)
    >>> Sequential().pack(row).hex(), Sequential(order="msb").pack(row).hex()
    ('52', '85')
    """

    name: ClassVar[str] = "sequential"
    order: str = "lsb"

    def __post_init__(self) -> None:
        check_option(self.name, "order", self.order, ("lsb", "msb"))

    def _encode(self, codes: np.ndarray, scale: np.ndarray) -> bytes:
        return _joined(codes, self._shifts)

    def _decode(self, data: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        return _split(data, self._shifts).reshape(shape)

    @property
    def _shifts(self) -> tuple[int, ...]:
        return _LOW_FIRST if self.order == "lsb" else _HIGH_FIRST


class TorchAO(_FourColumns):
    """Codes in two's complement: 3, 0, 1 for -1, 0, +1; 2 would be -2 and is refused.

    ::

        bits   7 6  5 4  3 2  1 0
        column  0    1    2    3        codes 11 00 01 = trit -1 0 +1

    The only two-bit packing here in which zero bytes are zero weights.

    >>> TorchAO().pack(np.array([[1, -1, 0, 0]], np.int8)).hex()
    '70'
    """

    name: ClassVar[str] = "torchao"
    invalid_code: ClassVar[str] = "code 2"
    invalid_kind: ClassVar[str] = "code-2"

    def _count_invalid(self, data: np.ndarray, shape: tuple[int, int]) -> int:
        # Flipping the low bit of every pair turns 2 into 3.
        return count_threes(data ^ np.uint8(0x55))

    def _encode(self, codes: np.ndarray, scale: np.ndarray) -> bytes:
        return _joined((codes + np.uint8(3)) & 3, _HIGH_FIRST)

    def _decode(self, data: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        return ((_split(data, _HIGH_FIRST) + np.uint8(1)) & 3).reshape(shape)


def _joined(pairs: np.ndarray, shifts: tuple[int, ...]) -> bytes:
    """Values 0..3, uint8 -> bytes, four consecutive values per byte at the given shifts."""
    w = pairs.reshape(-1, 4)
    joined: np.ndarray = w[:, 0] << shifts[0] | w[:, 1] << shifts[1] | w[:, 2] << shifts[2] | w[:, 3] << shifts[3]
    return joined.tobytes()


def _split(data: np.ndarray, shifts: tuple[int, ...]) -> np.ndarray:
    """uint8 [bytes, 4]: the pairs of every byte in the order of the shifts."""
    return (data[:, None] >> np.array(shifts, np.uint8)) & 3
