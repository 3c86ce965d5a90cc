import numpy as np
import pytest
from engine_cases import MIXED, Matrix, make_weights
from hypothesis import given, settings
from hypothesis import strategies as st

import tritgold_xla.ternary_matmul.absmean as module
from tritgold.errors import NonFiniteError
from tritgold.quantize import absmean_ternary
from tritgold_xla import XlaEngine
from tritgold_xla.runtime.flags import jit
from tritgold_xla.ternary_matmul.absmean import absmean
from tritgold_xla.ternary_matmul.planes import pack


def quantised(master):
    """(trits, scale) of the whole matrix."""
    found = absmean(Matrix(master))
    return found.trits(slice(0, len(master))), found.scale


@settings(deadline=None, derandomize=True)
@given(
    out=st.integers(1, 50),
    in_=st.integers(1, 90),
    spread=st.sampled_from([1e-8, 1e-3, 1.0, 1e4]),
    seed=st.integers(0, 2**32 - 1),
)
def test_equals_the_golden_quantiser(out, in_, spread, seed):
    master = np.random.default_rng(seed).normal(0, spread, (out, in_)).astype(np.float32)
    trits, scale = quantised(master)
    golden = absmean_ternary(master)
    np.testing.assert_array_equal(trits, golden.trits)
    assert trits.dtype == np.int8
    assert scale.dtype == np.float32
    assert scale == golden.scale


def test_slices_of_rows_change_nothing(monkeypatch):
    master = np.random.default_rng(3).normal(0, 1, (33, 7)).astype(np.float32)
    whole = quantised(master)
    monkeypatch.setattr(module, "_ELEMENTS", 20)
    sliced = quantised(master)
    np.testing.assert_array_equal(sliced[0], whole[0])
    assert sliced[1] == whole[1]
    np.testing.assert_array_equal(absmean(Matrix(master)).trits(slice(5, 30)), whole[0][5:30])


def test_weights_of_zero_and_on_the_edge():
    trits, scale = quantised(np.zeros((2, 3), np.float32))
    assert not trits.any()
    assert scale == np.float32(1) / (np.float32(1) / np.float32(1e-5))
    # Mean 1: half a unit is a tie and goes to the even trit, 0.
    trits, scale = quantised(np.array([[0.5, -2.0, 0.1, 1.4]], np.float32))
    assert (trits.tolist(), float(scale)) == ([[0, -1, 0, 1]], 1.0)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_a_master_that_is_not_finite_is_refused(value):
    with pytest.raises(NonFiniteError, match="weight-non-finite"):
        absmean(Matrix(np.array([[1.0, value]], np.float32)))


def test_the_engine_quantises_masters_itself_and_gets_the_golden_planes():
    online = XlaEngine(MIXED, make_weights(MIXED, online=False))
    golden = make_weights(MIXED, online=True)
    for name, weight in golden.linears():
        _, layer, what = name.split(".")
        tensor = weight.ternary()
        packed = online._parameters.layers.linears[what]
        assert packed.scale[int(layer)] == tensor.scale
        np.testing.assert_array_equal(packed.planes.bits[int(layer)], jit(pack)(tensor.trits)[0])
