"""A second writing of every packing, weight by weight: the bytes from the published layouts and nothing of ours.

TL1, TL2, TQ1_0 and ik_llama.cpp's types are written here; where the weights of the 2-bit layouts lie say
``pair_layouts``.
"""

from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import product
from math import ceil

import ml_dtypes
import numpy as np
from pair_layouts import CASES

from tritgold.formats.packings import packing
from tritgold.formats.packings.packing_base import Packing

FLOATS = {"f32": np.dtype("<f4"), "f16": np.dtype("<f2"), "bf16": np.dtype(ml_dtypes.bfloat16)}
TILED: dict[str, dict[str, int]] = {"tl1": {"BM": 32, "BK": 64, "bm": 32}, "tl2": {"BM": 32, "BK": 96}}
ROW_SCALED = {"iq1_bn": "<f2", "iq2_bn": "<f4", "iq2_bn_r4": "<f4"}  # the type of a row's scale
NAMES = (*CASES, *TILED, "tq1_0", *ROW_SCALED, *FLOATS)
TL2_ROWS = (*range(8), *range(16, 24), *range(8, 16), *range(24, 32))  # the 32 rows of a block, in their order


def layout_of(name: str) -> Packing:
    """The packing under test that must write the same."""
    return CASES[name].layout if name in CASES else packing(name, **TILED.get(name, {}))


def written(name: str, trits: np.ndarray, scale: np.float32) -> bytes:
    """Trits int8 [out, in] of a shape that the packing holds, its scale too."""
    if name in FLOATS:
        return (trits * np.float32(scale)).astype(FLOATS[name]).tobytes()
    if name == "tq1_0":
        return _tq1_0(trits, scale)
    if name in ROW_SCALED:
        return _row_scaled(name, trits, scale)
    if name in TILED:
        tile = TILED[name]
        payload = _tl1(trits, tile["BM"], tile["BK"], tile["bm"]) if name == "tl1" else _tl2(trits, **tile)
        return payload + np.array(scale, "<f4").tobytes() + bytes(28)
    case = CASES[name]
    at, shift = _places(name, *trits.shape)
    values = np.array(case.values, np.uint8)[trits.reshape(-1) + 1]
    data = np.zeros(trits.size // 4 * case.block[0] // (case.block[0] - 2) if case.block else trits.size // 4, np.uint8)
    np.bitwise_or.at(data, at, values << shift)
    if case.block:
        size, d = case.block
        data.reshape(-1, size)[:, d : d + 2] = np.frombuffer(np.array(scale, "<f2").tobytes(), np.uint8)
    return data.tobytes() + (np.array(scale, "<f4").tobytes() + bytes(28) if case.trailer else b"")


@cache
def _places(name: str, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Byte and shift of every weight of a matrix, row by row."""
    places = np.array([CASES[name].place(row, column, (rows, columns)) for row, column in np.ndindex(rows, columns)])
    return places[:, 0], places[:, 1].astype(np.uint8)


# ---- TL1 ---------------------------------------------------------------------------------------------------------


def tl1_places(BM: int, BK: int, bm: int, shape: tuple[int, int]) -> Iterator[tuple[int, int]]:  # noqa: N803
    """Row and first of four columns of each byte, in the order of the bytes: the loops of the original's kernel."""
    by = 256 // bm
    for tile_row, tile_column, row, column, rows, quad, lane in product(
        range(0, shape[0], BM),
        range(0, shape[1], BK),
        range(0, BM, bm),
        range(0, BK, by),
        range(0, bm, 16),
        range(0, by, 4),
        range(16),
    ):
        yield tile_row + row + rows + lane, tile_column + column + quad


def _pairs(four: list[int]) -> int:
    """The byte of two pairs, each 3 w0 + w1 + 4."""
    return (3 * four[0] + four[1] + 4) << 4 | (3 * four[2] + four[3] + 4)


def _tl1(trits: np.ndarray, BM: int, BK: int, bm: int) -> bytes:  # noqa: N803
    places = tl1_places(BM, BK, bm, trits.shape)
    return bytes(_pairs(trits[row, column : column + 4].tolist()) for row, column in places)


# ---- TL2 ---------------------------------------------------------------------------------------------------------


def _tl2_blocks(BM: int, rows: int, columns: int, width: int, step: int) -> Iterator[tuple[int, int]]:  # noqa: N803
    """First row and column of each block of 32 rows x ``step`` columns, in the order of a region."""
    for tile_row, tile_column, row, column in product(
        range(0, rows, BM), range(0, columns, width), range(0, BM, 32), range(0, width, step)
    ):
        yield tile_row + row, tile_column + column


def tl2_nibbles(BM: int, BK: int, shape: tuple[int, int], region: str) -> Iterator[tuple[int, int]]:  # noqa: N803
    """Row and first column of each byte of region A (six columns) or C (four), in order."""
    triples = shape[1] // BK * BK
    width, step, columns = (BK, 6, triples) if region == "A" else (32, 4, shape[1] - triples)
    for row, column in _tl2_blocks(BM, shape[0], columns, width, step):
        for place in TL2_ROWS:
            yield row + place, column + (0 if region == "A" else triples)


def tl2_signs(BM: int, BK: int, shape: tuple[int, int]) -> Iterator[tuple[int, int]]:  # noqa: N803
    """Row and first column of the triple of each bit of region B, the uint16 one after the other, bit 15 first."""
    triples = shape[1] // BK * BK
    for row, column in _tl2_blocks(BM, shape[0], triples, BK, 24):
        for lane, triple, lower in product(range(16), range(8), (0, 16)):
            yield row + lane + lower, column + 3 * triple


def _tl2(trits: np.ndarray, BM: int, BK: int) -> bytes:  # noqa: N803
    """Regions A, B and C, then zeros up to the size that ggml.c counts, a multiple of 32."""
    shape = rows, columns = trits.shape

    def value(row: int, column: int) -> int:
        return int(trits[row, column : column + 3] @ np.array([9, 3, 1]))

    a = bytes(abs(value(r, c)) << 4 | abs(value(r, c + 3)) for r, c in tl2_nibbles(BM, BK, shape, "A"))
    bits = "".join("1" if value(*place) < 0 else "0" for place in tl2_signs(BM, BK, shape))
    b = b"".join(int(bits[i : i + 16], 2).to_bytes(2, "little") for i in range(0, len(bits), 16))
    c = bytes(_pairs(trits[row, column : column + 4].tolist()) for row, column in tl2_nibbles(BM, BK, shape, "C"))
    fixed = (columns - 256) * rows // 3 * 5 // 8 + 256 * rows // 2 * 4 // 8
    return (a + b + c).ljust(-(-fixed // 32) * 32, b"\0")


# ---- TQ1_0 -------------------------------------------------------------------------------------------------------


def tq1_0_place(element: int) -> tuple[int, int]:
    """(byte, digit) of an element of a block, from the published table."""
    if element < 160:
        return element % 32, element // 32
    if element < 240:
        return 32 + (element - 160) % 16, (element - 160) // 16
    return 48 + (element - 240) % 4, (element - 240) // 4


@cache
def tq1_0_byte(digits: tuple[int, ...]) -> int:
    """The byte of four or five digits: the smallest whose fraction of 256 is at least 0.d0 d1 d2 d3 d4 in base 3."""
    return ceil(256 * sum(Fraction(digit, 3 ** (n + 1)) for n, digit in enumerate(digits)))


def _tq1_0(trits: np.ndarray, scale: np.float32) -> bytes:
    data = b""
    for block in (trits.reshape(-1, 256) + 1).tolist():
        digits = [[0] * (5 if byte < 48 else 4) for byte in range(52)]
        for element, code in enumerate(block):
            byte, digit = tq1_0_place(element)
            digits[byte][digit] = code
        data += bytes(tq1_0_byte(tuple(d)) for d in digits) + np.array(scale, "<f2").tobytes()
    return data


# ---- IQ1_BN, IQ2_BN, IQ2_BN_R4 -----------------------------------------------------------------------------------


def iq1_bn_place(element: int) -> tuple[int, int]:
    """(byte, digit) of an element of a block of 64; digit 0 is the least significant of five."""
    group, within = divmod(element, 16)
    return (12, group) if within == 15 else (3 * group + within // 5, within % 5)


def iq2_bn_r4_place(row: int, column: int) -> tuple[int, int]:
    """(byte, shift) among the 64 bytes of four rows and 64 columns: a pair every four columns, 16 columns together."""
    group, within = divmod(column, 16)
    return 16 * group + 4 * row + within % 4, 2 * (within // 4)


def _row_scaled(name: str, trits: np.ndarray, scale: np.float32) -> bytes:
    """Row after row, or four together: the scales, then the blocks."""
    data, head = b"", np.array(scale, ROW_SCALED[name]).tobytes()
    together = 4 if name == "iq2_bn_r4" else 1
    for first in range(0, trits.shape[0], together):
        data += head * together
        for at in range(0, trits.shape[1], 64):
            data += bytes(_block(name, trits[first : first + together, at : at + 64] + 1))
    return data


def _block(name: str, codes: np.ndarray) -> list[int]:
    """Codes 0, 1, 2 of a block of 64 columns, one row or four."""
    if name == "iq1_bn":
        values = [0] * 13
        for element, code in enumerate(codes[0].tolist()):
            byte, digit = iq1_bn_place(element)
            values[byte] += 3**digit * code
        return [ceil(Fraction(256 * value, 243)) for value in values]
    out = [0] * (16 * len(codes))
    for (row, column), code in np.ndenumerate(codes):
        byte, shift = (column % 16, 2 * (column // 16)) if name == "iq2_bn" else iq2_bn_r4_place(row, column)
        out[byte] |= int(code) << shift
    return out
