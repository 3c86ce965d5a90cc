"""Byte maps against index formulas of their own, byte_of and one-hot matrices; and that they can fail."""

from functools import cache
from itertools import product

import numpy as np
import pytest
from pair_layouts import CASES, Case
from refusals import refusal

from tritgold.errors import PackingError
from tritgold.formats.packings import PACKINGS, packing
from tritgold.formats.packings.byte_map import EXAMPLES, BitField, ByteMap, byte_map
from tritgold.formats.packings.i2_s import I2S
from tritgold.formats.packings.packing_base import Packing
from tritgold.formats.packings.sequential import Sequential

every = pytest.mark.parametrize("name", EXAMPLES)


@cache
def map_of(name: str) -> ByteMap:
    return byte_map(*EXAMPLES[name])


def holding(name: str) -> dict[tuple[int, int], list[BitField]]:
    """The fields of each weight."""
    found: dict[tuple[int, int], list[BitField]] = {}
    for field in map_of(name).fields:
        for weight in field.weights:
            found.setdefault(weight, []).append(field)
    return found


def test_every_packing_but_the_floats_has_an_example() -> None:
    assert {layout.name for layout, _ in EXAMPLES.values()} == PACKINGS.keys() - {"f32", "f16", "bf16"}


@every
def test_every_weight_lies_in_the_byte_that_its_class_says(name: str) -> None:
    layout, shape = EXAMPLES[name]
    fields = holding(name)
    assert fields.keys() == set(np.ndindex(shape))
    for (row, column), where in fields.items():
        assert where[0].byte == layout.byte_of(row, column, shape)
        assert len(where) == (2 if name == "tl2" and column < 192 else 1)  # a triple has a magnitude and a sign


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_pairs_of_bits_lie_where_the_formula_says(case: Case) -> None:
    expected = {}
    for row, column in np.ndindex(case.unit):
        byte, shift = case.place(row, column, case.unit)
        expected[byte, (shift + 1, shift)] = ((row, column),)
    found = byte_map(case.layout, case.unit)
    assert {(field.byte, field.bits): field.weights for field in found.fields} == expected
    block = [] if case.block is None else [case.block[1], case.block[1] + 1]
    end = found.size - case.trailer
    assert list(found.scale) == (list(range(end, end + 4)) if case.trailer else block)


def test_bits_of_q1_0_rise_with_the_columns() -> None:
    expected = {(2 + i // 8, (i % 8,)): ((0, i),) for i in range(128)}
    assert {(field.byte, field.bits): field.weights for field in map_of("q1_0").fields} == expected
    assert map_of("q1_0").scale == (0, 1)


def test_digits_of_tq1_0_the_most_significant_first() -> None:
    expected = {}
    for first, start, digits, size in ((0, 0, 5, 32), (160, 32, 5, 16), (240, 48, 4, 4)):
        for m in range(size):
            expected[start + m] = tuple((0, first + n * size + m) for n in range(digits))
    assert {field.byte: field.weights for field in map_of("tq1_0").fields} == expected
    assert {field.bits for field in map_of("tq1_0").fields} == {(7, 6, 5, 4, 3, 2, 1, 0)}
    assert map_of("tq1_0").scale == (52, 53)


def test_nibbles_of_tl1_the_first_column_first() -> None:
    expected = []
    for column, block_row, block_column, rows, quad, lane in product(
        range(0, 32, 16), range(0, 64, 32), range(0, 16, 8), range(0, 32, 16), range(0, 8, 4), range(16)
    ):
        row, first = block_row + rows + lane, column + block_column + quad
        for bits, at in (((7, 6, 5, 4), first), ((3, 2, 1, 0), first + 2)):
            expected.append(BitField(len(expected) // 2, bits, ((row, at), (row, at + 1))))
    assert list(map_of("tl1").fields) == expected
    assert map_of("tl1").scale == (512, 513, 514, 515)


def test_signs_of_tl2_lie_in_uint16() -> None:
    signs = {field.weights: field for field in map_of("tl2").fields if len(field.bits) == 1}
    assert len(signs) == 32 * 64
    for row, triple in product(range(32), range(64)):
        weights = tuple((row, 3 * triple + i) for i in range(3))
        bit = 15 - (2 * (triple % 8) + row // 16)
        uint16 = 1024 + 2 * (16 * (triple // 8) + row % 16)
        assert signs[weights] == BitField(uint16 + bit // 8, (bit % 8,), weights)
    assert map_of("tl2").scale == (2048, 2049, 2050, 2051)


@every
def test_one_trit_moves_bits_of_its_fields_alone(name: str) -> None:
    layout, shape = EXAMPLES[name]
    fields = holding(name)
    generator = np.random.default_rng(7)
    trits = generator.choice([-1, 1], shape).astype(np.int8)
    before = np.unpackbits(np.frombuffer(layout.pack(trits), np.uint8))
    for row, column in zip(generator.integers(0, shape[0], 30), generator.integers(0, shape[1], 30), strict=True):
        changed = trits.copy()
        changed[row, column] *= -1
        moved = np.flatnonzero(before != np.unpackbits(np.frombuffer(layout.pack(changed), np.uint8)))
        allowed = {8 * field.byte + 7 - bit for field in fields[int(row), int(column)] for bit in field.bits}
        assert moved.size > 0
        assert set(moved.tolist()) <= allowed


class Swapped(I2S):
    """Columns 0 and 1 of every matrix change places: the mistake that a table beside the code would not show."""

    def _encode(self, codes: np.ndarray, scale: np.ndarray) -> bytes:
        swapped = codes.copy()
        swapped[:, [0, 1]] = codes[:, [1, 0]]
        return super()._encode(swapped, scale)


class Mixed(Sequential):
    """A bit that no single row and no single column accounts for."""

    def _encode(self, codes: np.ndarray, scale: np.ndarray) -> bytes:
        data = bytearray(super()._encode(codes, scale))
        data[0] ^= int(codes[1, 1]) & 1
        return bytes(data)


def test_the_map_is_the_packing_s_and_not_the_docstring_s() -> None:
    fields = byte_map(Swapped(), (1, 128)).fields
    assert fields[0] == BitField(0, (7, 6), ((0, 1),))
    assert fields[4] == BitField(1, (7, 6), ((0, 0),))


def test_a_bit_of_several_rows_and_columns_is_refused() -> None:
    error = refusal(lambda: byte_map(Mixed(), (2, 4)))
    assert error.kind == "byte-map"


def test_a_shape_that_the_packing_cannot_hold_is_refused() -> None:
    with pytest.raises(PackingError, match="packing-shape"):
        byte_map(packing("tq2_0"), (1, 255))


def test_a_packing_alone_says_which_bits_hold_nothing() -> None:
    layout: Packing = packing("hf")
    fields = byte_map(layout, (5, 1)).fields  # two rows of bytes; rows 5, 6, 7 are surplus
    assert [(field.byte, field.bits) for field in fields] == [
        (0, (5, 4)),
        (0, (3, 2)),
        (0, (1, 0)),
        (1, (3, 2)),
        (1, (1, 0)),
    ]
