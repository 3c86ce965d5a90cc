"""The two quantisers against independent formulas, and the rows from the field that tell engines apart."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from refusals import refusal

from tritgold.errors import NonFiniteError
from tritgold.quantize import absmax_int8, absmean_ternary

examples = settings(max_examples=60, deadline=None, derandomize=True)


def row(*values: float) -> np.ndarray:
    return np.array([values], np.float32)


def codes(x: np.ndarray) -> list[int]:
    return absmax_int8(x)[0][0].tolist()


# ---- activations -------------------------------------------------------------------------------------------------


def test_ties_go_to_the_even_code() -> None:
    """Bug case B21: a truncating engine gives [127, 0, 1, 2, 0, -1, -2], half-away [127, 1, 2, 3, -1, -2, -3]."""
    x = row(127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5)
    assert codes(x) == [127, 0, 2, 2, 0, -2, -2]
    assert np.trunc(x[0]).tolist() == [127, 0, 1, 2, 0, -1, -2]


def test_the_floor_stands_on_the_absmax() -> None:
    """Bug case B23: no floor, or one of 1e-10, gives [64, -127]."""
    x = row(1e-6, -2e-6)
    assert codes(x) == [13, -25]
    assert np.rint(x[0] * (127 / np.abs(x).max())).tolist() == [64, -127]
    assert codes(row(1e-7, 1e-7)) == [1, 1]


def test_a_zero_token_is_zeros_with_a_finite_scale_and_touches_no_other() -> None:
    """Bug case B20: 127 / 0 makes NaN of the whole row."""
    x = np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32)
    alone, alone_scale = absmax_int8(x)
    x[1] = 0
    together, scale = absmax_int8(x)
    assert not together[1].any()
    assert scale[1] == np.float32(127) / np.float32(1e-5)
    assert np.array_equal(together[[0, 2]], alone[[0, 2]])
    assert np.array_equal(scale[[0, 2]], alone_scale[[0, 2]])
    assert not codes(row(-0.0, 0.0))[0]


def test_each_token_has_its_own_scale() -> None:
    x = np.array([[1.0, -0.5], [1000.0, 1.0]], np.float32)
    got, scale = absmax_int8(x)
    assert got.tolist() == [[127, -64], [127, 0]]
    assert scale.tolist() == [127.0, float(np.float32(127) / np.float32(1000))]


finite = st.floats(-(2.0**100), 2.0**100, width=32)


@examples
@given(arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 9)), elements=finite))
def test_codes_follow_the_formula_one_float32_step_at_a_time(x: np.ndarray) -> None:
    before = x.copy()
    got, scale = absmax_int8(x)
    for t, token in enumerate(x):
        s = np.float32(np.float32(127) / max(np.float32(max(abs(v) for v in token)), np.float32(1e-5)))
        assert scale[t] == s
        # round() of a Python float is half to even, and the product of two float32 is rounded to float32 first.
        assert got[t].tolist() == [max(-128, min(127, round(float(np.float32(v * s))))) for v in token]
    assert (got.dtype, scale.dtype) == (np.int8, np.float32)
    assert np.abs(got.astype(int)).max() <= 127
    assert np.array_equal(x, before)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_activations_that_are_not_finite_are_refused(value: float) -> None:
    error = refusal(lambda: absmax_int8(np.array([[1, 2], [3, value]], np.float32)))
    assert isinstance(error, NonFiniteError)
    assert error.kind == "activation-non-finite"
    assert "token 1" in str(error)


# ---- weights -----------------------------------------------------------------------------------------------------


@examples
@given(
    arrays(
        np.float32,
        st.tuples(st.integers(1, 5), st.integers(1, 33)),
        elements=st.floats(-1000, 1000, width=32) | st.floats(-(2.0**-20), 2.0**-20, width=32),
    )
)
def test_absmean_follows_the_formula(weight: np.ndarray) -> None:
    """float64 all the way: trits may differ only where a weight lies within float32's reach of half the mean."""
    tensor = absmean_ternary(weight)
    mean = max(math.fsum(abs(float(v)) for v in weight.flat) / weight.size, 1e-5)
    assert abs(float(tensor.scale) / mean - 1) < 3e-7
    for trit, value in zip(tensor.trits.flat, weight.flat, strict=True):
        ratio = abs(float(value)) / mean
        if abs(ratio - 0.5) > 1e-6:
            assert trit == (0 if ratio < 0.5 else math.copysign(1, value))


def test_absmean_is_not_absmax_and_divides_nothing() -> None:
    weight = np.random.default_rng(2).normal(size=(64, 64)).astype(np.float32)
    tensor = absmean_ternary(weight)
    assert 0.66 < np.abs(tensor.trits).mean() < 0.72  # 0.69 of a Gaussian lies beyond half its mean size
    assert abs(float(tensor.scale) - np.abs(weight).mean()) < 1e-6
    by_max = np.rint(weight / np.abs(weight).max())
    assert np.abs(by_max).mean() < 0.2


def test_weights_exactly_on_half_the_mean_go_to_zero() -> None:
    """mean = 2, the tie is at +-1, and half to even is 0."""
    tensor = absmean_ternary(np.array([[1, -1, 4, 2]], np.float32))
    assert tensor.trits.tolist() == [[0, 0, 1, 1]]
    assert tensor.scale == 2


@pytest.mark.parametrize("value", [0.0, 1e-9])
def test_a_tiny_matrix_meets_the_floor(value: float) -> None:
    tensor = absmean_ternary(np.full((2, 3), value, np.float32))
    assert not tensor.trits.any()
    assert abs(float(tensor.scale) / 1e-5 - 1) < 1e-6


def test_the_mean_is_that_of_the_whole_matrix_however_it_is_sliced() -> None:
    """More than the million elements that are summed at a time, with the large ones in the last slice."""
    weight = np.full((1030, 1024), 0.25, np.float32)
    weight[1029] = 1031.25  # mean = (1029 * 0.25 + 1031.25) / 1030 = 1.25097...
    tensor = absmean_ternary(weight)
    assert tensor.scale == pytest.approx((1029 * 0.25 + 1031.25) / 1030, rel=2e-7)
    assert not tensor.trits[:1029].any()
    assert (tensor.trits[1029] == 1).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_masters_that_are_not_finite_are_refused(value: float) -> None:
    weight = np.ones((2, 2), np.float32)
    weight[1, 0] = value
    assert refusal(lambda: absmean_ternary(weight)).kind == "weight-non-finite"
