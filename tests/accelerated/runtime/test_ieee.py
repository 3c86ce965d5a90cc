"""The operations that the compiler must leave alone, in the company that tempts it."""

import jax.numpy as jnp
import numpy as np
import pytest

from tritgold_xla.runtime.flags import jit
from tritgold_xla.runtime.ieee import divide, multiply, rounded, tree_sum

SHAPES = [(1, 300), (7, 77), (64, 256)]


def numbers(shape, seed=0):
    return np.random.default_rng(seed).uniform(-9, 9, shape).astype(np.float32)


def scaled_sum(x, s, w, multiply, divide):
    """A residual connection after a linear layer of either scale rule, and one after both."""
    return x + multiply(divide(x, s), w), x + divide(divide(x, s), w), x - multiply(divide(divide(x, w), s), w)


def both(x, s, w, chosen):
    golden = scaled_sum(x, s, w, np.multiply, np.divide)
    compiled = jit(lambda x, s, w: scaled_sum(x, s, w, *chosen))(x, s, w)
    return golden, [np.asarray(c) for c in compiled]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("w", [1.37, -0.071])
def test_every_operation_rounds_by_itself(shape, w):
    golden, compiled = both(numbers(shape), numbers(shape[:1], seed=1)[:, None], np.float32(w), (multiply, divide))
    for g, c in zip(golden, compiled, strict=True):
        np.testing.assert_array_equal(g.view(np.int32), c.view(np.int32))


def test_plain_operators_do_not():
    plain = jnp.multiply, jnp.divide
    golden, compiled = both(numbers((64, 256)), numbers((64,), seed=1)[:, None], np.float32(1.37), plain)
    assert all((g != c).any() for g, c in zip(golden, compiled, strict=True)), "the guards are no longer needed"


@pytest.mark.parametrize("divisor", [2.5, -2.5, 0.0, np.inf, np.nan])
def test_zero_and_special_divisors(divisor):
    a = np.array([0.0, -0.0, 1.5, -1.5, np.inf, np.nan], np.float32)
    with np.errstate(all="ignore"):
        expected = a / np.float32(divisor)
    got = np.asarray(jit(divide)(a, np.float32(divisor)))
    np.testing.assert_array_equal(got, expected)
    finite = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got)[finite], np.signbit(expected)[finite])


def test_rounded_keeps_numbers_and_nan():
    x = np.array([0.0, -0.0, 1.5, np.inf, -np.inf, np.nan], np.float32)
    got = np.asarray(jit(rounded)(x))
    np.testing.assert_array_equal(got, x)
    np.testing.assert_array_equal(np.signbit(got[:5]), np.signbit(x[:5]))


@pytest.mark.parametrize("width", [1, 3, 77, 1000])
def test_tree_sum_of_squares_is_the_same_in_every_chunk(width):
    x = numbers((128, width))
    compiled = jit(lambda x: tree_sum(multiply(x, x)))
    whole = np.asarray(compiled(x))
    exact = np.square(x.astype(np.float64)).sum(axis=1)
    assert (np.abs(whole - exact) <= (2 + np.log2(width)) * 2.0**-24 * exact).all()
    for size in (1, 8):
        np.testing.assert_array_equal(compiled(x[:size]), whole[:size])
