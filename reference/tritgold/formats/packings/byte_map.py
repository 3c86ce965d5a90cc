"""Which weight is stored in which bits of which byte, measured on the packing: change weights, see which bits change.

The pictures of docs/formats are drawn from it, so they show what the code does, not what an author believes it does.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from tritgold.errors import PackingError
from tritgold.formats.packings import packing
from tritgold.formats.packings.packing_base import Packing
from tritgold.formats.packings.q2_0 import Q10

Weight = tuple[int, int]

# The examples of docs/formats, for each packing whose bits hold trits: one block, or enough tiles to show their order.
# The key is the packing's name and, if it has several layouts, a hyphen and its option.
EXAMPLES: dict[str, tuple[Packing, tuple[int, int]]] = {
    "hf": (packing("hf"), (10, 8)),
    "i2_s-128": (packing("i2_s"), (1, 128)),
    "i2_s-64": (packing("i2_s", block=64), (1, 128)),
    "i2_s_4rows": (packing("i2_s_4rows"), (8, 8)),
    "sglbitnt": (packing("sglbitnt"), (2, 128)),
    "tl1": (packing("tl1", BM=64, BK=16, bm=32), (64, 32)),
    "tl2": (packing("tl2", BM=32, BK=96), (32, 256)),
    "tq1_0": (packing("tq1_0"), (1, 256)),
    "tq2_0": (packing("tq2_0"), (1, 256)),
    "q2_0-64": (packing("q2_0"), (1, 64)),
    "q2_0-128": (packing("q2_0", block=128), (1, 128)),
    "q1_0": (packing("q1_0"), (1, 128)),
    "iq1_bn": (packing("iq1_bn"), (1, 64)),
    "iq2_bn": (packing("iq2_bn"), (1, 64)),
    "iq2_bn_r4": (packing("iq2_bn_r4"), (4, 64)),
    "gpu_int2": (packing("gpu_int2"), (16, 32)),
    "sequential-lsb": (packing("sequential"), (2, 16)),
    "sequential-msb": (packing("sequential", order="msb"), (2, 16)),
    "torchao": (packing("torchao"), (2, 16)),
}

_RANDOM_MATRICES = 8  # in addition to the constant ones, in which a pair or triple does not change all its bits
_OTHER_ROWS = 8  # random replacements for each row in each matrix


@dataclass(frozen=True)
class BitField:
    """Bits of one byte that hold one weight, or several as one number.

    byte: its index. bits: highest first; 7 is the most significant. weights: (row, column), sorted by how much a +1
    changes the number, the largest change first.
    """

    byte: int
    bits: tuple[int, ...]
    weights: tuple[Weight, ...]


@dataclass(frozen=True)
class ByteMap:
    """The bit fields of a packed matrix.

    size: bytes of the packed matrix. fields: in the order of the bytes, within a byte from the highest bit. scale:
    indices of the bytes that change with the scale. All other bits are padding.
    """

    size: int
    fields: tuple[BitField, ...]
    scale: tuple[int, ...]


def byte_map(layout: Packing, shape: tuple[int, int]) -> ByteMap:
    """The map of a matrix [out, in] in a packing whose bits hold trits (F32, F16, BF16 hold floats and have no map).

    Each row, then each column is replaced in a few matrices, and the packed bits that change are noted. A bit that
    changes with one row and with some columns holds the weights at their intersections. That is exact if a bit
    changes with only one row or only one column; otherwise PackingError ``byte-map``. PackingError as ``packed_size``
    for a shape that the packing cannot hold.

    >>> from tritgold.formats.packings.hf_packed import HfPacked
    >>> byte_map(HfPacked(), (8, 1)).fields[0]
    BitField(byte=0, bits=(7, 6), weights=((6, 0),))
    """
    # Q1_0 has one bit per weight and no zero.
    trits = np.array((-1, 1) if isinstance(layout, Q10) else (-1, 0, 1), np.int8)
    random = np.random.default_rng(0).integers(0, trits.size, (_RANDOM_MATRICES, *shape))
    matrices = [*(np.full(shape, code) for code in range(trits.size)), *random]
    by_row, by_column = (_moved(layout, trits, matrices, axis) for axis in (0, 1))
    size = layout.packed_size(shape)
    held = [_meeting(layout, by_row[:, bit], by_column[:, bit]) for bit in range(8 * size)]
    fields = [field for byte in range(size) for field in _fields(byte, held[8 * byte : 8 * byte + 8])]
    if any(len(field.weights) > 1 for field in fields):
        fields = _most_telling_first(layout, shape, fields)
    # In float32 and in float16, 1/3 and 1 differ in every byte.
    one, third = (_packed(layout, trits[matrices[0]], scale) for scale in (1.0, 1 / 3))
    return ByteMap(size, tuple(fields), tuple(np.flatnonzero(one != third).tolist()))


def _packed(layout: Packing, trits: np.ndarray, scale: float = 1.0) -> np.ndarray:
    return np.frombuffer(layout.pack(trits, scale), np.uint8)


def _moved(layout: Packing, trits: np.ndarray, matrices: list[np.ndarray], axis: int) -> np.ndarray:
    """Booleans [rows or columns, bits]: which bits change with a row or column, the highest bit of each byte first."""
    before = [_packed(layout, trits[codes]) for codes in matrices]
    found = []
    for index in range(matrices[0].shape[axis]):
        moved = np.zeros_like(before[0])
        for codes, packed in zip(matrices, before, strict=True):
            changed = codes.copy()
            for line in _others(codes[index], trits.size) if axis == 0 else _steps(codes[:, index], trits.size):
                changed[index if axis == 0 else (slice(None), index)] = line
                moved |= packed ^ _packed(layout, trits[changed])
        found.append(np.unpackbits(moved))
    return np.array(found, bool)


def _steps(column: np.ndarray, values: int) -> list[np.ndarray]:
    """The column with every weight changed to each other value: enough, as a pair or triple has one weight of it."""
    return [(column + step) % values for step in range(1, values)]


def _others(row: np.ndarray, values: int) -> np.ndarray:
    """Random rows: a row has whole pairs and triples, and the same step for all weights would not change every bit."""
    return np.random.default_rng(1).integers(0, values, (_OTHER_ROWS, row.size))


def _meeting(layout: Packing, rows: np.ndarray, columns: np.ndarray) -> set[Weight]:
    """The weights that a bit holds, from the rows and the columns that move it."""
    if min(rows.sum(), columns.sum()) > 1:
        raise PackingError(f"{layout.name}: a bit moves with several rows and several columns", kind="byte-map")
    return set(product(np.flatnonzero(rows).tolist(), np.flatnonzero(columns).tolist()))


def _fields(byte: int, held: list[set[Weight]]) -> Iterator[BitField]:
    """The fields of one byte: neighbouring bits that share a weight form one number."""
    bits: list[int] = []
    weights: set[Weight] = set()
    for bit, here in zip(range(7, -1, -1), held, strict=True):
        if bits and not weights & here:
            yield BitField(byte, tuple(bits), tuple(sorted(weights)))
            bits, weights = [], set()
        if here:
            bits, weights = [*bits, bit], weights | here
    if bits:
        yield BitField(byte, tuple(bits), tuple(sorted(weights)))


def _most_telling_first(layout: Packing, shape: tuple[int, int], fields: list[BitField]) -> list[BitField]:
    """The fields with sorted weights: first by how much a +1 among zeros changes the number, then by row and column."""
    zeros = np.zeros(shape, np.int8)
    base, plus = _packed(layout, zeros).astype(int), []
    for column in range(shape[1]):  # weights of one column in one field change it equally and stay in order of rows
        trits = zeros.copy()
        trits[:, column] = 1
        plus.append(_packed(layout, trits).astype(int))

    def ordered(field: BitField) -> BitField:
        mask, byte = sum(1 << bit for bit in field.bits), field.byte
        change = {w: abs((plus[w[1]][byte] & mask) - (base[byte] & mask)) for w in field.weights}
        return BitField(byte, field.bits, tuple(sorted(field.weights, key=lambda w: (-change[w], w))))

    return [ordered(field) for field in fields]
