"""FP8 against ml_dtypes, bit for bit: the table of 256, every float16 and bfloat16, random float32, every midpoint."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from tritgold.errors import ConfigError
from tritgold.kv_cache.base import Sizes
from tritgold.kv_cache.fp8 import E4M3, E5M2, Fp8E4M3, Fp8E5M2, Fp8Format
from tritgold.kv_cache.kv_scheme import kv_scheme

THEIRS = {"e4m3": (E4M3, ml_dtypes.float8_e4m3fn), "e5m2": (E5M2, ml_dtypes.float8_e5m2)}
BOTH = pytest.mark.parametrize(("ours", "theirs"), THEIRS.values(), ids=THEIRS)
RNG = np.random.default_rng(8)


def assert_same_codes(ours: Fp8Format, theirs: type, x: np.ndarray) -> None:
    """x: of any float type that ml_dtypes narrows in one step. Saturation is clipping, before the cast."""
    wide = x.astype(np.float32)
    nan = np.isnan(wide)
    largest = x.dtype.type(ours.largest)
    expected = np.clip(x[~nan], -largest, largest).astype(theirs).view(np.uint8)
    got = ours.encode(wide)
    assert np.array_equal(got[~nan], expected)
    assert np.isnan(got[nan].view(theirs).astype(np.float32)).all()


@BOTH
def test_the_number_of_every_code(ours: Fp8Format, theirs: type) -> None:
    expected = np.arange(256, dtype=np.uint8).view(theirs).astype(np.float32)
    assert np.array_equal(ours.table(), expected, equal_nan=True)
    assert np.array_equal(np.signbit(ours.table()[:256:128]), [False, True]), "two zeros"
    assert ours.largest == float(ml_dtypes.finfo(theirs).max)


@BOTH
def test_every_float16_and_every_bfloat16(ours: Fp8Format, theirs: type) -> None:
    bits = np.arange(65536, dtype=np.uint16)
    with np.errstate(invalid="ignore"):  # signalling NaN
        assert_same_codes(ours, theirs, bits.view(np.float16))
        assert_same_codes(ours, theirs, bits.view(ml_dtypes.bfloat16))


@BOTH
def test_random_float32(ours: Fp8Format, theirs: type) -> None:
    """All exponents, and a million where the numbers are."""
    anything = RNG.integers(0, 2**32, 300_000, np.uint32).view(np.float32)
    with np.errstate(invalid="ignore"):
        assert_same_codes(ours, theirs, anything)
    inside = np.ldexp(RNG.uniform(-1, 1, 1_000_000), RNG.integers(-20, 18, 1_000_000)).astype(np.float32)
    assert (np.abs(inside) < ours.table()[1]).sum() > 1000, "numbers below the smallest code"
    assert_same_codes(ours, theirs, inside)


@BOTH
def test_every_midpoint_and_its_neighbours(ours: Fp8Format, theirs: type) -> None:
    """The only float32 numbers where rounding is a question; a midpoint goes to the even code."""
    finite = ours.magnitudes()
    middle = (finite[1:] + finite[:-1]) / 2
    around = np.concatenate([middle, np.nextafter(middle, np.float32(0)), np.nextafter(middle, np.float32(np.inf))])
    assert_same_codes(ours, theirs, np.concatenate([around, -around]).astype(np.float32))
    assert (ours.encode(middle) % 2 == 0).all()


@BOTH
def test_the_nearest_number_by_exact_fractions(ours: Fp8Format, theirs: type) -> None:
    numbers = [Fraction(float(number)) for number in ours.magnitudes()]
    for x in np.ldexp(RNG.uniform(0, 1, 80), RNG.integers(-12, 8, 80)).astype(np.float32):
        distances = [abs(number - Fraction(float(x))) for number in numbers]
        nearest = [code for code, distance in enumerate(distances) if distance == min(distances)]
        assert ours.encode(np.array([x]))[0] == next(code for code in nearest if len(nearest) == 1 or code % 2 == 0)


@pytest.mark.parametrize(
    ("ours", "value", "code"),
    [
        (E4M3, 448.0, 0x7E), (E4M3, 464.0, 0x7E), (E4M3, 1e30, 0x7E), (E4M3, np.inf, 0x7E), (E4M3, -np.inf, 0xFE),
        (E4M3, 2.0**-9, 0x01), (E4M3, 2.0**-10, 0x00), (E4M3, 1.5 * 2.0**-9, 0x02), (E4M3, -0.0, 0x80),
        (E4M3, np.nan, 0x7F), (E5M2, 57344.0, 0x7B), (E5M2, 61440.0, 0x7B), (E5M2, np.inf, 0x7B), (E5M2, -1e9, 0xFB),
        (E5M2, 2.0**-16, 0x01), (E5M2, 2.0**-17, 0x00), (E5M2, 1.0, 0x3C),
    ],
)  # fmt: skip
def test_known_codes(ours: Fp8Format, value: float, code: int) -> None:
    assert ours.encode(np.array([value], np.float32))[0] == code


def test_a_cast_that_does_not_saturate_would_be_seen() -> None:
    """What ml_dtypes gives without clipping first: NaN in one format, infinity in the other."""
    x = np.array([1000.0, 1e6], np.float32)
    assert np.isnan(x[:1].astype(ml_dtypes.float8_e4m3fn).astype(np.float32)).all()
    assert np.isinf(x[1:].astype(ml_dtypes.float8_e5m2).astype(np.float32)).all()


@BOTH
def test_rows_hold_the_codes_of_x_over_scale_head_by_head(ours: Fp8Format, theirs: type) -> None:
    x = (RNG.standard_normal((5, 2, 6)) * 900).astype(np.float32)
    scheme = (Fp8E4M3 if ours is E4M3 else Fp8E5M2)(k_scale=(0.3, 7.0), v_scale=2.0)
    for layer, side, scale in ((0, "k", 0.3), (1, "k", 7.0), (0, "v", 2.0), (1, "v", 2.0)):
        s = np.float32(scale)
        rows = scheme.store(x, layer, side)  # type: ignore[arg-type]
        expected = np.clip(x / s, -ours.largest, ours.largest).astype(theirs)
        assert rows.shape == (5, 12)
        assert all(rows[t, 6 * h + c] == expected[t, h, c].view(np.uint8) for t, h, c in np.ndindex(5, 2, 6))
        loaded = scheme.load(rows, Sizes(2, 2, 6), layer, side)  # type: ignore[arg-type]
        assert np.array_equal(loaded, expected.astype(np.float32) * s)


def test_nothing_is_too_large_even_with_a_tiny_scale() -> None:
    x = np.array([[[3e38, -3e38]]], np.float32)
    scheme = Fp8E4M3(k_scale=1e-30)
    largest = float(np.float32(448) * np.float32(1e-30))
    assert scheme.load(scheme.store(x), Sizes(1, 1, 2)).tolist() == [[[largest, -largest]]]


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf, 1e-60, 1e37, (), (1.0, 0.0)])
def test_scales_that_cannot_be_are_refused(scale: float) -> None:
    with pytest.raises(ConfigError, match="fp8_e4m3 v_scale: is not usable") as refused:
        kv_scheme("fp8_e4m3", v_scale=scale)
    assert refused.value.kind == "kv-option"


def test_a_scale_for_each_layer_means_each_layer() -> None:
    with pytest.raises(ConfigError, match="a scale for each of 3 layers, not 2"):
        Fp8E4M3(k_scale=(1.0, 2.0)).cache(Sizes(3, 1, 2), 4)
