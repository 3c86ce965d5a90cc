"""Q-Sparse and a4.8: the codes that reach a linear layer, against the formulas in float64, and their edges."""

import numpy as np
import pytest
from refusals import refusal

from tritgold.quantize import absmax_int8
from tritgold.sparsity.a4_8 import A48, absmean_int4
from tritgold.sparsity.q_sparse import QSparse

RNG = np.random.default_rng(3)


def gaussian(tokens: int, width: int) -> np.ndarray:
    return RNG.standard_normal((tokens, width)).astype(np.float32)


def quantize(rule: QSparse | A48, x: np.ndarray, place: str = "attn_in") -> tuple[np.ndarray, np.ndarray]:
    return rule.quantize(x, place, absmax_int8)


def test_q_sparse_keeps_the_largest_codes_and_divides_by_their_norm() -> None:
    x = gaussian(5, 60)
    dense, scale = absmax_int8(x)
    codes, rescaled = quantize(QSparse(0.3), x)
    for token in range(5):
        chosen = sorted(range(60), key=lambda i: (-abs(int(dense[token, i])), i))[:18]
        expected = [int(dense[token, i]) if i in chosen else 0 for i in range(60)]
        assert codes[token].tolist() == expected
        kept = np.array(expected) / float(scale[token])
        np.testing.assert_allclose(codes[token] / rescaled[token], kept / np.linalg.norm(kept), rtol=1e-6)
    assert np.array_equal(quantize(QSparse(0.3, rescale=False), x)[1], scale)


def test_q_sparse_takes_ties_of_codes_in_their_order_and_minus_128_as_the_largest() -> None:
    def dense(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return x.astype(np.int8), np.ones(len(x), np.float32)

    x = np.array([[-127, 127, -128, 5], [3, -3, 3, 3]], np.float32)
    codes, _ = QSparse(0.5).quantize(x, "o_in", dense)
    assert codes.tolist() == [[-127, 0, -128, 0], [3, -3, 0, 0]]


def test_q_sparse_float_values_have_length_1() -> None:
    values = QSparse(0.4).sparsify(gaussian(4, 50)).values
    np.testing.assert_allclose(np.linalg.norm(values.astype(np.float64), axis=1), 1, rtol=1e-6)
    codes, scale = quantize(QSparse(0.4), np.zeros((1, 50), np.float32))
    assert not codes.any()
    assert scale.tolist() == [1.0]


@pytest.mark.parametrize(("width", "kept"), [(64, 32), (32, 16), (40, 24), (7, 7), (1, 1)])
def test_groups_of_16_in_32_and_a_short_one_at_the_end(width: int, kept: int) -> None:
    """A tail of 8 is padded with zeros, so all of it is among the largest 16."""
    x = gaussian(3, width)
    values = QSparse(0.5, group=32, rescale=False).sparsify(x).values
    assert np.count_nonzero(values, axis=1).tolist() == [kept] * 3
    for first in range(0, width - 31, 32):
        group = np.abs(x[:, first : first + 32])
        assert np.array_equal(values[:, first : first + 32] != 0, group >= np.sort(group, axis=1)[:, 16:17])


def test_int4_is_the_formula_and_uses_its_whole_range() -> None:
    x = gaussian(6, 400)
    codes, scale = absmean_int4(x)
    mean = np.abs(x.astype(np.float64)).mean(axis=1, keepdims=True)
    exact = np.sqrt(7) / mean * x
    near_tie = np.abs(np.abs(exact - np.floor(exact)) - 0.5) < 1e-5
    assert ((codes == np.clip(np.rint(exact), -8, 7)) | near_tie).all()
    assert (codes.min(), codes.max()) == (-8, 7)
    assert codes.dtype == np.int8
    np.testing.assert_allclose(scale, np.sqrt(7) / mean[:, 0], rtol=1e-6)
    error = np.square(codes / scale[:, None] - x).mean() / np.square(x).mean()
    assert 0.005 < error < 0.02, "values near x: dequantised by mean instead of mean / sqrt 7, they are 2.6 times it"


def test_int4_rounds_half_to_even_and_zero_gives_zero() -> None:
    """Rows (x, 2 - x) have the mean 1; among the x around code / s one makes the float32 product the tie itself."""
    s = np.float32(np.sqrt(7))
    for tie, code in ((0.5, 0), (1.5, 2), (2.5, 2)):
        around = np.arange(-4, 5) * np.spacing(np.float32(tie / s)) + np.float32(tie / s)
        x = around[around.astype(np.float32) * s == np.float32(tie)][0]
        codes, scale = absmean_int4(np.array([[x, 2 - x]], np.float32))
        assert scale[0] == s
        assert codes[0, 0] == code
    codes, scale = absmean_int4(np.zeros((2, 4), np.float32))
    assert not codes.any()
    assert np.isfinite(scale).all()
    assert refusal(lambda: absmean_int4(np.full((1, 2), np.nan, np.float32))).kind == "activation-non-finite"


def test_a4_8_has_a_quantiser_for_each_place() -> None:
    x = gaussian(3, 100)
    dense, dense_scale = absmax_int8(x)
    for place in ("attn_in", "ffn_in"):
        for got, expected in zip(quantize(A48(), x, place), absmean_int4(x), strict=True):
            assert np.array_equal(got, expected)
    assert np.array_equal(quantize(A48(), x, "down_in")[0], dense)
    codes, scale = quantize(A48(), x, "o_in")
    assert np.array_equal(scale, dense_scale)
    for token in range(3):
        chosen = sorted(range(100), key=lambda i: (-abs(int(dense[token, i])), i))[:50]
        assert codes[token].tolist() == [int(dense[token, i]) if i in chosen else 0 for i in range(100)]
    assert refusal(lambda: A48(keep=1.5)).kind == "sparsity-option"
