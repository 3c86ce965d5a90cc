"""Hadamard and random rotations, and TurboQuant, against matrices and formulas written out."""

import math
from itertools import pairwise

import numpy as np
import pytest
from kv_cases import random_kv

from tritgold.counter_random import uniform
from tritgold.errors import ConfigError, NonFiniteError
from tritgold.kv_cache.base import Sizes
from tritgold.kv_cache.hadamard import Hadamard, rotate_hadamard
from tritgold.kv_cache.kivi import Kivi2
from tritgold.kv_cache.kv_scheme import kv_scheme
from tritgold.kv_cache.random_matrices import gaussian, orthogonal, times
from tritgold.kv_cache.token_rows import TokenScheme
from tritgold.kv_cache.turboquant import CENTROIDS, TurboQuant

RNG = np.random.default_rng(2504)


def by_token(name: str, **options: object) -> TokenScheme:
    scheme = kv_scheme(name, **options)
    assert isinstance(scheme, TokenScheme)
    return scheme


def sylvester(n: int) -> np.ndarray:
    """H[i, j] = (-1) ** (common one bits of i and j), over sqrt(n)."""
    signs = [[(-1) ** (i & j).bit_count() for j in range(n)] for i in range(n)]
    return np.array(signs) / math.sqrt(n)


@pytest.mark.parametrize("n", [1, 2, 4, 32, 128])
def test_the_hadamard_rotation_is_the_matrix(n: int) -> None:
    x = RNG.standard_normal((5, 3, n)).astype(np.float32)
    np.testing.assert_allclose(rotate_hadamard(x), x.astype(np.float64) @ sylvester(n), rtol=1e-6, atol=1e-6)
    assert np.array_equal(rotate_hadamard(np.eye(n, dtype=np.float32)), sylvester(n).astype(np.float32))
    np.testing.assert_allclose(rotate_hadamard(rotate_hadamard(x)), x, rtol=1e-5, atol=1e-6)


def test_hadamard_stores_what_is_rotated_and_reads_it_back_to_front() -> None:
    k, _ = random_kv(5)
    shape = Sizes(1, 2, 64)
    for inner in (by_token("q4_0"), by_token("affine", bits=3), by_token("f32")):
        scheme = Hadamard(inner)
        rotated = (k.astype(np.float64) @ sylvester(64)).astype(np.float32)
        rows = scheme.store(k)
        assert (rows != inner.store(rotated)).mean() < 0.01, "the last bits of the sums may differ"
        expected = inner.load(rows, shape).astype(np.float64) @ sylvester(64)
        np.testing.assert_allclose(scheme.load(rows, shape), expected, rtol=1e-6, atol=1e-4)
        assert scheme.row_bytes(shape) == inner.row_bytes(shape)


@pytest.mark.parametrize(("inner", "plain", "rotated"), [("q4_0", 0.0153, 0.0033), ("affine", 0.0370, 0.0041)])
def test_rotation_helps_where_one_channel_is_thirty_times_the_others(inner: str, plain: float, rotated: float) -> None:
    """Squared error over squared norm. The bounds are these numbers, which depend on nothing but the formulas."""
    x = gaussian(1, (512, 1, 128)).astype(np.float32)
    x[:, :, 42] *= 30
    for scheme, expected in ((by_token(inner), plain), (by_token("hadamard", inner=inner), rotated)):
        error = scheme.load(scheme.store(x), Sizes(1, 1, 128)) - x
        assert (error**2).sum() / (x**2).sum() == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("head_dim", [6, 48, 80, 96])
def test_only_powers_of_two_can_be_hadamard_rotated(head_dim: int) -> None:
    with pytest.raises(ConfigError, match=rf"found 2 heads of {head_dim}, expected head_dim a power of 2"):
        by_token("hadamard", inner="f16").cache(Sizes(1, 2, head_dim), 4)


def test_a_rotation_that_overflows_is_refused() -> None:
    x = np.full((1, 1, 4), 3e38, np.float32)
    with pytest.raises(NonFiniteError):
        by_token("hadamard", inner="f32").store(x)


def test_hadamard_goes_around_row_schemes_only() -> None:
    for inner in (Kivi2(), by_token("a4_8"), 4):
        with pytest.raises(ConfigError, match="hadamard inner: is not usable"):
            Hadamard(inner)  # type: ignore[arg-type]


def test_gaussian_numbers_by_their_formula() -> None:
    got = gaussian(3, (2, 4), stream=1)
    for i in range(8):
        u, w = (uniform(3, np.array([j + 2**40], np.uint64))[0] for j in (i, i + 8))
        expected = math.sqrt(-2 * math.log(1 - u)) * math.cos(2 * math.pi * w)
        assert got[i // 4, i % 4] == pytest.approx(expected, rel=1e-12)


def test_gaussian_numbers_are_normal() -> None:
    x = np.sort(gaussian(0, (20_000,)))
    cumulated = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x])
    assert np.abs(cumulated - (np.arange(20_000) + 0.5) / 20_000).max() < 1.36 / math.sqrt(20_000)  # Kolmogorov, 5 %
    assert abs(np.corrcoef(gaussian(0, (20_000,), 0), gaussian(0, (20_000,), 1))[0, 1]) < 0.02


@pytest.mark.parametrize("size", [1, 2, 64, 128])
def test_the_orthogonal_matrix_is_numpy_s_qr(size: int) -> None:
    q, r = np.linalg.qr(gaussian(9, (size, size)).T)
    np.testing.assert_allclose(orthogonal(9, size), (q * np.sign(np.diag(r))).T, atol=1e-11)
    np.testing.assert_allclose(orthogonal(9, size) @ orthogonal(9, size).T, np.eye(size), atol=1e-14)


def test_times_is_a_matrix_product_in_pieces() -> None:
    x, matrix = RNG.standard_normal((70, 2, 128)), RNG.standard_normal((130, 128))
    np.testing.assert_allclose(times(x, matrix), x @ matrix.T, atol=1e-12)
    assert times(x[:0], matrix).shape == (0, 2, 130)


def density(x: float) -> float:
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi) if math.isfinite(x) else 0.0


def probability(a: float, b: float) -> float:
    return 0.5 * (math.erf(b / math.sqrt(2)) - math.erf(a / math.sqrt(2)))


@pytest.mark.parametrize(("bits", "error"), [(1, 0.3634), (2, 0.1175), (3, 0.03454), (4, 0.009497)])
def test_the_codebooks_are_lloyd_and_max_s(bits: int, error: float) -> None:
    """Each centroid is the mean of N(0, 1) over what is nearest to it, to the four digits that are given."""
    positive = CENTROIDS[bits]
    edges = [0.0, *((a + b) / 2 for a, b in pairwise(positive)), math.inf]
    means = [(density(a) - density(b)) / probability(a, b) for a, b in pairwise(edges)]
    np.testing.assert_allclose(positive, means, atol=2e-4)
    kept = sum(2 * probability(a, b) * m * m for (a, b), m in zip(pairwise(edges), means, strict=True))
    assert 1 - kept == pytest.approx(error, rel=2e-3)


@pytest.mark.parametrize("scheme", [TurboQuant(1), TurboQuant(3, seed=4), TurboQuant(4), TurboQuant(3, "product")])
def test_turboquant_written_a_second_time(scheme: TurboQuant) -> None:
    k, v = random_kv(6, seed=2)
    k[0, 1] = 0
    shape = Sizes(1, 2, 64)
    p, s = orthogonal(scheme.seed, 64), gaussian(scheme.seed, (64, 64), stream=1)
    for side, x in (("k", k), ("v", v)):
        product = side == "k" and scheme.keys == "product"
        bits = scheme.bits - product
        levels = np.array([*(-c for c in CENTROIDS[bits][::-1]), *CENTROIDS[bits]]) / 8
        rows = scheme.store(x, 0, side)  # type: ignore[arg-type]
        loaded = scheme.load(rows, shape, 0, side)  # type: ignore[arg-type]
        size = 8 * bits + 2 + (10 if product else 0)
        assert rows.shape == (6, 2 * size) == (6, scheme.row_bytes(shape, side))  # type: ignore[arg-type]
        for t, h in np.ndindex(6, 2):
            row, vector = rows[t, h * size : (h + 1) * size], x[t, h].astype(np.float64)
            norm = np.linalg.norm(vector)
            assert row[8 * bits : 8 * bits + 2].view("<f2")[0] == np.float16(norm)
            if not norm:
                assert not loaded[t, h].any()
                continue
            number = int.from_bytes(row[: 8 * bits].tobytes(), "little")
            codes = np.array([number >> bits * i & (1 << bits) - 1 for i in range(64)])
            assert codes.tolist() == np.argmin(np.abs((p @ vector / norm)[:, None] - levels), axis=1).tolist()
            unit = p.T @ levels[codes]
            if product:
                residual = vector / norm - unit
                signs = int.from_bytes(row[8 * bits + 2 : -2].tobytes(), "little")
                q = np.array([2 * (signs >> i & 1) - 1 for i in range(64)])
                assert np.array_equal(q, np.where(s @ residual >= 0, 1, -1))
                assert row[-2:].view("<f2")[0] == np.float16(np.linalg.norm(residual))
                unit = unit + math.sqrt(math.pi / 2) / 64 * float(row[-2:].view("<f2")[0]) * (s.T @ q)
            np.testing.assert_allclose(loaded[t, h], unit * float(np.float16(norm)), rtol=1e-5, atol=1e-6 * norm)


@pytest.mark.parametrize(
    ("scheme", "squared_error", "slope"),
    [
        (TurboQuant(1), 0.3634, 0.6366), (TurboQuant(2), 0.1175, 0.8825), (TurboQuant(3), 0.0345, 0.9655),
        (TurboQuant(4), 0.0095, 0.9905), (TurboQuant(2, "product"), 0.57, 1), (TurboQuant(3, "product"), 0.184, 1),
        (TurboQuant(4, "product"), 0.054, 1),
    ],
    ids=lambda x: x.id if isinstance(x, TurboQuant) else None,
)  # fmt: skip
def test_turboquant_s_error_and_the_slope_of_its_inner_products(
    scheme: TurboQuant, squared_error: float, slope: float
) -> None:
    """For centroids E[x x'] = E[x'**2] = 1 - error, which is the slope; (pi / 2) errors of the residual otherwise."""
    x = gaussian(7, (300, 2, 128)).astype(np.float32)
    got = scheme.load(scheme.store(x), Sizes(1, 2, 128)).reshape(-1, 128)
    x = x.reshape(-1, 128)
    assert ((got - x) ** 2).sum() / (x**2).sum() == pytest.approx(squared_error, rel=0.03)
    assert (got * x).sum() / (x**2).sum() == pytest.approx(slope, abs=0.01)


@pytest.mark.parametrize(
    "options",
    [{"bits": 0}, {"bits": 5}, {"keys": "dot"}, {"bits": 1, "keys": "product"}, {"seed": -1}, {"seed": 2**64}],
)
def test_turboquant_options_that_cannot_be(options: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=f"turboquant {next(iter(options))}: is not usable"):
        TurboQuant(**options)  # type: ignore[arg-type]


def test_a_norm_beyond_float16_is_refused() -> None:
    with pytest.raises(NonFiniteError, match="does not fit float16"):
        TurboQuant().store(np.full((1, 1, 4), 4e4, np.float32))
