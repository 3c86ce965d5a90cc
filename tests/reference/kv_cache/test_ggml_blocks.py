"""The block formats against gguf, byte for byte, and what gguf does not have against a second writing."""

from fractions import Fraction

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from tritgold.errors import ConfigError, NonFiniteError
from tritgold.kv_cache.base import Sizes
from tritgold.kv_cache.ggml_blocks import BlockScheme, multiply_add
from tritgold.kv_cache.q4_0 import Q40
from tritgold.kv_cache.q4_1 import Q41
from tritgold.kv_cache.q5_0 import Q50
from tritgold.kv_cache.q8_0 import Q80

RNG = np.random.default_rng(4)
TYPES = {
    "q8_0": (Q80(), GGMLQuantizationType.Q8_0),
    "q5_0": (Q50(), GGMLQuantizationType.Q5_0),
    "q4_1": (Q41(), GGMLQuantizationType.Q4_1),
    "q4_0": (Q40(), GGMLQuantizationType.Q4_0),
}
EACH = pytest.mark.parametrize(("scheme", "kind"), TYPES.values(), ids=TYPES)
SHAPE = Sizes(layers=1, kv_heads=5, head_dim=64)  # 10 blocks a token


def tokens(kind: str) -> np.ndarray:
    """float32 [tokens, 5, 64]."""
    size = (64, 5, 64)
    match kind:
        case "normal":
            x = RNG.standard_normal(size)
        case "every size":
            x = RNG.standard_normal(size) * 10.0 ** RNG.integers(-30, 4, (64, 5, 1))
        case "ties":
            x = RNG.integers(-20, 21, size) / 2
        case "close to ties":
            x = close_to_ties(8)
        case "one value in a block":
            x = np.repeat(RNG.standard_normal((64, 5, 2)), 32, axis=2)
        case "zeros":
            x = np.zeros(size) * RNG.choice([-1, 1], size)
        case "largest twice":  # with both signs, in either order
            x = RNG.uniform(-1, 1, size)
            x[:, :, [3, 20, 40, 50]] = RNG.choice([-2.0, 2.0], (64, 5, 4))
        case "float16 overflows nothing":
            x = RNG.uniform(-65503, 65503, size)
        case _:
            raise ValueError(kind)
    return x.astype(np.float32)


def close_to_ties(half: int) -> np.ndarray:
    """A random d for each token and head, and d * (n + 1/2) rounded to float32."""
    d = RNG.uniform(0.5, 1, (64, 5, 1)).astype(np.float32)
    x = d * (RNG.integers(-half, half, (64, 5, 64)) + np.float32(0.5)).astype(np.float32)
    x[:, :, ::32] = -half * d
    return x


KINDS = [
    "normal", "every size", "ties", "close to ties", "one value in a block", "zeros", "largest twice",
    "float16 overflows nothing",
]  # fmt: skip


@EACH
@pytest.mark.parametrize("kind_of_numbers", KINDS)
def test_bytes_and_values_are_gguf_s(scheme: BlockScheme, kind: GGMLQuantizationType, kind_of_numbers: str) -> None:
    x = tokens(kind_of_numbers)
    expected = quantize(x.reshape(64, 320), kind)
    rows = scheme.store(x)
    assert np.array_equal(rows, expected)
    assert rows.shape[1] == scheme.row_bytes(SHAPE)
    assert np.array_equal(scheme.load(rows, SHAPE).reshape(64, 320), dequantize(expected, kind))


@EACH
def test_any_bytes_are_read_as_gguf_reads_them(scheme: BlockScheme, kind: GGMLQuantizationType) -> None:
    rows = RNG.integers(0, 256, (200, scheme.row_bytes(SHAPE)), np.uint8)
    halves = rows.reshape(-1, scheme.block_bytes)
    halves[:, 1] &= 0x7B  # scales that are finite
    halves[:, 3] &= 0x7B
    assert np.array_equal(scheme.load(rows, SHAPE).reshape(200, 320), dequantize(rows, kind))


def roundf(x: np.float32) -> int:
    """C's roundf, exactly."""
    exact = Fraction(float(x))
    away = int(abs(exact) + Fraction(1, 2))
    return away if exact >= 0 else -away


def scalar_q8_0(block: np.ndarray, kernel: str) -> list[int]:
    """One block, number by number, as the three functions of ggml do."""
    absmax = max(abs(v) for v in block)
    d = absmax / np.float32(127)
    if kernel == "avx2":
        multiplier = np.float32(127) / absmax if absmax else np.float32(0)
    else:
        multiplier = np.float32(1) / d if d else np.float32(0)
    rounded = roundf if kernel == "reference" else lambda x: round(float(x))  # Python rounds half to even
    return [rounded(v * multiplier) for v in block]


@pytest.mark.parametrize("kernel", ["reference", "neon", "avx2"])
@pytest.mark.parametrize("kind_of_numbers", ["normal", "ties", "zeros"])
def test_the_codes_of_each_kernel_of_q8_0(kernel: str, kind_of_numbers: str) -> None:
    x = tokens(kind_of_numbers)[:12]
    x[0, 0, :8] = [127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49999997]
    x[0, 0, 8:32] = 0
    blocks = Q80(kernel).store(x).reshape(-1, 34)  # type: ignore[arg-type]
    for block, values in zip(blocks, x.reshape(-1, 32), strict=True):
        assert block[2:].view(np.int8).tolist() == scalar_q8_0(values, kernel)
        assert block[:2].view("<f2")[0] == np.float16(max(abs(values)) / np.float32(127))


def test_the_kernels_of_q8_0_differ_where_they_should() -> None:
    x = tokens("ties")
    x[:, :, ::32] = 127
    away, even, avx2 = (Q80(k).store(x).reshape(-1, 34) for k in ("reference", "neon", "avx2"))  # type: ignore[arg-type]
    assert np.array_equal(even, avx2), "with max 127 both multipliers are 1"
    halves = (x.reshape(-1, 32) % 2 == 0.5) & (x.reshape(-1, 32) > 0)
    differ = (away != even)[:, 2:]
    assert differ[halves].all()
    y = RNG.standard_normal((3000, 1, 32)).astype(np.float32)
    y[:, 0, 1] = (y[:, 0].max(axis=1) / np.float32(127)) * np.float32(63.5)  # close to a half: the multiplier decides
    neon, avx2 = (Q80(k).store(y) for k in ("neon", "avx2"))  # type: ignore[arg-type]
    assert 0 < (neon != avx2).any(axis=1).mean() < 0.5


def round_to_float32(exact: Fraction) -> np.float32:
    """The nearest float32, ties to even, of a number within its normal range."""
    near = np.float32(float(exact))
    candidates = [near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))]
    distances = [abs(Fraction(float(c)) - exact) for c in candidates]
    best = [c for c, distance in zip(candidates, distances, strict=True) if distance == min(distances)]
    return next(c for c in best if len(best) == 1 or int(np.array(c).view(np.uint32)) % 2 == 0)


def test_multiply_add_rounds_once() -> None:
    a, b = (RNG.uniform(-4, 4, 3000).astype(np.float32) for _ in "ab")
    a[:1000] = np.round(a[:1000] * 8) / np.float32(8) / b[:1000]  # sums close to ties of the code
    got = multiply_add(a, b, 8.5)
    exact = (Fraction(float(p)) * Fraction(float(q)) + Fraction(17, 2) for p, q in zip(a, b, strict=True))
    expected = [round_to_float32(number) for number in exact]
    assert np.array_equal(got, expected)
    assert (got != a * b + np.float32(8.5)).any(), "two roundings differ"


@pytest.mark.parametrize(
    ("a", "b", "correct"),
    [
        # 8.5 + 2**-21 * (1 + 2**-36), just above a midpoint of float32 whose even neighbour is below it
        (1 + 2**-12, (1 - 2**-12 + 2**-24) * 2**-21, 8.5 + 2**-20),
        # 8.5 + 3 * 2**-21 * (1 - 2**-44), just below one whose even neighbour is above it
        (1.5 - 3 * 2**-23, (1 + 2**-22) * 2**-20, 8.5 + 2**-20),
    ],
)
def test_multiply_add_where_a_float64_sum_hides_the_side_of_a_midpoint(a: float, b: float, correct: float) -> None:
    assert (np.float32(a), np.float32(b)) == (a, b)
    got = multiply_add(np.array([a], np.float32), np.array([b], np.float32), 8.5)[0]
    assert got == np.float32(correct) == round_to_float32(Fraction(a) * Fraction(b) + Fraction(17, 2))
    assert np.float32(a * b + 8.5) != got, "rounding to float64 first goes the other way"


@pytest.mark.parametrize(("scheme", "half", "top"), [(Q40(fused=True), 8, 15), (Q50(fused=True), 16, 31)])
def test_fused_codes_number_by_number(scheme: BlockScheme, half: int, top: int) -> None:
    x = close_to_ties(half)[:8]
    plain, fused = type(scheme)().store(x), scheme.store(x)
    assert 0 < (plain != fused).mean() < 0.2
    values = scheme.load(fused, SHAPE).reshape(-1, 32)
    for block, got, stored in zip(x.reshape(-1, 32), values, fused.reshape(-1, scheme.block_bytes), strict=True):
        extreme = next(v for v in block if abs(v) == max(abs(block)))
        d = extreme / np.float32(-half)
        inverse = Fraction(float(np.float32(1) / d))
        sums = [round_to_float32(Fraction(float(v)) * inverse + half + Fraction(1, 2)) for v in block]
        codes = [max(0, min(top, int(s))) for s in sums]
        scale = np.float32(stored[:2].view("<f2")[0])
        assert got.tolist() == [float(np.float32(code - half) * scale) for code in codes]


@EACH
def test_blocks_too_small_for_a_reciprocal_are_read_as_zeros(scheme: BlockScheme, kind: GGMLQuantizationType) -> None:
    """1 / d is infinite there, and C leaves the conversion of inf and NaN to an integer undefined."""
    x = (RNG.standard_normal((3, 5, 64)) * 1e-40).astype(np.float32)
    x[0, 0, :5] = 0
    assert not scheme.load(scheme.store(x), SHAPE).any()


@pytest.mark.parametrize("kernel", ["neon", "avx2"])
def test_so_they_are_by_every_kernel(kernel: str) -> None:
    x = np.full((1, 1, 32), 1e-42, np.float32)
    assert not Q80(kernel).store(x).any()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("scheme", "fits", "overflows"),
    [
        (Q80(), 65519 * 127, 65520 * 127),
        (Q40(), 65519 * 8, 65520 * 8),
        (Q50(), 65519 * 16, 65520 * 16),
        (Q41(), 65519, 65520),
    ],
)
def test_scales_and_minima_beyond_float16_are_refused(scheme: BlockScheme, fits: float, overflows: float) -> None:
    x = np.zeros((1, 1, 32), np.float32)
    x[0, 0, 7] = -fits
    assert np.isfinite(scheme.load(scheme.store(x), Sizes(1, 1, 32))).all()
    x[0, 0, 7] = -overflows
    with pytest.raises(NonFiniteError, match="does not fit float16"):
        scheme.store(x)


def test_a_spread_beyond_float32_is_refused_like_any_other() -> None:
    x = np.full((1, 1, 32), 3e38, np.float32)
    x[0, 0, 0] = -3e38
    with pytest.raises(NonFiniteError, match="does not fit float16"):
        Q41().store(x)


@EACH
@pytest.mark.parametrize("shape", [Sizes(1, 1, 30), Sizes(1, 3, 16), Sizes(1, 1, 80)])
def test_rows_that_are_no_whole_blocks_are_refused(
    scheme: BlockScheme, kind: GGMLQuantizationType, shape: Sizes
) -> None:
    with pytest.raises(ConfigError, match=r"kv_heads \* head_dim a multiple of 32") as refused:
        scheme.cache(shape, 4)
    assert refused.value.kind == "kv-shape"
    assert scheme.row_bytes(Sizes(1, 2, 16)) == scheme.block_bytes, "a block may span heads"


def test_no_fourth_kernel() -> None:
    with pytest.raises(ConfigError, match="q8_0 kernel: is not usable"):
        Q80("sse")  # type: ignore[arg-type]
