"""Threshold, top-k, adaptive, entropy: each against a plain loop, on ties, and with nothing to choose from."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusal

from tritgold.errors import ConfigError, NonFiniteError
from tritgold.sparsity.activation import MaskingRule, Threshold, TopK
from tritgold.sparsity.adaptive import Adaptive, Entropy, relative_entropy
from tritgold.sparsity.base import Sparse, largest
from tritgold.sparsity.q_sparse import QSparse

RNG = np.random.default_rng(5)
PER_TOKEN: list[MaskingRule] = [Threshold(0.5), TopK(0.4), Entropy(), QSparse(0.4, group=8), QSparse(0.4)]
ALL: list[MaskingRule] = [*PER_TOKEN, Adaptive(), Adaptive(drops_feature_0=True)]


def f32(*rows: list[float]) -> np.ndarray:
    return np.array(rows, np.float32)


def first_largest(row: list[float], k: int) -> list[float]:
    """The k largest magnitudes of a row, ties to the lower index; zeros elsewhere."""
    chosen = sorted(range(len(row)), key=lambda i: (-abs(row[i]), i))[:k]
    return [value if i in chosen else 0.0 for i, value in enumerate(row)]


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=20), st.integers(0, 25))
def test_the_largest_are_those_of_a_sorted_list(row: list[int], k: int) -> None:
    """Small integers, so that most are ties; k = 0 is none, k beyond the row is all of it."""
    mask = largest(np.abs(np.array([row])), k)[0]
    assert [v if m else 0 for v, m in zip(row, mask, strict=True)] == first_largest([float(v) for v in row], k)
    assert mask.sum() == min(k, len(row))


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=20), st.sampled_from([0.01, 0.29, 0.5, 0.77, 1.0]))
def test_top_k_is_a_sorted_list_cut_off(row: list[int], keep: float) -> None:
    values = [v / 4 for v in row]
    sparse = TopK(keep).sparsify(f32(values))
    expected = first_largest(values, max(1, int(len(row) * keep)))
    assert sparse.values.tolist() == [expected]
    assert sparse.sparsity == expected.count(0.0) / len(row), "measured: zeros that were there before count too"


def test_fractions_of_k_are_cut_off_in_binary() -> None:
    """100 * 0.29 is 28.999999999999996."""
    assert TopK(0.29).sparsify(RNG.standard_normal((1, 100)).astype(np.float32)).kept == 28


def test_threshold_is_strict_and_not_rounded_to_float32() -> None:
    x = f32([0.5, -0.5, 0.50001, 0.1])
    assert Threshold(0.5).sparsify(x).values.tolist() == f32([0, 0, 0.50001, 0]).tolist()
    # float32(0.1) is 0.100000001490116..., above the float64 0.1 and equal to it in float32.
    assert Threshold(0.1).sparsify(x).kept == 4
    assert Threshold(float(np.float32(0.1))).sparsify(x).kept == 3
    assert Threshold(0).sparsify(f32([0, 1e-45, -1])).kept == 2
    assert Threshold(1).sparsify(x).sparsity == 1


def plain_adaptive(x: np.ndarray, low: float, high: float, defect: bool) -> list[list[float]]:
    """The rule as it is written, token by token."""
    rows = x.astype(np.float64).tolist()
    n = len(rows[0])
    variances = [0.0 if n == 1 else math.fsum((v - math.fsum(r) / n) ** 2 for v in r) / (n - 1) for r in rows]
    least, most = min(variances), max(variances)
    keeps = [low + (high - low) * (v - least) / (most - least + 1e-8) for v in variances]
    if most - least < 1e-8:
        keeps = [(low + high) / 2] * len(rows)
    counts = [min(max(int(keep * n), 1), n) for keep in keeps]
    result = [first_largest(row, k) for row, k in zip(rows, counts, strict=True)]
    if defect:
        result = [[0.0, *row[1:]] if k < max(counts) else row for row, k in zip(result, counts, strict=True)]
    return result


@pytest.mark.parametrize("defect", [False, True])
@pytest.mark.parametrize(("tokens", "width"), [(1, 1), (3, 1), (1, 40), (7, 33), (20, 64)])
def test_adaptive_is_the_rule_as_it_is_written(tokens: int, width: int, defect: bool) -> None:
    x = (RNG.standard_normal((tokens, width)) * RNG.uniform(0.1, 3, (tokens, 1))).astype(np.float32)
    got = Adaptive(0.2, 0.6, defect).sparsify(x).values
    assert got.tolist() == plain_adaptive(x, 0.2, 0.6, defect)


def test_adaptive_depends_on_the_other_tokens_and_the_defect_on_feature_0() -> None:
    x = np.stack([np.full(10, 1.0), np.linspace(-9, 9, 10)]).astype(np.float32)
    x[0] += np.arange(10, dtype=np.float32) / 100
    x[:, 0] = 50, -50
    whole = Adaptive().sparsify(x)
    assert np.count_nonzero(whole.values, axis=1).tolist() != [5, 5] == [Adaptive().sparsify(r[None]).kept for r in x]
    assert whole.values[:, 0].tolist() == [50, -50]
    dropped = Adaptive(drops_feature_0=True).sparsify(x).values[:, 0]
    assert sorted(np.abs(dropped).tolist()) == [0, 50], "the token that keeps fewer loses its largest value"


def plain_entropy(row: list[float], low: float, high: float) -> list[float]:
    total, n = sum(abs(v) for v in row), len(row)
    shares = [abs(v) / total for v in row if v] if total else []
    evenness = -sum(p * math.log(p) for p in shares) / math.log(n) if n > 1 else 0.0
    return first_largest(row, min(max(int((low + (high - low) * evenness) * n), 1), n))


@pytest.mark.parametrize("width", [1, 2, 7, 64, 301])
def test_entropy_is_the_formula(width: int) -> None:
    x = (RNG.standard_normal((9, width)) ** 3).astype(np.float32)
    expected = [plain_entropy(row, 0.31, 0.72) for row in x.astype(np.float64).tolist()]
    assert Entropy(0.31, 0.72).sparsify(x).values.tolist() == expected


def test_relative_entropy_at_its_ends() -> None:
    assert relative_entropy(np.full((1, 7), 1 / 7), 7)[0] == pytest.approx(1, abs=1e-15)
    assert relative_entropy(np.array([[1.0], [1.0]]), 1).tolist() == [0, 0]
    assert relative_entropy(np.zeros((1, 4)), np.array([4])).tolist() == [0]


@pytest.mark.parametrize("rule", PER_TOKEN, ids=repr)
def test_a_token_s_result_is_its_own(rule: MaskingRule) -> None:
    x = RNG.standard_normal((6, 37)).astype(np.float32)
    whole = rule.sparsify(x).values
    for token in range(6):
        assert rule.sparsify(x[token : token + 1]).values.tobytes() == whole[token].tobytes()


@pytest.mark.parametrize("rule", ALL, ids=repr)
def test_inputs_with_nothing_to_choose_from(rule: MaskingRule) -> None:
    zeros = rule.sparsify(np.zeros((3, 8), np.float32))
    assert not zeros.values.any()
    assert (zeros.kept, zeros.sparsity) == (0, 1.0)
    one = rule.sparsify(f32([7]))
    assert one.values.shape == (1, 1)
    assert one.kept == 1
    assert not np.isnan(one.values).any()


@pytest.mark.parametrize("rule", ALL, ids=repr)
def test_measured_is_counted_and_the_argument_left_alone(rule: MaskingRule) -> None:
    x = RNG.standard_normal((4, 50)).astype(np.float32)
    before = x.copy()
    sparse = rule.sparsify(x)
    assert sparse.sparsity == pytest.approx((sparse.values == 0).mean())
    assert sparse.values.dtype == np.float32
    assert np.array_equal(x, before)


@pytest.mark.parametrize(
    "rule", [TopK(1), Entropy(1, 1), Adaptive(1, 1), Threshold(0), QSparse(1, rescale=False)], ids=repr
)
def test_keeping_everything_changes_no_bit(rule: MaskingRule) -> None:
    x = RNG.standard_normal((4, 50)).astype(np.float32)
    assert rule.sparsify(x).values.tobytes() == x.tobytes()
    assert Sparse(x[:0], 0, 0).sparsity == 0


@pytest.mark.parametrize("rule", ALL, ids=repr)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_and_not_dropped(rule: MaskingRule, value: float) -> None:
    x = np.ones((2, 8), np.float32)
    x[1, 3] = value
    error = refusal(lambda: rule.sparsify(x))
    assert isinstance(error, NonFiniteError)
    assert error.kind == "activation-non-finite"
    assert "token 1" in error.message


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (Threshold, [{"threshold": t} for t in (-0.1, math.nan, math.inf, "x")]),
        (TopK, [{"keep": k} for k in (0, -1, 1.01, math.nan, None)]),
        (Adaptive, [{"min_keep": 0}, {"max_keep": 1.5}, {"min_keep": 0.8}]),
        (Entropy, [{"min_keep": math.nan}, {"min_keep": 0.5, "max_keep": 0.4}]),
        (QSparse, [{"keep": 0}, {"group": 0}, {"group": 2.5}]),
    ],
)
def test_options_out_of_range_are_refused_by_name(make: Any, options: list[dict[str, Any]]) -> None:
    for option in options:
        error = refusal(lambda option=option: make(**option))  # type: ignore[misc]
        assert isinstance(error, ConfigError)
        assert error.kind == "sparsity-option"
        assert make.name in str(error)
        assert any(name in str(error) for name in option)
