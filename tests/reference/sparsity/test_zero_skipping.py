"""Exact skipping: the dense model's integers and bits from the products that are not zero alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.golden import embedded_model
from tritgold.layers.bit_linear import accumulate
from tritgold.model import forward
from tritgold.quantize import absmax_int8
from tritgold.sparsity.base import Tally
from tritgold.sparsity.zero_skipping import ZeroSkipping, accumulate_nonzero, gated_up
from tritgold.ternary import TernaryTensor
from tritgold.trace import Trace

TOKENS = [256, 72, 101, 32, 115, 97, 105, 100]


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    with embedded_model("seeded") as path:
        return open_checkpoint(path)


@pytest.fixture(scope="module")
def dense(checkpoint: Checkpoint) -> Trace:
    trace = Trace()
    forward(TOKENS, checkpoint.weights, checkpoint.config, trace=trace)
    return trace


@given(
    st.integers(1, 5), st.integers(1, 40), st.integers(1, 9), st.sampled_from([0, 0.5, 1]), st.integers(0, 2**32 - 1)
)
def test_gathered_accumulators_are_the_dense_ones(tokens: int, size: int, out: int, zeros: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.integers(-128, 128, (tokens, size)).astype(np.int8) * (rng.random((tokens, size)) >= zeros)
    trits = rng.integers(-1, 2, (out, size)).astype(np.int8)
    acc = accumulate_nonzero(codes.astype(np.int8), trits)
    assert acc.dtype == np.int32
    assert np.array_equal(acc, codes.astype(np.int64) @ trits.astype(np.int64).T)


def test_a_whole_model_without_its_zero_products_is_the_model_bit_for_bit(checkpoint: Checkpoint, dense: Trace) -> None:
    trace, tally = Trace(), Tally()
    arithmetic = ZeroSkipping().arithmetic(tally=tally)
    forward(TOKENS, checkpoint.weights, checkpoint.config, trace=trace, arithmetic=arithmetic)
    assert trace.digest() == dense.digest()
    assert trace.mode == "altered-golden/1"
    zeros = products = 0
    for name, acc in dense.arrays.items():
        if name.endswith(".acc"):
            source = {"q": "attn", "k": "attn", "v": "attn", "o": "o", "gate": "ffn", "up": "ffn", "down": "down"}
            codes = dense[f"{name.rsplit('.', 2)[0]}.{source[name.split('.')[-2]]}_in.codes"]
            zeros += int((codes == 0).sum()) * acc.shape[1]
            products += codes.size * acc.shape[1]
    assert tally.sparsity("products") == zeros / products


def test_the_squared_relu_makes_about_half_of_down_s_inputs_zero(checkpoint: Checkpoint, dense: Trace) -> None:
    """A model of noise has as many open gates as closed ones; a trained one has fewer."""
    for layer in range(checkpoint.config.layers):
        codes = dense[f"layers.{layer}.down_in.codes"]
        closed = dense[f"layers.{layer}.gate.out"] <= 0
        assert not codes[closed].any()
        assert 0.4 < closed.mean() < 0.6


def test_rows_behind_closed_gates_need_not_be_computed(checkpoint: Checkpoint, dense: Trace) -> None:
    for layer, weights in enumerate(checkpoint.weights.layers):
        at = f"layers.{layer}"
        gate, codes, scale = dense[f"{at}.gate.out"], dense[f"{at}.ffn_in.codes"], dense[f"{at}.ffn_in.scale"]
        sparse = gated_up(gate, codes, scale, weights.up.ternary(), checkpoint.config.scale_rule)
        whole = dense[f"{at}.ffn_act"]
        assert np.array_equal(sparse.values, whole)
        assert sparse.values[whole != 0].tobytes() == whole[whole != 0].tobytes(), "only signs of zeros may differ"
        assert sparse.kept == (gate > 0).sum() < sparse.of
        for got, expected in zip(absmax_int8(sparse.values), absmax_int8(whole), strict=True):
            assert np.array_equal(got, expected)


def test_a_closed_gate_is_closed_at_zero_and_nan_is_not_hidden() -> None:
    up = TernaryTensor(np.ones((4, 2), np.int8), np.asarray(np.float32(1)))
    gate, codes = np.array([[0.0, -0.0, -1.0, np.nan]], np.float32), np.array([[3, 4]], np.int8)
    sparse = gated_up(gate, codes, np.ones(1, np.float32), up, "multiply")
    assert sparse.values[0, :3].tolist() == [0, 0, 0]
    assert np.isnan(sparse.values[0, 3])
    assert sparse.kept == 1


def test_the_zero_row_and_the_full_row() -> None:
    trits = np.array([[1, -1], [0, 1]], np.int8)
    for codes in ([[0, 0]], [[-128, 127]]):
        row = np.array(codes, np.int8)
        assert np.array_equal(accumulate_nonzero(row, trits), accumulate(row, trits))
