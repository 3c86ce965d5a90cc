"""F32, F16, BF16: floats that are ternary up to one scale, against NumPy's and ml_dtypes' own floats."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from refusals import refusal
from trit_layouts import golden_matrix

from tritgold.formats.packings import packing

DTYPES: dict[str, Any] = {"f32": np.dtype("<f4"), "f16": np.dtype("<f2"), "bf16": ml_dtypes.bfloat16}
SCALES = {
    "f32": [1.0, 0.37, 1e-45, 3e38],
    "f16": [1.0, 0.375, 65504.0, 2.0**-24],
    "bf16": [1.0, 1.2109375, 2.0**-130, 3 * 2.0**126],
}
every = pytest.mark.parametrize("name", DTYPES)


@every
def test_the_bytes_are_trit_times_scale(name: str) -> None:
    trits = golden_matrix(5, 7)
    for scale in SCALES[name]:
        packed = packing(name).pack(trits, scale)
        assert packed == (trits * np.float32(scale) + np.float32(0)).astype(DTYPES[name]).tobytes()
        tensor = packing(name).unpack(packed, trits.shape)
        assert np.array_equal(tensor.trits, trits)
        assert tensor.scale == np.float32(scale)
        assert tensor.scale.shape == ()


@every
def test_every_finite_16_bit_magnitude_is_kept(name: str) -> None:
    row = np.array([[0, 1, -1]], np.int8)
    patterns = np.arange(1, 0x7F80 if name != "f16" else 0x7C00, 7, dtype=np.uint16)
    values = patterns.view(DTYPES["f16" if name == "f16" else "bf16"]).astype(np.float32)
    for value in values:
        tensor = packing(name).unpack(packing(name).pack(row, value), row.shape)
        assert tensor.scale == value
        assert np.array_equal(tensor.trits, row)


@pytest.mark.parametrize(
    ("name", "scale", "kind"),
    [
        ("f16", 0.37, "scale-rounded"),
        ("f16", 1 + 2**-11, "scale-rounded"),
        ("f16", 65520.0, "scale-overflow"),
        ("f16", 1e-9, "scale-underflow"),
        ("bf16", 0.37, "scale-rounded"),
        ("bf16", 1 + 2**-8, "scale-rounded"),
        ("bf16", 3.4e38, "scale-overflow"),
        ("bf16", 1e-45, "scale-underflow"),
        ("f32", 1e300, "scale-non-finite"),
        ("f32", np.nan, "scale-non-finite"),
        ("f16", -np.inf, "scale-non-finite"),
    ],
)
def test_a_scale_the_type_does_not_hold_is_refused_by_name(name: str, scale: float, kind: str) -> None:
    assert refusal(lambda: packing(name).pack(golden_matrix(2, 3), scale)).kind == kind


@every
def test_a_scale_of_0_over_trits_and_scales_of_blocks_are_refused(name: str) -> None:
    trits = golden_matrix(2, 4)
    assert refusal(lambda: packing(name).pack(trits, 0.0)).kind == "scale-zero"
    assert refusal(lambda: packing(name).pack(trits, np.ones((2, 2), np.float32))).kind == "scale-shape"


@every
def test_zero_weights_have_scale_0(name: str) -> None:
    zeros = np.zeros((2, 3), np.int8)
    for scale in (0.0, 0.5):
        tensor = packing(name).unpack(packing(name).pack(zeros, scale), zeros.shape)
        assert not tensor.trits.any()
        assert tensor.scale == 0


@every
def test_minus_0_is_a_zero(name: str) -> None:
    floats = np.array([[-0.0, 0.5, -0.5, 0.0]], np.float32).astype(DTYPES[name])
    tensor = packing(name).unpack(floats.tobytes(), (1, 4))
    assert tensor.trits.tolist() == [[0, 1, -1, 0]]


@every
def test_a_negative_scale_comes_back_as_the_same_weights(name: str) -> None:
    trits = golden_matrix(3, 4)
    packed = packing(name).pack(trits, -0.5)
    assert b"\x80" not in packing(name).pack(np.zeros((1, 1), np.int8), -0.5)
    tensor = packing(name).unpack(packed, trits.shape)
    assert tensor.scale == 0.5
    assert np.array_equal(tensor.dense(), trits * np.float32(-0.5))


@every
@pytest.mark.parametrize("other", [0.25, -1.0, 2.0**-14])
def test_two_magnitudes_are_not_ternary(name: str, other: float) -> None:
    floats = golden_matrix(4, 5) * np.float32(0.5)
    floats[2, 3] = floats[3, 1] = other
    size = np.dtype(DTYPES[name]).itemsize
    error = refusal(lambda: packing(name).unpack(floats.astype(DTYPES[name]).tobytes(), (4, 5)))
    assert error.kind == "not-ternary"
    assert f"[2, 3], byte {13 * size}: found {other}, expected 0 or +-0.5" in str(error)
    assert "--quantize absmean" in str(error)
    assert packing(name).codes(floats.astype(DTYPES[name]).tobytes(), (4, 5))[2, 3] > 2


def test_float32_that_differ_in_the_last_bit_are_not_ternary() -> None:
    """trit / (1 / s) of a sloppy converter: an engine would round such a matrix on, silently."""
    floats = np.array([[0.1, np.nextafter(np.float32(0.1), np.float32(1))]], np.float32)
    assert refusal(lambda: packing("f32").unpack(floats.tobytes(), (1, 2))).kind == "not-ternary"


@every
@pytest.mark.parametrize("wild", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", [(0, 0), (1, 2)])
def test_what_is_not_finite_is_refused_with_its_place(name: str, wild: float, where: tuple[int, int]) -> None:
    floats = np.full((2, 3), 0.5, np.float32)
    floats[where] = wild
    data = floats.astype(DTYPES[name]).tobytes()
    for act in (packing(name).check, packing(name).unpack):
        error = refusal(lambda act=act: act(data, (2, 3)))
        assert error.kind == "weight-non-finite"
        assert f"[{where[0]}, {where[1]}]" in str(error)
        assert str(wild) in str(error)
    assert packing(name).codes(data, (2, 3))[where] > 2


@every
def test_a_matrix_of_nothing_but_nan_is_refused(name: str) -> None:
    data = np.full((2, 2), np.nan, np.float32).astype(DTYPES[name]).tobytes()
    assert refusal(lambda: packing(name).check(data, (2, 2))).kind == "weight-non-finite"


@every
@pytest.mark.parametrize("change", [-1, 1, 4])
def test_wrong_lengths_are_refused(name: str, change: int) -> None:
    data = packing(name).pack(golden_matrix(3, 5)) + bytes(8)
    size = packing(name).packed_size((3, 5))
    assert size == 15 * np.dtype(DTYPES[name]).itemsize
    assert refusal(lambda: packing(name).unpack(data[: size + change], (3, 5))).kind == "packed-length"


@every
def test_bytes_at_an_odd_address_and_non_contiguous_trits(name: str) -> None:
    trits = golden_matrix(9, 6).T[::2]
    packed = packing(name).pack(trits, 0.5)
    shifted = np.frombuffer(b"\xff" + packed, np.uint8)[1:]
    assert np.array_equal(packing(name).unpack(shifted, trits.shape).trits, trits)
    assert packing(name).byte_of(1, 2, trits.shape) == 11 * np.dtype(DTYPES[name]).itemsize


@every
def test_what_is_no_trit_is_refused(name: str) -> None:
    assert refusal(lambda: packing(name).pack(np.array([[2]], np.int8))).kind == "not-a-trit"
    assert refusal(lambda: packing(name).pack(np.array([[0.5]]))).kind == "trits-dtype"


# ---- scales of rows ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["f32", "f16", "bf16"])
def test_rows_may_have_magnitudes_of_their_own(name: str) -> None:
    layout = packing(name, scales_of="rows")
    trits = np.array([[1, 0, -1], [0, -1, 1], [0, 0, 0]], np.int8)
    scales = np.array([[0.5], [3], [0]], np.float32)
    data = layout.pack(trits, scales)
    dtype = {"f32": "<f4", "f16": "<f2", "bf16": ml_dtypes.bfloat16}[name]
    assert np.frombuffer(data, dtype).astype(np.float32).reshape(3, 3).tolist() == (trits * scales).tolist()
    tensor = layout.unpack(data, (3, 3))
    assert tensor.trits.tolist() == trits.tolist()
    assert tensor.scale.tolist() == scales.tolist()
    assert packing(name).pack(trits, 0.5) == layout.pack(trits, 0.5)
    assert refusal(lambda: packing(name).unpack(data, (3, 3))).kind == "not-ternary"


def test_two_magnitudes_in_a_row_are_refused_with_their_place() -> None:
    data = np.array([[0.5, 0.5], [3, -1]], np.float32).tobytes()
    error = refusal(lambda: packing("f32", scales_of="rows").unpack(data, (2, 2)))
    assert error.kind == "not-ternary"
    assert "[1, 1], byte 12" in str(error)
    assert "0 or +-3.0" in str(error)


def test_scales_of_rows_that_a_float_type_cannot_hold() -> None:
    layout, trits = packing("f16", scales_of="rows"), np.ones((2, 2), np.int8)
    assert refusal(lambda: layout.pack(trits, np.array([[0.5], [1 / 3]], np.float32))).kind == "scale-rounded"
    assert refusal(lambda: layout.pack(trits, np.array([[0.5], [0]], np.float32))).kind == "scale-zero"
    assert refusal(lambda: layout.pack(trits, np.ones((2, 2), np.float32))).kind == "scale-shape"
    assert refusal(lambda: packing("f16", scales_of="columns")).kind == "packing-option"
