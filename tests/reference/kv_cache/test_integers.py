"""int8 per token and head, the fake FP8, and the affine family (QuaRot, BitNet a4.8), each against plain loops."""

import ml_dtypes
import numpy as np
import pytest
from kv_cases import random_kv

from tritgold.errors import ConfigError, NonFiniteError
from tritgold.kv_cache.a4_8 import A48
from tritgold.kv_cache.affine import Affine
from tritgold.kv_cache.base import Sizes
from tritgold.kv_cache.fake_fp8 import FakeFp8
from tritgold.kv_cache.int8 import Int8

F = np.float32
RNG = np.random.default_rng(7)


def half_even(x: np.float32) -> int:
    return round(float(x))


def test_int8_number_by_number() -> None:
    x = random_kv(6)[0][:, :, :10]
    x[0, 0] = 0
    x[1, 1, :3] = [127, 0.5, -1.5]
    x[1, 1, 3:] = 0
    rows = Int8().store(x)
    assert rows.shape == (6, Int8().row_bytes(Sizes(1, 2, 10)))
    loaded = Int8().load(rows, Sizes(1, 2, 10))
    for t, h in np.ndindex(6, 2):
        scale = max(abs(v) for v in x[t, h]) / F(127)
        assert rows[t, 20 + 4 * h : 24 + 4 * h].tobytes() == scale.astype("<f4").tobytes()
        for c in range(10):
            code = half_even(x[t, h, c] / scale) if scale else 0
            assert rows[t, 10 * h + c].view(np.int8) == code
            assert loaded[t, h, c] == F(code) * scale
    assert rows[1, 10:13].view(np.int8).tolist() == [127, 0, -2]


@pytest.mark.parametrize("value", [3e38, 1e-44, 1e-43, 1e-40])
def test_int8_at_the_ends_of_float32(value: float) -> None:
    x = np.array([[[value, -value / 2]]], F)
    got = Int8().load(Int8().store(x), Sizes(1, 1, 2))
    assert np.isfinite(got).all()
    assert np.abs(got - x).max() <= max(abs(x[0, 0, 0]) / 200, 1.4e-43)  # the last step of subnormal numbers


def fake(x: np.ndarray) -> tuple[np.ndarray, np.float32]:
    """The code as it is written there, number by number."""
    absmax = F(max(abs(v) for v in x.ravel()))
    absmax = F(1) if absmax < 1e-6 else absmax
    multiplier = F(127.0 / float(absmax))
    codes = [max(-127, min(127, half_even(v * multiplier))) for v in x.ravel()]
    return np.array(codes, F).reshape(x.shape), F(float(absmax) / 127.0)


def to_bf16(x: np.ndarray) -> np.ndarray:
    return x.astype(ml_dtypes.bfloat16).astype(F)


@pytest.mark.parametrize("overwrite", [True, False])
def test_fake_fp8_reads_old_codes_with_the_newest_scale(overwrite: bool) -> None:
    k, v = random_kv(9)
    cache = FakeFp8(overwrite).cache(Sizes(1, 2, 64), 9)
    parts, start = [], 0
    for size in (5, 1, 3):
        now = slice(start, start + size)
        keys, values = cache.append(0, k[now], v[now])
        cache.advance(size)
        parts.append((fake(k[now]), fake(v[now])))
        start += size
        for side, got in enumerate((keys, values)):
            newest = parts[-1][side][1]
            expected = [codes * (newest if overwrite else scale) for codes, scale in (p[side] for p in parts)]
            assert np.array_equal(got, to_bf16(np.concatenate(expected)))


def test_fake_fp8_of_almost_nothing_has_scale_one() -> None:
    x = np.full((1, 1, 2), 9e-7, F)
    assert not FakeFp8().cache(Sizes(1, 1, 2), 1).append(0, x, x)[0].any()
    y = np.full((1, 1, 2), 1.1e-6, F)
    assert FakeFp8().cache(Sizes(1, 1, 2), 1).append(0, y, y)[0].all()


def affine_scalar(x: np.ndarray, scheme: Affine) -> tuple[list[int], np.float32, int]:
    """Codes, scale, zero point of one group, by the formulas of the docstring."""
    clip, top = F(scheme.clip), 2**scheme.bits - 1
    if scheme.symmetric:
        scale = np.float16(max(abs(v) for v in x) * clip / F(2 ** (scheme.bits - 1) - 1))
        scale = F(scale) or F(np.float16(2 / (2 ** (scheme.bits - 1) - 1)))
        low, zero = -(2 ** (scheme.bits - 1)), 2 ** (scheme.bits - 1)
        return [max(low, min(-low - 1, half_even(v / scale))) - low for v in x], scale, zero
    low, high = min(*x, F(0)) * clip, max(*x, F(0)) * clip
    scale = F(np.float16((high - low) / F(top))) or F(np.float16(2 / top))
    zero = half_even(-low / scale)
    return [max(0, min(top, half_even(v / scale) + zero)) for v in x], scale, zero


def bits_of(row: np.ndarray) -> str:
    """All bits, the lowest of the first byte first."""
    return "".join(f"{byte:08b}"[::-1] for byte in row.tolist())


@pytest.mark.parametrize(
    "scheme",
    [
        Affine(), Affine(2), Affine(3), Affine(5), Affine(8), Affine(4, clip=0.8), Affine(3, per="token"),
        Affine(4, True), Affine(3, True, 0.7), Affine(8, True), Affine(2, True), A48(),
    ],
    ids=lambda scheme: scheme.id,
)  # fmt: skip
def test_affine_number_by_number_and_bit_by_bit(scheme: Affine) -> None:
    x = random_kv(7, seed=3)[0][:, :, :6]
    x[0], x[1], x[2] = 0, np.abs(x[1]), -np.abs(x[2])
    shape = Sizes(1, 2, 6)
    rows, loaded = scheme.store(x), scheme.load(scheme.store(x), shape)
    assert rows.shape == (7, scheme.row_bytes(shape))
    groups, width = (2, 6) if scheme.per == "head" else (1, 12)
    size = -(-width * scheme.bits // 8) + (2 if scheme.symmetric else 3)
    for t, g in np.ndindex(7, groups):
        codes, scale, zero = affine_scalar(x[t].reshape(groups, width)[g], scheme)
        row = rows[t, g * size : (g + 1) * size]
        bits = bits_of(row)
        assert [int(bits[i * scheme.bits : (i + 1) * scheme.bits][::-1], 2) for i in range(width)] == codes
        end = -(-width * scheme.bits // 8)
        assert np.float32(row[end : end + 2].view("<f2")[0]) == scale
        assert scheme.symmetric or row[end + 2] == zero
        values = [float(F(code - zero) * scale) for code in codes]
        assert loaded[t].reshape(groups, width)[g].tolist() == values
    assert not loaded[0].any(), "zeros stay zeros"


def test_numbers_whose_scale_no_float16_holds_are_zeros() -> None:
    x = np.array([[[-1e-8, 0, 1e-9, 5e-9]]], F)
    assert not Affine(4).load(Affine(4).store(x), Sizes(1, 1, 4)).any()


def test_the_zero_point_of_a_subnormal_scale_stays_in_range() -> None:
    """A float16 scale of 1.4 * 2**-24 becomes 2**-24, and the zero point 1.4 times what a byte holds."""
    spread = 255 * 1.4 * 2**-24
    x = np.array([[[-spread, 0, 0, -spread / 4]]], F)
    assert (Affine(8).load(Affine(8).store(x), Sizes(1, 1, 4)) * 2**24).tolist() == [[[-255, 0, 0, -89]]]


@pytest.mark.parametrize("value", [3e38, 65520.0 * 15])
def test_a_scale_beyond_float16_is_refused(value: float) -> None:
    x = np.array([[[value, -value]]], F)
    with pytest.raises(NonFiniteError, match="does not fit float16"):
        Affine().store(x)


@pytest.mark.parametrize(
    "options", [{"bits": 1}, {"bits": 9}, {"bits": 2.5}, {"clip": 0}, {"clip": 1.1}, {"per": "row"}]
)
def test_options_that_cannot_be(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=f"affine {next(iter(options))}: is not usable"):
        Affine(**options)  # type: ignore[arg-type]


def test_the_first_token_of_a4_8_has_four_bits_the_others_three() -> None:
    k, v = random_kv(4, seed=9)
    shape = Sizes(1, 2, 64)
    for passes in ((4,), (1, 3), (1, 1, 1, 1)):
        cache = A48().cache(shape, 4)
        start = 0
        for size in passes:
            got = cache.append(0, k[start : start + size], v[start : start + size])
            cache.advance(size)
            start += size
        for x, loaded in zip((k, v), got, strict=True):
            four, three = (s.load(s.store(x), shape) for s in (Affine(4), Affine(3)))
            assert np.array_equal(loaded, np.concatenate([four[:1], three[1:]]))
    rows = 2 * 2 * (24 + 3)
    assert A48().cache_bytes(shape, 4) == 4 * rows + 2 * 2 * 8
    assert A48().cache_bytes(shape, 0) == 0
