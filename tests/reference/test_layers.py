"""Each layer function against a plain formula in float64, and on the inputs that fail the naive version."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritgold.layers.attention import mix_values, softmax_weights
from tritgold.layers.bit_linear import accumulate, apply_scales
from tritgold.layers.feed_forward import gated_activation
from tritgold.layers.lm_head import logits
from tritgold.layers.rms_norm import rms_norm
from tritgold.layers.rotary import rotate, rotation_table

RNG = np.random.default_rng(0)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


class Matrix:
    """A DenseMatrix in memory."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.shape = values, values.shape

    def rows(self, index: slice | np.ndarray) -> np.ndarray:
        return self.values[index]


def close(got: np.ndarray, truth: np.ndarray) -> None:
    """Within one unit of float32 of a float64 formula computed in another order."""
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, truth, rtol=1.2e-7, atol=1e-30)


@pytest.mark.parametrize("size", [1, 3, 15, 17, 31, 33, 127, 129, 160, 255, 257, 4096, 132_104])
def test_accumulators_are_exact_up_to_the_widest_legal_input(size: int) -> None:
    """All 127 x +1: 127 K in Python integers. An int16 sum first differs at K = 259; float32 holds up to 132,104."""
    codes, trits = np.full((2, size), 127, np.int8), np.ones((3, size), np.int8)
    assert accumulate(codes, trits).tolist() == [[127 * size] * 3] * 2
    assert accumulate(codes, -trits).tolist() == [[-127 * size] * 3] * 2


def test_accumulate_refuses_what_float32_cannot_hold() -> None:
    with pytest.raises(ValueError, match="132105"):
        accumulate(np.zeros((1, 132_105), np.int8), np.zeros((1, 132_105), np.int8))


@given(st.integers(1, 5), st.integers(1, 40), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_accumulators_equal_integer_arithmetic(tokens: int, size: int, out: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.integers(-128, 128, (tokens, size)).astype(np.int8)
    trits = rng.integers(-1, 2, (out, size)).astype(np.int8)
    assert np.array_equal(accumulate(codes, trits), codes.astype(np.int64) @ trits.astype(np.int64).T)


def test_scales_divide_or_multiply_in_the_stated_order() -> None:
    acc = np.array([[7, -3]], np.int32)
    s, w = np.array([31.7], np.float32), np.array(1.2109375, np.float32)
    expected = np.float32(7) / s[0] * w, np.float32(7) / s[0] / w
    got = [apply_scales(acc, s, w, rule)[0, 0] for rule in ("multiply", "divide")]
    assert tuple(got) == expected
    assert got[0] / got[1] == pytest.approx(1.4664, abs=1e-4)  # scale squared: the wrong rule is off by it


def test_all_zero_weights_give_exactly_zero() -> None:
    """A missing offset correction shows here: it would give the sum of the codes."""
    acc = accumulate(np.full((2, 64), 93, np.int8), np.zeros((5, 64), np.int8))
    assert not acc.any()


def test_rms_norm() -> None:
    x, gain = f32(4, 96), f32(96)
    x64 = x.astype(np.float64)
    close(rms_norm(x, gain, 1e-5), x64 / np.sqrt((x64**2).mean(axis=1, keepdims=True) + 1e-5) * gain)


def test_rms_norm_of_zeros_and_of_tiny_values_shows_eps() -> None:
    gain = np.ones(8, np.float32)
    assert not rms_norm(np.zeros((1, 8), np.float32), gain, 1e-5).any()
    tiny = np.full((1, 8), 1e-3, np.float32)
    assert rms_norm(tiny, gain, 1e-5)[0, 0] == pytest.approx(0.3015, abs=1e-4)
    assert rms_norm(tiny, gain, 1e-6)[0, 0] == pytest.approx(0.7071, abs=1e-4)


def test_rope_turns_half_pairs_and_leaves_position_0() -> None:
    x = f32(5, 3, 8)
    got = rotate(x, rotation_table(np.arange(5), 8, 500000.0))
    assert np.array_equal(got[0], x[0])
    angle = np.arange(5)[:, None] * 500000.0 ** (-np.arange(4) / 4)
    z = (x[..., :4].astype(np.float64) + 1j * x[..., 4:]) * np.exp(1j * angle)[:, None]
    close(got, np.concatenate([z.real, z.imag], axis=2))


def test_attention_equals_the_plain_formula_with_grouped_heads() -> None:
    q, k, v = f32(6, 4, 8), f32(6, 2, 8), f32(6, 2, 8)
    scores = np.einsum("thd,shd->hts", q.astype(np.float64), np.repeat(k, 2, axis=1)) / np.sqrt(8)
    scores = np.where(np.tril(np.ones((6, 6))) > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    got = softmax_weights(q, k, start=0)
    close(got, weights)
    mixed = np.einsum("hts,shd->thd", got.astype(np.float64), np.repeat(v, 2, axis=1)).reshape(6, 32)
    np.testing.assert_allclose(mix_values(got, v), mixed, rtol=1e-5, atol=1e-7)


def test_softmax_survives_scores_of_a_thousand() -> None:
    q = np.full((1, 1, 2), 100, np.float32)
    k = np.array([[[10, 10]], [[-10, -10]]], np.float32)
    weights = softmax_weights(q, k, start=1)
    assert weights[0, 0].tolist() == [1.0, 0.0]


def test_keys_behind_a_token_change_no_bit_of_its_weights() -> None:
    q, k = f32(3, 2, 8), f32(30, 1, 8)
    alone = softmax_weights(q, k[:13], start=10)
    assert np.array_equal(softmax_weights(q, k, start=10)[:, :, :13], alone)
    assert not softmax_weights(q, k, start=10)[:, :, 13:].any()


@pytest.mark.parametrize("block", [1, 2, 3, 4, 8, 100])
@pytest.mark.parametrize("start", [0, 1, 5, 8])
def test_a_token_sees_its_block_of_absolute_positions_and_those_before(block: int, start: int) -> None:
    """Against the rule position by position; each row is bit for bit that of a lone last token with these keys."""
    tokens, keys = 7, start + 9  # two keys after the last token
    q, k = f32(tokens, 2, 8), f32(keys, 1, 8)
    got = softmax_weights(q, k, start, block)
    for token in range(tokens):
        seen = [key for key in range(keys) if (start + token) // block >= key // block]
        assert np.flatnonzero(got[0, token]).tolist() == np.flatnonzero(got[1, token]).tolist() == seen
        alone = softmax_weights(q[token : token + 1], k[seen], start=len(seen) - 1)
        assert np.array_equal(got[:, token : token + 1, seen], alone)


def test_block_attention_equals_the_plain_formula() -> None:
    q, k = f32(8, 2, 8), f32(8, 2, 8)
    scores = np.einsum("thd,shd->hts", q.astype(np.float64), k) / np.sqrt(8)
    scores[:, :4, 4:] = -np.inf
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    close(softmax_weights(q, k, start=0, block=4), weights / weights.sum(axis=2, keepdims=True))


def test_long_attention_is_cut_into_pieces_that_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = f32(9, 2, 8), f32(9, 1, 8), f32(9, 1, 8)
    weights = softmax_weights(q, k, start=0)
    blocks = softmax_weights(q, k, start=0, block=4)
    mixed = mix_values(weights, v)
    monkeypatch.setattr("tritgold.layers.attention._SCRATCH", 1)  # one token at a time
    assert np.array_equal(softmax_weights(q, k, start=0), weights)
    assert np.array_equal(softmax_weights(q, k, start=0, block=4), blocks)
    assert np.array_equal(mix_values(weights, v), mixed)


def test_activations() -> None:
    gate, up = np.array([[-1, 0.5, 2, -200, 300]], np.float32), np.ones((1, 5), np.float32)
    assert gated_activation(gate, up, "relu2").tolist() == [[0, 0.25, 4, 0, 90_000]]
    g = gate.astype(np.float64)
    np.testing.assert_allclose(gated_activation(gate, up, "silu"), g / (1 + np.exp(-g)), rtol=1e-6, atol=1e-38)


@pytest.mark.parametrize("vocab", [1, 63, 64, 65, 131])
def test_logits_cover_every_row_of_a_vocabulary_off_the_grid(vocab: int) -> None:
    x, head = f32(2, 48), f32(vocab, 48)
    np.testing.assert_allclose(logits(x, Matrix(head)), x.astype(np.float64) @ head.T, rtol=1e-5, atol=1e-6)


def test_shapes_are_checked_while_tests_run() -> None:
    """jaxtyping's import hook is on: a wrong axis is refused, which shows that the annotations mean something."""
    with pytest.raises(Exception, match="gain"):
        rms_norm(f32(2, 8), f32(7), 1e-5)
