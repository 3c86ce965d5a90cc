"""Q2_0 and Q1_0: the two block sizes of type 42, one bit a weight, and the scale of each block."""

import numpy as np
import pytest
from refusals import refusal
from trit_layouts import golden_matrix

from tritgold.errors import TritgoldWarning
from tritgold.formats.packings import packing


def signs(rows: int, columns: int) -> np.ndarray:
    return np.where(golden_matrix(rows, columns) < 0, -1, 1).astype(np.int8)


def weight(data: bytes, i: int) -> float:
    """Weight i of Q1_0 bytes, from the published layout: d first, then 16 bytes of bits, the lowest first."""
    block = data[18 * (i // 128) : 18 * (i // 128) + 18]
    d = float(np.frombuffer(block[:2], "<f2")[0])
    return d if block[2 + i % 128 // 8] >> (i % 8) & 1 else -d


@pytest.mark.parametrize(("block", "packed"), [(64, "003c" + "52" + "55" * 15), (128, "003c" + "52" + "55" * 31)])
def test_an_example_block_of_q2_0(block: int, packed: str) -> None:
    row = np.zeros((1, block), np.int8)
    row[0, :2] = [1, -1]
    assert packing("q2_0", block=block).pack(row, 1.0).hex() == packed


def test_the_two_block_sizes_of_type_42_differ_in_size_and_are_never_mistaken() -> None:
    """31,457,280 weights: 491,520 bytes between the readings; a file shows it as a wrong offset of the next tensor."""
    small, large = packing("q2_0", block=64), packing("q2_0", block=128)
    assert small.packed_size((12288, 2560)) - large.packed_size((12288, 2560)) == 491_520
    trits = golden_matrix(4, 256)
    for written, read in ((small, large), (large, small)):
        assert (
            refusal(lambda written=written, read=read: read.unpack(written.pack(trits), (4, 256))).kind
            == "packed-length"
        )
    assert np.array_equal(
        large.unpack(large.pack(trits, 0.5), trits.shape).dense(),
        small.unpack(small.pack(trits, 0.5), trits.shape).dense(),
    )


def test_scales_of_wider_blocks_are_repeated_and_of_narrower_ones_refused() -> None:
    trits = golden_matrix(2, 256)
    wide, narrow = np.array([[0.5, 0.25], [2, 4]], np.float32), np.ones((2, 4), np.float32)
    packed = packing("q2_0", block=64).pack(trits, wide)
    assert packing("q2_0").scales(packed, (2, 256)).tolist() == [[0.5, 0.5, 0.25, 0.25], [2, 2, 4, 4]]
    error = refusal(lambda: packing("q2_0", block=128).pack(trits, narrow))
    assert error.kind == "scale-shape"
    assert "found [2, 4], expected [] or [2, 2]" in str(error)


@pytest.mark.parametrize("name", ["q2_0", "q1_0"])
@pytest.mark.parametrize(
    ("scale", "kind"), [(65520.0, "scale-overflow"), (-1e5, "scale-overflow"), (1e-9, "scale-underflow")]
)
def test_a_scale_that_float16_cannot_hold_is_refused(name: str, scale: float, kind: str) -> None:
    error = refusal(lambda: packing(name).pack(signs(1, 128), scale))
    assert error.kind == kind
    assert name in str(error)


def test_the_scale_beyond_float16_is_the_one_named() -> None:
    scales = np.array([[1.0, -1e5]], np.float32)
    assert "found -100000.0" in str(refusal(lambda: packing("q2_0", block=128).pack(golden_matrix(1, 256), scales)))


@pytest.mark.parametrize("shape", [(1, 128), (3, 256), (2, 384)])
def test_q1_0_bits_lie_where_the_formula_says(shape: tuple[int, int]) -> None:
    trits = signs(*shape)
    packed = packing("q1_0").pack(trits, 0.5)
    assert len(packed) == packing("q1_0").packed_size(shape) == trits.size // 128 * 18
    assert [weight(packed, i) for i in range(trits.size)] == (trits.ravel() * 0.5).tolist()
    tensor = packing("q1_0").unpack(packed, shape)
    assert np.array_equal(tensor.trits, trits)
    assert (tensor.scale == 0.5).all()


def test_one_negative_weight_clears_one_bit_of_q1_0() -> None:
    layout, ones = packing("q1_0"), np.ones((1, 128), np.int8)
    for column in range(128):
        row = ones.copy()
        row[0, column] = -1
        changed = {i: a ^ b for i, (a, b) in enumerate(zip(layout.pack(row), layout.pack(ones), strict=True)) if a != b}
        assert changed == {2 + column // 8: 1 << column % 8}
        assert layout.byte_of(0, column, (1, 128)) == 2 + column // 8


def test_every_byte_of_q1_0_is_legal() -> None:
    data = b"".join(b"\x00\x38" + bytes(range(start, start + 16)) for start in range(0, 256, 16))
    layout = packing("q1_0")
    layout.check(data, (16, 128))
    assert [weight(data, i) for i in range(2048)] == layout.unpack(data, (16, 128)).dense().ravel().tolist()


@pytest.mark.parametrize(("row", "column"), [(0, 0), (1, 130), (1, 255)])
def test_q1_0_refuses_a_zero_among_others(row: int, column: int) -> None:
    trits = signs(2, 256)
    trits[row, column] = 0
    error = refusal(lambda: packing("q1_0").pack(trits))
    assert error.kind == "zero-trit"
    assert f"[{row}, {column}]" in str(error)


def test_a_block_of_zeros_is_held_by_a_scale_of_0() -> None:
    trits = signs(2, 256)
    trits[1, :128] = 0
    packed = packing("q1_0").pack(trits, 0.5)
    assert packed[36:54] == bytes(2) + b"\xff" * 16
    tensor = packing("q1_0").unpack(packed, trits.shape)
    assert np.array_equal(tensor.trits, trits)
    assert tensor.scale.tolist() == [[0.5, 0.5], [0, 0.5]]
    assert tensor.with_one_scale().scale == 0.5


@pytest.mark.parametrize("zero", [b"\x00\x00", b"\x00\x80"])
def test_whatever_the_bits_a_scale_of_0_is_zero_weights(zero: bytes) -> None:
    assert not packing("q1_0").unpack(zero + bytes(range(16)), (1, 128)).trits.any()


def test_q1_0_refuses_to_erase_trits_with_a_scale_of_0() -> None:
    assert refusal(lambda: packing("q1_0").pack(signs(1, 128), 0.0)).kind == "scale-zero"
    assert packing("q1_0").pack(np.zeros((1, 128), np.int8), 0.0)[:2] == bytes(2)


@pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf])
def test_a_block_scale_of_q1_0_that_is_not_finite_is_refused(scale: float) -> None:
    data = bytearray(packing("q1_0").pack(signs(2, 256), 0.5))
    data[54:56] = np.array(scale, "<f2").tobytes()
    error = refusal(lambda: packing("q1_0").unpack(bytes(data), (2, 256)))
    assert error.kind == "scale-non-finite"
    assert "[1, 1]" in str(error)


def test_a_negative_scale_of_q1_0_loads_with_a_warning() -> None:
    data = packing("q1_0").pack(np.ones((1, 128), np.int8), -0.5)
    with pytest.warns(TritgoldWarning, match="negative scale"):
        assert (packing("q1_0").unpack(data, (1, 128)).dense() == -0.5).all()
    assert weight(data, 7) == -0.5


@pytest.mark.parametrize("columns", [1, 18, 127, 129, 160, 255, 257])
@pytest.mark.parametrize("change", [0, 1])
def test_q1_0_holds_whole_blocks_alone(columns: int, change: int) -> None:
    error = refusal(lambda: packing("q1_0").pack(np.ones((2, columns), np.int8)))
    assert error.kind == "packing-shape"
    assert f"{columns} is not" in str(error)
    assert refusal(lambda: packing("q1_0").unpack(bytes(17 + 2 * change), (1, 128))).kind == "packed-length"
