"""A stored weight read a few rows at a time has the trits and the scale of the whole."""

from pathlib import Path

import numpy as np
import pytest
from trit_layouts import place

from tritgold.errors import PackingError
from tritgold.formats.container import StoredTensor
from tritgold.formats.packings import packing
from tritgold.formats.stored_weights import PackedWeight
from tritgold.ternary import ReadByRows

SHAPE = (16, 256)
TRITS = np.random.default_rng(4).integers(-1, 2, SHAPE, np.int8)
PIECES = [slice(0, 16), slice(3, 4), slice(5, 13)]


def weight(name, scales=0.5, broken=None, **options):
    data = np.frombuffer(packing(name).pack(TRITS, scales), np.uint8).copy()
    if broken is not None:
        byte, shift = place(name, *broken, SHAPE)
        data[byte] |= 3 << shift
    return PackedWeight(packing(name), StoredTensor(Path("m"), "w", "U8", SHAPE, 0, data), SHAPE, **options)


@pytest.mark.parametrize("name", ["i2_s", "tq2_0", "hf"])
@pytest.mark.parametrize("order", [None, np.random.default_rng(6).permutation(16)])
def test_rows_are_those_of_the_whole(name, order):
    given = weight(name, rows=order, scale=np.float32(3))
    assert isinstance(given, ReadByRows)
    whole, found = given.ternary(), given.by_rows()
    assert found.scale.dtype == np.float32
    assert found.scale == whole.scale
    for rows in PIECES:
        trits = found.trits(rows)
        assert trits.dtype == np.int8
        np.testing.assert_array_equal(trits, whole.trits[rows])


def test_where_the_whole_matrix_is_needed():
    assert weight("gpu_int2").by_rows() is None
    scales = np.full((16, 1), 0.5, np.float32)
    assert weight("tq2_0", scales).by_rows() is not None
    scales[3] = 2
    assert weight("tq2_0", scales).by_rows() is None
    data = packing("i2_s").pack(TRITS, 0.5)
    wrong = np.frombuffer(data[:-32] + np.float32(np.nan).tobytes() + data[-28:], np.uint8)
    given = PackedWeight(packing("i2_s"), StoredTensor(Path("m"), "w", "U8", SHAPE, 0, wrong), SHAPE)
    assert given.by_rows() is None
    with pytest.raises(PackingError, match="not finite"):
        given.ternary()


@pytest.mark.parametrize("name", ["i2_s", "tq2_0", "hf"])
def test_a_code_that_is_no_trit(name):
    found = weight(name, broken=(7, 30)).by_rows()
    np.testing.assert_array_equal(found.trits(slice(0, 7)), TRITS[:7])
    with pytest.raises(PackingError, match=r"m: tensor 'w'.*first at \[7, 30\].*code-3"):
        found.trits(slice(4, 9))
    as_zero = weight(name, broken=(7, 30), code3_as_zero=True)
    assert as_zero.by_rows().trits(slice(7, 8))[0, 30] == 0
    np.testing.assert_array_equal(as_zero.by_rows().trits(slice(0, 16)), as_zero.ternary().trits)
