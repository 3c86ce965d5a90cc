"""I2_S: the published example block, and what the known misreadings make of it."""

import numpy as np
import pytest
from trit_layouts import golden_matrix

from tritgold.formats.packings import packing

ROW = np.zeros((1, 128), np.int8)
ROW[0, [0, 1, 32, 127]] = [1, -1, 1, -1]


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("i2_s", {}, "a515" + "55" * 29 + "54" + "0000803f" + "00" * 28),
        ("i2_s", {"block": 64}, "9915" + "55" * 29 + "54" + "0000803f" + "00" * 28),
        ("sglbitnt", {}, "a515" + "55" * 29 + "54"),
    ],
)
def test_the_example_block(name: str, options: dict[str, int], expected: str) -> None:
    """+1 at 0, -1 at 1, +1 at 32, -1 at 127 of 128 weights."""
    layout = packing(name, **options)
    assert layout.pack(ROW, 1.0).hex() == expected
    assert np.array_equal(layout.unpack(bytes.fromhex(expected), (1, 128)).trits, ROW)


@pytest.mark.parametrize(
    ("name", "options", "where"),
    [
        ("i2_s", {"block": 128}, [0, 1, 32, 127]),
        ("i2_s", {"block": 64}, [0, 1, 16, 127]),
        ("sequential", {"order": "lsb"}, [2, 3, 7, 124]),
        ("sequential", {"order": "msb"}, [0, 1, 4, 127]),
    ],
)
def test_where_each_reading_sees_the_four_weights(name: str, options: dict[str, int | str], where: list[int]) -> None:
    layout = packing(name, **options)
    data = packing("i2_s").pack(ROW)
    trits = layout.unpack(data if name == "i2_s" else data[:-32], (1, 128)).trits
    assert np.flatnonzero(trits).tolist() == where
    assert sorted(trits[0].tolist()) == sorted(ROW[0].tolist())


def test_64_weights_read_for_128_permute_the_columns_of_each_128() -> None:
    """Position 64 h + 16 g + r receives the true weight 32 g + 16 h + r."""
    trits = golden_matrix(4, 256)
    read = packing("i2_s", block=64).unpack(packing("i2_s").pack(trits), trits.shape).trits
    source = np.array([32 * g + 16 * h + r for h in range(2) for g in range(4) for r in range(16)])
    assert np.array_equal(read, trits.reshape(4, 2, 128)[:, :, source].reshape(4, 256))
    assert not np.array_equal(read, trits)


def test_no_histogram_sees_64_weights_read_for_128() -> None:
    """Half the places agree, sum and count are the truth's, and only a dot product tells."""
    rng = np.random.default_rng(0)
    trits = rng.integers(-1, 2, 1024)
    activations = rng.integers(-127, 128, 1024)
    data = packing("i2_s").pack(trits.astype(np.int8).reshape(1, -1))
    read = packing("i2_s", block=64).unpack(data, (1, 1024)).trits[0].astype(np.int64)
    assert round(float((read == trits).mean()), 2) == 0.49
    assert (read.sum(), trits.sum()) == (37, 37)
    assert (np.count_nonzero(read), np.count_nonzero(trits)) == (685, 685)
    assert (read @ activations, trits @ activations) == (2596, 3220)


def test_four_rows_a_byte_have_the_size_and_the_histogram_of_i2_s() -> None:
    trits = golden_matrix(256, 512)
    packed = packing("i2_s_4rows").pack(trits, 0.37)
    assert len(packed) == packing("i2_s").packed_size(trits.shape)
    read = packing("i2_s").unpack(packed, trits.shape)
    assert read.scale == np.float32(0.37)
    assert not np.array_equal(read.trits, trits)
    assert np.array_equal(np.bincount(read.trits.ravel() + 1), np.bincount(trits.ravel() + 1))


@pytest.mark.parametrize(("byte", "trit"), [(0x55, 0), (0x00, -1), (0xAA, 1)])
@pytest.mark.parametrize("options", [{"block": 128}, {"block": 64}])
def test_uniform_bytes(options: dict[str, int], byte: int, trit: int) -> None:
    data = bytes([byte]) * 64 + np.array(0.5, "<f4").tobytes() + b"\xff" * 28
    tensor = packing("i2_s", **options).unpack(data, (2, 128))
    assert (tensor.trits == trit).all()
    assert tensor.scale == 0.5
