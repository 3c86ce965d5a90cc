"""Some rows of a packed matrix, read without the others: the same codes, where rows have bytes of their own."""

import numpy as np
import pytest

from tritgold.formats.packings import packing
from tritgold.formats.packings.byte_map import EXAMPLES
from tritgold.formats.packings.q2_0 import Q10

SHAPE = (64, 256)  # which every layout holds
BY_ROWS = {"hf", "i2_s-128", "i2_s-64", "sglbitnt", "tq1_0", "tq2_0", "q2_0-64", "q2_0-128", "q1_0", "sequential-lsb",
           "sequential-msb", "torchao"}  # fmt: skip


def packed(layout, shape):
    trits = np.random.default_rng(5).integers(-1, 2, shape, np.int8)
    if isinstance(layout, Q10):
        trits = np.where(trits == 0, np.int8(1), trits)
    return np.frombuffer(layout.pack(trits, 0.5), np.uint8), (trits + 1).astype(np.uint8)


@pytest.mark.parametrize("name", EXAMPLES)
def test_rows_are_those_of_the_whole(name):
    layout, _ = EXAMPLES[name]
    data, codes = packed(layout, SHAPE)
    for rows in (slice(0, 64), slice(0, 1), slice(63, 64), slice(5, 40)):
        found = layout.row_codes(data, SHAPE, rows)
        assert (found is not None) == (name in BY_ROWS)
        if found is not None:
            np.testing.assert_array_equal(found, codes[rows])


def test_rows_that_four_does_not_divide():
    data, codes = packed(packing("hf"), shape := (10, 3))
    for first in range(10):
        for last in range(first + 1, 11):
            found = packing("hf").row_codes(data, shape, slice(first, last))
            np.testing.assert_array_equal(found, codes[first:last])


def test_rows_that_share_a_byte_are_not_read_alone():
    data, _ = packed(packing("i2_s"), shape := (2, 64))
    assert packing("i2_s").row_codes(data, shape, slice(0, 1)) is None
