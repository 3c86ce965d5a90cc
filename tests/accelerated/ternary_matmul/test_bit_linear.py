"""The integer tier: equal to the golden model to the bit, whatever the shape and whatever is fused after it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tritgold.layers.bit_linear as golden
from tritgold.quantize import absmax_int8
from tritgold_xla.runtime.flags import jit
from tritgold_xla.ternary_matmul import planes
from tritgold_xla.ternary_matmul.bit_linear import PackedLinear, bit_linears, quantize
from tritgold_xla.ternary_matmul.choose import Choices
from tritgold_xla.ternary_matmul.planes import Planes

_quantize = jit(quantize)


def one_linear(codes, scale, weight, rule):
    return bit_linears(codes, scale, {"it": weight}, rule, Choices())["it"]


_bit_linear = jit(one_linear, static=("rule",))
# As in the model: quantised, multiplied, scaled and added in one program, where everything can be fused.
_residual = jit(lambda x, w, r, rule: r + one_linear(*quantize(x)[:2], w, rule)[1], static=("rule",))

shapes = st.tuples(st.integers(1, 9), st.integers(1, 90), st.integers(1, 40))


@settings(deadline=None, derandomize=True, max_examples=12)
@given(shape=shapes, spread=st.sampled_from([0.0, 1e-9, 1e-3, 1.0, 1e6]), seed=st.integers(0, 2**32 - 1))
def test_equals_golden_on_any_shape(shape, spread, seed):
    tokens, in_, out = shape
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((tokens, in_)) * rng.uniform(0, spread, (tokens, 1))).astype(np.float32)
    trits = rng.integers(-1, 2, (out, in_)).astype(np.int8)
    codes, scale = absmax_int8(x)
    got_codes, got_scale, finite = _quantize(x)
    assert np.asarray(finite).all()
    np.testing.assert_array_equal(got_codes, codes)
    np.testing.assert_array_equal(got_scale, scale)
    packed = PackedLinear(Planes(*planes.packed(trits)), np.float32(1))
    acc, _ = _bit_linear(codes, scale, packed, rule="multiply")
    assert acc.dtype == np.int32
    np.testing.assert_array_equal(acc, golden.accumulate(codes, trits))


@pytest.mark.parametrize("tokens", [1, 32])
@pytest.mark.parametrize("rule", ["multiply", "divide"])
@pytest.mark.parametrize("weight_scale", [0.0713, -1.9])
def test_outputs_are_golden_bits_alone_and_before_a_residual(tokens, rule, weight_scale):
    rng = np.random.default_rng(tokens)
    x = (rng.standard_normal((tokens, 77)) * rng.lognormal(0, 2, (tokens, 1))).astype(np.float32)
    x[0] = 0
    trits, w = rng.integers(-1, 2, (53, 77)).astype(np.int8), np.asarray(weight_scale, np.float32)
    residual = rng.standard_normal((tokens, 53)).astype(np.float32)
    codes, scale = absmax_int8(x)
    expected = golden.apply_scales(golden.accumulate(codes, trits), scale, w, rule)
    packed = PackedLinear(Planes(*planes.packed(trits)), w)
    _, out = _bit_linear(codes, scale, packed, rule=rule)
    np.testing.assert_array_equal(np.asarray(out).view(np.int32), expected.view(np.int32))
    np.testing.assert_array_equal(_residual(x, packed, residual, rule=rule), residual + expected)


def test_ties_go_to_even():
    x = np.array([[127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5]], np.float32)
    codes, scale, _ = _quantize(x)
    assert (codes[0].tolist(), scale.tolist()) == ([127, 0, 2, 2, 0, -2, -2], [1.0])


@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("shape", [(1, 256), (32, 77), (128, 2560)])
def test_infinity_and_nan_are_seen_in_every_column(value, shape):
    # Wide shapes: there a reduction would be a library kernel that passes over NaN.
    columns = range(0, shape[1], max(1, shape[1] // 37))
    for column in columns:
        x = np.ones(shape, np.float32)
        x[-1, column] = value
        assert np.asarray(_quantize(x).finite).tolist() == [True] * (shape[0] - 1) + [False]
