"""The table and the shifts find the same codes, for every byte value in every place."""

import math

import numpy as np
import pytest
from pair_layouts import CASES, Case
from refusals import refusal
from trit_layouts import golden_matrix

from tritgold.formats.packings import packing
from tritgold.formats.packings.table_unpacking import code_table, codes_by_table

every = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def test_the_table_against_the_digits_of_every_byte() -> None:
    for byte in range(256):
        digits = [byte // 64, byte // 16 % 4, byte // 4 % 4, byte % 4]
        assert code_table(high_first=True)[byte].tolist() == digits
        assert code_table()[byte].tolist() == digits[::-1]
        assert code_table((7, 5, 3, 1))[byte].tolist() == [7 - 2 * digit for digit in digits[::-1]]


@every
def test_all_bytes_in_all_places(case: Case) -> None:
    """256 times the unit, so that each place of a unit meets each byte value."""
    shape = (16 * case.unit[0], 16 * case.unit[1])
    shape = (math.lcm(shape[0], 4), shape[1])
    layout = case.layout
    rng = np.random.default_rng(256)
    data = np.frombuffer(layout.pack(np.zeros(shape, np.int8)), np.uint8).copy()
    for _ in range(20):
        holders = np.unique([case.place(row, column, shape)[0] for row, column in np.ndindex(shape)])
        data[holders] = rng.permutation(np.resize(np.arange(256, dtype=np.uint8), holders.size))
        codes = codes_by_table(layout, data, shape)
        assert codes.dtype == np.uint8
        assert codes.shape == shape
        assert np.array_equal(codes, layout.codes(data, shape))


@every
def test_the_table_against_the_index_formula(case: Case) -> None:
    trits = golden_matrix(2 * case.unit[0], 3 * case.unit[1])
    packed = case.layout.pack(trits)
    by_table = codes_by_table(case.layout, packed, trits.shape).view(np.int8) - np.int8(1)
    assert np.array_equal(by_table, case.decode(packed, trits.shape))


@pytest.mark.parametrize(("name", "shape"), [("hf", (5, 3)), ("i2_s", (128, 3)), ("hf", (1, 1))])
def test_ragged_shapes(name: str, shape: tuple[int, int]) -> None:
    trits = golden_matrix(*shape)
    by_table = codes_by_table(packing(name), packing(name).pack(trits), shape)
    assert np.array_equal(by_table.view(np.int8) - np.int8(1), trits)


@pytest.mark.parametrize("name", ["q1_0", "f32", "f16", "bf16"])
def test_a_layout_without_a_table_says_so(name: str) -> None:
    layout = packing(name)
    error = refusal(lambda: codes_by_table(layout, bytes(layout.packed_size((2, 128))), (2, 128)))
    assert error.kind == "no-table"


def test_a_wrong_length_is_refused_as_ever() -> None:
    assert refusal(lambda: codes_by_table(packing("hf"), bytes(3), (4, 4))).kind == "packed-length"
