"""bf16 against ml_dtypes: every pattern one way, ties and random bits the other."""

import ml_dtypes
import numpy as np
import pytest

from tritgold.rounding import bf16_to_f32, f32_to_bf16


def theirs(values: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # a signalling NaN, which ml_dtypes' cast makes quiet
        return values.astype(ml_dtypes.bfloat16).view(np.uint16)


def assert_equal_patterns(ours: np.ndarray, expected: np.ndarray, values: np.ndarray) -> None:
    """Bit for bit; of NaN only that it is one, with the sign kept: the payload is nobody's business."""
    nan = np.isnan(values)
    assert np.array_equal(ours[~nan], expected[~nan])
    back = bf16_to_f32(ours[nan])
    assert np.isnan(back).all()
    assert np.array_equal(np.signbit(back), np.signbit(values[nan]))


def test_widening_all_65536_patterns() -> None:
    bits = np.arange(65536, dtype=np.uint16)
    expected = bits.view(ml_dtypes.bfloat16).astype(np.float32)
    assert np.array_equal(bf16_to_f32(bits), expected, equal_nan=True)
    assert np.array_equal(bf16_to_f32(bits).view(np.uint32), bits.astype(np.uint32) << 16)


def test_narrowing_what_was_widened_changes_nothing() -> None:
    bits = np.arange(65536, dtype=np.uint16)
    values = bf16_to_f32(bits)
    assert_equal_patterns(f32_to_bf16(values), bits, values)


def test_narrowing_every_tie_and_its_neighbours() -> None:
    """The midpoint after each of the 65,536 patterns, and one float32 to either side."""
    middle = (np.arange(65536, dtype=np.uint32) << 16) | 0x8000
    for step in (-1, 0, 1):
        values = (middle + np.uint32(step % 2**32)).view(np.float32)
        assert_equal_patterns(f32_to_bf16(values), theirs(values), values)


def test_narrowing_random_patterns() -> None:
    """A million of all 2**32: NaN, infinities and denormals among them."""
    values = np.random.default_rng(16).integers(0, 2**32, 1_000_000, np.uint32).view(np.float32)
    assert np.isnan(values).sum() > 1000
    assert (np.abs(values) < np.finfo(np.float32).tiny).sum() > 1000
    assert_equal_patterns(f32_to_bf16(values), theirs(values), values)


@pytest.mark.parametrize(
    ("value", "bits"),
    [
        (1.0, 0x3F80),
        (-2.0, 0xC000),
        (1.00390625, 0x3F80),  # 1 + 2**-8, a tie: to the even pattern
        (1.01171875, 0x3F82),  # 1 + 3 * 2**-8, a tie: up to the even pattern
        (3.4028235e38, 0x7F80),  # the largest float32 rounds to infinity
        (3.3895314e38, 0x7F7F),  # the largest bf16
        (np.inf, 0x7F80),
        (-np.inf, 0xFF80),
        (0.0, 0x0000),
        (-0.0, 0x8000),
        (1e-45, 0x0000),
        (9.2e-41, 0x0001),  # the smallest bf16, a denormal
    ],
)
def test_known_values(value: float, bits: int) -> None:
    assert f32_to_bf16(np.array([value], np.float32))[0] == bits


def test_truncation_would_be_seen() -> None:
    values = np.random.default_rng(1).normal(size=1000).astype(np.float32)
    truncated = (values.view(np.uint32) >> 16).astype(np.uint16)
    assert (truncated != f32_to_bf16(values)).mean() > 0.4


@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 3)])
def test_shapes_are_kept(shape: tuple[int, ...]) -> None:
    values = np.full(shape, 1.5, np.float32)
    bits = f32_to_bf16(values)
    assert (bits.shape, bits.dtype) == (shape, np.uint16)
    assert np.array_equal(bf16_to_f32(bits), values)
    assert bf16_to_f32(bits).shape == shape


def test_a_scalar_nan_raises_no_warning() -> None:
    """NumPy warns of integer overflow for scalars only; the carry of -NaN overflows by design."""
    assert np.isnan(bf16_to_f32(f32_to_bf16(np.array(0xFFFFFFFF, np.uint32).view(np.float32))))


def test_arguments_are_left_untouched_and_may_be_strided() -> None:
    values = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    before = values.copy()
    assert np.array_equal(f32_to_bf16(values.T[::2]), theirs(np.ascontiguousarray(values.T[::2])))
    assert np.array_equal(values, before)
