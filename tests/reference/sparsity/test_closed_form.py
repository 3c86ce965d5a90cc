"""Gaussian activations have sparsities and cosines in closed form, and the rules and the layer after them show them.

What is dropped below t has the share P = P(|x| < t) and the energy P - 2 t phi(t), so

    cos(x, sparse x) = sqrt(1 - P + 2 t phi(t))

and the same, up to the noise of finitely many outputs, after a linear layer.
"""

from statistics import NormalDist

import numpy as np
import pytest

from tritgold.layers.bit_linear import accumulate
from tritgold.quantize import absmax_int8
from tritgold.sparsity.activation import MaskingRule, Threshold, TopK
from tritgold.sparsity.q_sparse import QSparse

NORMAL = NormalDist()
# keep -> cosine, as measured on a server's kernels and as the formula gives it.
PUBLISHED = {0.9: 0.9997, 0.8: 0.9979, 0.7: 0.9927, 0.5: 0.9637, 0.4: 0.9334}


def closed_form(t: float) -> tuple[float, float]:
    """(sparsity, cosine) of dropping what is below t."""
    share = NORMAL.cdf(t) - NORMAL.cdf(-t)
    return share, (1 - share + 2 * t * NORMAL.pdf(t)) ** 0.5


def edge(keep: float) -> float:
    return NORMAL.inv_cdf(1 - keep / 2)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


@pytest.fixture(scope="module")
def gaussian() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((32, 4096)).astype(np.float32)


def test_the_published_cosines_are_the_formula() -> None:
    for keep, expected in PUBLISHED.items():
        assert closed_form(edge(keep))[1] == pytest.approx(expected, abs=6e-5)
    assert closed_form(0.1) == pytest.approx((0.0797, 0.99987), abs=6e-5)


@pytest.mark.parametrize("keep", PUBLISHED)
def test_top_k_and_the_threshold_of_its_edge_have_the_cosine(gaussian: np.ndarray, keep: float) -> None:
    for rule in (TopK(keep), Threshold(edge(keep)), QSparse(keep, rescale=False)):
        sparse = rule.sparsify(gaussian)
        assert cosine(gaussian, sparse.values) == pytest.approx(PUBLISHED[keep], abs=0.001)
        assert sparse.sparsity == pytest.approx(1 - keep, abs=0.003)


def test_threshold_a_tenth(gaussian: np.ndarray) -> None:
    sparse = Threshold(0.1).sparsify(gaussian)
    assert sparse.sparsity == pytest.approx(0.0797, abs=0.003)
    assert cosine(gaussian, sparse.values) == pytest.approx(0.99987, abs=2e-5)


@pytest.mark.parametrize("keep", PUBLISHED)
def test_a_ternary_layer_behind_the_rule_has_the_cosine(gaussian: np.ndarray, keep: float) -> None:
    """Codes and trits as in the model; int8 rounding costs the sparse and the dense output alike."""
    trits = np.random.default_rng(2).integers(-1, 2, (2048, 4096)).astype(np.int8)
    outputs = []
    rules: list[MaskingRule] = [TopK(1), TopK(keep), QSparse(keep)]
    for rule in rules:
        codes, scale = rule.quantize(gaussian[:8], "attn_in", absmax_int8)
        outputs.append(accumulate(codes, trits) / scale[:, None])
    assert cosine(outputs[0], outputs[1]) == pytest.approx(PUBLISHED[keep], abs=0.003)
    by_token = [cosine(a, b) for a, b in zip(outputs[0], outputs[2], strict=True)]  # each has a norm of its own
    assert np.mean(by_token) == pytest.approx(PUBLISHED[keep], abs=0.003)
