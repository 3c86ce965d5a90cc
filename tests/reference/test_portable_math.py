"""The arithmetic that is the same everywhere: accurate, and in an order that nothing but the index decides."""

from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritgold.portable_math import MAX_ANGLE, dot, exp, inverse_powers, log, pairwise_sum, rounded_products, sin_cos

RNG = np.random.default_rng(0)


def python_pairwise(values: list[float]) -> float:
    """The definition, in Python floats: neighbours first."""
    while len(values) > 1:
        values = [sum(values[i : i + 2]) for i in range(0, len(values), 2)]
    return values[0] if values else 0.0


@given(st.lists(st.floats(-1e6, 1e6), min_size=0, max_size=40), st.integers(0, 9))
def test_pairwise_sum_has_one_order_and_appended_zeros_change_no_bit(values: list[float], zeros: int) -> None:
    total = pairwise_sum(np.array(values, np.float64))
    assert float(total) == python_pairwise(values)
    padded = pairwise_sum(np.array(values + [0.0] * zeros, np.float64))
    assert total.tobytes() == padded.tobytes()


def test_pairwise_sum_of_negative_zeros_is_the_zero_that_padding_gives() -> None:
    assert not np.signbit(pairwise_sum(np.array([-0.0, -0.0])))


def test_pairwise_sum_leaves_its_argument_alone_and_reduces_the_last_axis() -> None:
    terms = RNG.standard_normal((3, 4, 7))
    before = terms.copy()
    assert pairwise_sum(terms).shape == (3, 4)
    assert np.array_equal(terms, before)


def test_the_order_matters_at_all() -> None:
    """A control: on these terms another order gives another float64, so the tests above can fail."""
    terms = RNG.standard_normal(1000) * 10.0 ** RNG.integers(-8, 8, 1000)
    assert float(pairwise_sum(terms)) != sum(terms.tolist())


def test_dot_is_the_exactly_rounded_products_summed() -> None:
    a, b = RNG.standard_normal((2, 5)).astype(np.float32)
    assert float(dot(a, b)) == python_pairwise([float(x) * float(y) for x, y in zip(a, b, strict=True)])


def same_as_dot(a: np.ndarray, b: np.ndarray) -> bool:
    with np.errstate(all="ignore"):
        expected = dot(a[:, None], b).astype(np.float32)
        return rounded_products(a, b).tobytes() == expected.tobytes()


@pytest.mark.parametrize("spread", [0, 3, 30])
@pytest.mark.parametrize("n", [1, 7, 256, 1000])
def test_rounded_products_have_the_bits_of_dot(n: int, spread: int) -> None:
    """With a spread of 3 some sums are uncertain, with 30 most are, and results are subnormal or too large."""
    for _ in range(5):
        a, b = ((RNG.standard_normal((9, n)) * 10.0 ** RNG.uniform(-spread, spread, (9, n))).astype("f4") for _ in "ab")
        assert same_as_dot(a, b)


def test_rounded_products_of_zeros_and_of_what_is_not_finite() -> None:
    a = np.array([[0, 0], [-0.0, 0], [1, -1], [-1e-30, 1e-30], [np.inf, 1], [np.nan, 1], [3e38, 3e38]], np.float32)
    assert same_as_dot(a, a)
    assert same_as_dot(a, np.array([[-1, -1], [1, 1], [-1e-20, 0]], np.float32))
    assert rounded_products(a, np.zeros((0, 2), np.float32)).shape == (7, 0)


@pytest.mark.parametrize("order", ["forwards", "backwards"])
def test_an_order_that_rounds_otherwise_does_not_decide(order: str) -> None:
    """The sums of these terms lie at both sides of a tie of float32; one after the other is what BLAS may do."""
    terms = np.array([[1, 2**-24, 2**-53, 2**-53, 2**-54, 2**-54, 0, 0]], np.float32)
    terms = terms if order == "forwards" else terms[:, ::-1].copy()
    one_by_one = 0.0
    for term in terms[0].tolist():
        one_by_one += term
    ones = np.ones_like(terms)
    assert same_as_dot(terms, ones)
    assert (np.float32(one_by_one) != rounded_products(terms, ones)[0, 0]) == (order == "forwards"), "it can fail"


def decimal_exp(x: float) -> float:
    with localcontext() as context:
        context.prec = 40
        return float(Decimal(x).exp())


def test_exp_within_two_ulp() -> None:
    x = np.concatenate([RNG.uniform(-700, 700, 2000), RNG.uniform(-1, 1, 2000), [0.0, -0.0, 1.0, -1.0, 709.7]])
    truth = np.array([decimal_exp(v) for v in x])
    assert (np.abs(exp(x) - truth) <= 2 * np.spacing(truth)).all()
    assert not (np.abs(exp(x + 1e-13) - truth) <= 2 * np.spacing(truth)).all(), "the check can fail"


def test_exp_at_its_ends() -> None:
    got = exp(np.array([-np.inf, np.inf, np.nan, 0.0, -746.0, -800.0, 710.0, 800.0]))
    assert got[[0, 1, 3, 4, 5, 6, 7]].tolist() == [0.0, np.inf, 1.0, 0.0, 0.0, np.inf, np.inf]
    assert np.isnan(got[2])
    assert 0 < exp(np.array([-744.0]))[0] < 1e-322


def decimal_log(x: float) -> float:
    with localcontext() as context:
        context.prec = 40
        return float(Decimal(x).ln())


def test_log_within_two_ulp() -> None:
    """Over all magnitudes, subnormal numbers included, and close to 1 where the logarithm vanishes."""
    x = np.concatenate(
        [10.0 ** RNG.uniform(-300, 300, 2000), RNG.uniform(0, 3, 2000), 1 + RNG.uniform(-1e-6, 1e-6, 1000), [5e-324]]
    )
    truth = np.array([decimal_log(v) for v in x])
    assert (np.abs(log(x) - truth) <= 2 * np.abs(np.spacing(truth))).all()
    assert not (np.abs(log(x * (1 + 1e-13)) - truth) <= 2 * np.abs(np.spacing(truth))).all(), "the check can fail"


def test_log_at_its_ends_and_of_powers_of_two() -> None:
    got = log(np.array([0.0, -0.0, 1.0, np.inf, -1.0, -np.inf, np.nan]))
    assert got[:4].tolist() == [-np.inf, -np.inf, 0.0, np.inf]
    assert np.isnan(got[4:]).all()
    powers = 2.0 ** np.arange(1, 60)
    assert np.array_equal(log(1 / powers), -log(powers))  # the entropy of 2**n equal shares is exactly ln 2**n


def test_sin_and_cos_over_every_angle_a_context_can_have() -> None:
    angle = np.concatenate([RNG.uniform(-MAX_ANGLE, MAX_ANGLE, 50_000), np.arange(5000.0), RNG.uniform(-7, 7, 5000)])
    sin, cos = sin_cos(angle)
    assert np.abs(sin - np.sin(angle)).max() < 3e-16
    assert np.abs(cos - np.cos(angle)).max() < 3e-16
    assert np.abs(sin - np.sin(angle + 1e-14)).max() > 3e-16, "the check can fail"


@pytest.mark.parametrize("angle", [2 * MAX_ANGLE, np.inf, np.nan])
def test_sin_and_cos_refuse_what_they_cannot_reduce(angle: float) -> None:
    with pytest.raises(ValueError, match="angles must be within"):
        sin_cos(np.array([0.0, angle]))


def test_inverse_powers_are_correctly_rounded() -> None:
    got = inverse_powers(500000.0, (0, 0.5, 1))
    assert got.tolist() == [1.0, float(Decimal(1) / Decimal(500000).sqrt()), 2e-6]
