"""Where the weights of the 2-bit layouts lie, written from the published formulas and from nothing of ours."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from tritgold.formats.packings import packing
from tritgold.formats.packings.packing_base import Packing

Place = Callable[[int, int, tuple[int, int]], tuple[int, int]]


@dataclass(frozen=True)
class Case:
    """place: (row, column, shape) -> (byte, shift). values: what the bits there hold for -1, 0, +1 and for no trit.

    unit: shapes the format holds are multiples of it. trailer: bytes after the payload, the first four its scale.
    """

    name: str
    place: Place
    unit: tuple[int, int]
    options: dict[str, int | str] = field(default_factory=dict)
    values: tuple[int, int, int, int] = (0, 1, 2, 3)
    trailer: int = 0
    block: tuple[int, int] | None = None  # bytes of a block and the place of its d

    @property
    def layout(self) -> Packing:
        return packing(self.name, **self.options)

    def decode(self, data: bytes, shape: tuple[int, int]) -> np.ndarray:
        """The trits, one by one."""
        trits = np.empty(shape, np.int8)
        for row, column in np.ndindex(shape):
            byte, shift = self.place(row, column, shape)
            trits[row, column] = self.values.index(data[byte] >> shift & 3) - 1
        return trits

    def with_scale(self, data: bytes, scale: float, block: int = 0) -> bytes:
        """The bytes with a scale that the packer itself may refuse to write."""
        changed = bytearray(data)
        if self.trailer:
            changed[-32:-28] = np.array(scale, "<f4").tobytes()
        if self.block:
            at = self.block[0] * block + self.block[1]
            changed[at : at + 2] = np.array(scale, "<f2").tobytes()
        return bytes(changed)


@cache
def gpu_tile() -> dict[tuple[int, int], tuple[int, int]]:
    """(row, column) of a 16 x 32 tile -> (byte, shift). Words are little-endian: bit s is bit s % 8 of byte s // 8."""
    places = {}
    for t in range(32):
        for e in range(16):
            shift = 8 * (e % 4) + 2 * (e // 4)
            places[8 * (t // 16) + t % 8, 16 * ((t % 16) // 8) + e] = (4 * t + shift // 8, shift % 8)
    return places


def _gpu_int2(row: int, column: int, shape: tuple[int, int]) -> tuple[int, int]:
    tile = row // 16 * (shape[1] // 32) + column // 32
    byte, shift = gpu_tile()[row % 16, column % 32]
    return 128 * tile + byte, shift


def _flat(place: Callable[[int], tuple[int, int]]) -> Place:
    return lambda row, column, shape: place(row * shape[1] + column)


_STRIDED = _flat(lambda i: (32 * (i // 128) + i % 32, 6 - 2 * (i % 128 // 32)))
_STRIDED_64 = _flat(lambda i: (16 * (i // 64) + i % 16, 6 - 2 * (i % 64 // 16)))
_LSB = _flat(lambda i: (i // 4, 2 * (i % 4)))
_MSB = _flat(lambda i: (i // 4, 6 - 2 * (i % 4)))

CASES = {
    "i2_s": Case("i2_s", _STRIDED, (1, 128), trailer=32),
    "i2_s 64": Case("i2_s", _STRIDED_64, (1, 64), {"block": 64}, trailer=32),
    "i2_s_4rows": Case(
        "i2_s_4rows", lambda row, column, shape: (row // 4 * shape[1] + column, 6 - 2 * (row % 4)), (4, 1), trailer=32
    ),
    "sglbitnt": Case("sglbitnt", _STRIDED, (1, 128)),
    "sequential lsb": Case("sequential", _LSB, (1, 4)),
    "sequential msb": Case("sequential", _MSB, (1, 4), {"order": "msb"}),
    "torchao": Case("torchao", _MSB, (1, 4), values=(3, 0, 1, 2)),
    "gpu_int2": Case("gpu_int2", _gpu_int2, (16, 32), values=(1, 2, 3, 0)),
    "q2_0": Case("q2_0", _flat(lambda i: (18 * (i // 64) + 2 + i % 64 // 4, 2 * (i % 4))), (1, 64), block=(18, 0)),
    "q2_0 128": Case(
        "q2_0",
        _flat(lambda i: (34 * (i // 128) + 2 + i % 128 // 4, 2 * (i % 4))),
        (1, 128),
        {"block": 128},
        block=(34, 0),
    ),
    "tq2_0": Case(
        "tq2_0",
        _flat(lambda i: (66 * (i // 256) + 32 * (i % 256 // 128) + i % 32, 2 * (i % 128 // 32))),
        (1, 256),
        block=(66, 64),
    ),
    "hf": Case(
        "hf",
        lambda row, column, shape: (row % (shape[0] // 4) * shape[1] + column, 2 * (row // (shape[0] // 4))),
        (4, 1),
    ),
}
