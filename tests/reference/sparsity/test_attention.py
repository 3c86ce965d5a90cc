"""Attention rules: explicit loops over query and key, the published table, causal-awareness, ties, empty rows."""

import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from refusals import refusal

from tritgold.errors import ConfigError, NonFiniteError
from tritgold.layers.attention import softmax_weights
from tritgold.sparsity.attention import (
    AttentionDynamic,
    AttentionRule,
    AttentionThreshold,
    AttentionTopK,
    AttentionWindow,
)

RNG = np.random.default_rng(11)
WINDOW = AttentionWindow(window=5, global_tokens=2, stride=4)
CAUSAL: list[AttentionRule] = [
    AttentionTopK(),
    AttentionTopK(k=3),
    AttentionTopK(keep=0.6),
    AttentionThreshold(0.1),
    AttentionThreshold(0.1, at_least=0),
    WINDOW,
    AttentionDynamic(),
    AttentionDynamic(0.2, 0.9),
]
AS_WRITTEN: list[AttentionRule] = [AttentionTopK(causal=False), AttentionDynamic(causal=False)]


def gaussian(tokens: int, keys: int, heads: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """q of some heads and k of one, width 8."""
    q, k = RNG.standard_normal((tokens, heads, 8)), RNG.standard_normal((keys, 1, 8))
    return q.astype(np.float32), k.astype(np.float32)


def weights_of(tokens: int, keys: int, start: int, block: int = 1) -> np.ndarray:
    q, k = gaussian(tokens, keys)
    return softmax_weights(2 * q, k, start, block)


def plain_kept(rule: AttentionRule, row: list[float], position: int, n: int) -> set[int]:
    """The keys that a query keeps of the first n, which it sees. Rows of Python numbers."""
    ranked = sorted(range(n), key=lambda k: (-row[k], k))
    if isinstance(rule, AttentionTopK):
        count = rule.k or max(1, int(n * (rule.keep or 0.25)))
        return set(ranked[:count])
    if isinstance(rule, AttentionThreshold):
        return {k for k in range(n) if row[k] > rule.threshold} | set(ranked[: rule.at_least])
    if isinstance(rule, AttentionWindow):
        near = {k for k in range(n) if abs(position - k) <= rule.window // 2}
        shared = {k for k in range(n) if k < rule.global_tokens or position < rule.global_tokens}
        grid = {k for k in range(n) if rule.stride and position % rule.stride == 0 == k % rule.stride}
        return near | shared | grid
    assert isinstance(rule, AttentionDynamic)
    entropy = -sum(a * math.log(a) for a in row[:n] if a)
    evenness = min(max(entropy / math.log(n), 0), 1) if n > 1 else 0
    return set(ranked[: min(max(int((rule.min_keep + (rule.max_keep - rule.min_keep) * evenness) * n), 1), n)])


@pytest.mark.parametrize("rule", CAUSAL, ids=repr)
@pytest.mark.parametrize(("start", "block"), [(0, 1), (7, 1), (0, 4), (8, 4), (0, 99)])
def test_each_rule_is_its_loop(rule: AttentionRule, start: int, block: int) -> None:
    tokens = 13
    keys = start + tokens
    weights = weights_of(tokens, keys, start, block)
    sparse = rule.sparsify(weights, start, block)
    kept = seen = 0
    for t in range(tokens):
        n = min(((start + t) // block + 1) * block, keys)
        for head in range(2):
            row = weights[head, t].astype(np.float64).tolist()
            chosen = plain_kept(rule, row, start + t, n)
            total = math.fsum(row[k] for k in chosen)
            expected = [row[k] / total if k in chosen else 0.0 for k in range(keys)]
            np.testing.assert_allclose(sparse.values[head, t], expected, rtol=2e-7)
            assert set(np.flatnonzero(sparse.values[head, t]).tolist()) == chosen
            kept, seen = kept + len(chosen), seen + n
    assert (sparse.kept, sparse.of) == (kept, seen)
    assert sparse.values.dtype == np.float32


@pytest.mark.parametrize("rule", CAUSAL, ids=repr)
def test_a_query_s_row_is_the_same_in_a_prefill_and_in_steps(rule: AttentionRule) -> None:
    """Weights of later keys are zero; without them the rows have the same bits."""
    weights = weights_of(20, 20, 0)
    whole = rule.sparsify(weights, 0).values
    for t in range(20):
        step = rule.sparsify(weights[:, t : t + 1, : t + 1], t).values
        assert step.tobytes() == whole[:, t : t + 1, : t + 1].tobytes()
    assert not np.triu(whole[0], 1).any()


@pytest.mark.parametrize("rule", AS_WRITTEN, ids=repr)
def test_as_some_servers_have_it_a_prefill_differs_from_its_steps(rule: AttentionRule) -> None:
    weights = weights_of(20, 20, 0)
    whole = rule.sparsify(weights, 0).values
    step = rule.sparsify(weights[:, 9:10, :10], 9).values
    assert not np.array_equal(step, whole[:, 9:10, :10])
    full = weights_of(20, 20, 0, block=20)
    aware: AttentionRule = AttentionTopK() if isinstance(rule, AttentionTopK) else AttentionDynamic()
    assert rule.sparsify(full, 0, 20).values.tobytes() == aware.sparsify(full, 0, 20).values.tobytes()


def test_masking_before_the_softmax_comes_to_the_same() -> None:
    q, k = gaussian(16, 16, heads=1)
    rule = AttentionTopK(keep=0.4)
    sparse = rule.sparsify(softmax_weights(q, k, 0), 0).values[0]
    scores = q[:, 0].astype(np.float64) @ k[:, 0].astype(np.float64).T / math.sqrt(8)
    scores[sparse == 0] = -np.inf
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    np.testing.assert_allclose(sparse, powers / powers.sum(axis=1, keepdims=True), rtol=1e-6)


def test_equal_weights_go_to_the_lower_positions() -> None:
    weights = np.full((1, 1, 8), 0.125, np.float32)
    assert np.flatnonzero(AttentionTopK(k=3).sparsify(weights, 7).values).tolist() == [0, 1, 2]
    assert np.flatnonzero(AttentionDynamic(0.25, 0.5).sparsify(weights, 7).values).tolist() == [0, 1, 2, 3]
    assert AttentionTopK(k=3).sparsify(weights, 7).sparsity == 5 / 8
    assert AttentionTopK(k=99).sparsify(weights, 7).sparsity == 0, "more than there are keeps all"


def test_a_threshold_above_every_weight_keeps_the_largest_or_nothing() -> None:
    weights = np.full((1, 1, 8), 0.125, np.float32)
    one = AttentionThreshold(0.125).sparsify(weights, 7)
    assert one.values[0, 0].tolist() == [1, 0, 0, 0, 0, 0, 0, 0]
    nothing = AttentionThreshold(0.125, at_least=0).sparsify(weights, 7)
    assert not nothing.values.any()
    assert nothing.sparsity == 1
    assert AttentionThreshold(0.1249).sparsify(weights, 7).sparsity == 0
    assert AttentionThreshold(0).sparsify(weights, 7).values.tobytes() == weights.tobytes()


@pytest.mark.parametrize("rule", [*CAUSAL, *AS_WRITTEN], ids=repr)
def test_a_single_key_keeps_its_weight(rule: AttentionRule) -> None:
    sparse = rule.sparsify(np.ones((3, 1, 1), np.float32), 0)
    assert sparse.values.tolist() == [[[1.0]]] * 3
    assert sparse.sparsity == 0


def test_a_rule_that_drops_nothing_changes_no_bit() -> None:
    weights = weights_of(12, 12, 0)
    assert not np.array_equal(weights.sum(axis=2, dtype=np.float64), np.ones((2, 12))), "divided, bits would change"
    everything: list[AttentionRule] = [
        AttentionTopK(keep=1.0),
        AttentionTopK(k=12),
        AttentionWindow(window=24),
        AttentionDynamic(1.0, 1.0),
    ]
    for rule in everything:
        sparse = rule.sparsify(weights, 0)
        assert sparse.values.tobytes() == weights.tobytes()
        assert sparse.sparsity == 0


def test_the_density_of_the_window_in_full_attention() -> None:
    """Counted over all pairs of 512 positions; the published figure is 56 % sparsity."""
    weights = np.full((1, 512, 512), 1 / 512, np.float32)
    measured = AttentionWindow(256, 1, 64).sparsify(weights, 0, block=512)
    pairs = sum(
        abs(q - k) <= 128 or k < 1 or q < 1 or (q % 64 == 0 and k % 64 == 0) for q in range(512) for k in range(512)
    )
    assert measured.kept == pairs
    assert measured.sparsity == pytest.approx(0.558, abs=5e-4)
    near = AttentionWindow(4, 0, None).sparsify(np.full((1, 32, 32), 1 / 32, np.float32), 0)
    assert np.count_nonzero(near.values, axis=2)[0].tolist() == [1, 2, *[3] * 30], "half a window for causal queries"


# Rule, cosine and sparsity of the published table: 512 keys, full attention, Gaussian scores.
TABLE: list[tuple[AttentionRule, float, float]] = [
    (AttentionTopK(k=128), 0.956, 0.75),
    (AttentionTopK(k=64), 0.896, 0.875),
    (AttentionWindow(256, 1, 64), 0.653, 0.558),
    (AttentionDynamic(0.1, 0.5), 0.990, 0.532),
]


def gaussian_attention() -> np.ndarray:
    """Weights of 4 heads over 512 keys from scores of variance 1."""
    powers = np.exp(np.random.default_rng(0).standard_normal((4, 512, 512)))
    return (powers / powers.sum(axis=2, keepdims=True)).astype(np.float32)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Of the outputs: with independent values of mean 0, <a v, b v> is <a, b> on average, so none need be drawn."""
    a, b = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
    return float(a @ b / math.sqrt((a @ a) * (b @ b)))


@pytest.mark.parametrize(("rule", "expected", "sparsity"), TABLE, ids=[repr(row[0]) for row in TABLE])
def test_the_published_table(rule: AttentionRule, expected: float, sparsity: float) -> None:
    weights = gaussian_attention()
    sparse = rule.sparsify(weights, 0, block=512)
    assert cosine(weights, sparse.values) == pytest.approx(expected, abs=0.01)
    assert sparse.sparsity == pytest.approx(sparsity, abs=0.01)


@pytest.mark.parametrize("k", [64, 128, 256])
def test_top_k_of_gaussian_scores_in_closed_form(k: int) -> None:
    """The energy of e^z is e^2z: above the edge t lies the share 1 - Phi(t - 2) of it, and the cosine is its root."""
    normal = NormalDist()
    weights = gaussian_attention()
    sparse = AttentionTopK(k=k).sparsify(weights, 0, block=512)
    share = 1 - normal.cdf(normal.inv_cdf(1 - k / 512) - 2)
    assert cosine(weights, sparse.values) == pytest.approx(math.sqrt(share), abs=0.005)


def test_what_is_not_finite_is_refused() -> None:
    weights = np.ones((1, 1, 2), np.float32)
    weights[0, 0, 1] = np.nan
    for rule in CAUSAL:
        error = refusal(lambda rule=rule: rule.sparsify(weights, 1))  # type: ignore[misc]
        assert isinstance(error, NonFiniteError)
        assert error.kind == "attention-non-finite"


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (AttentionTopK, [{"k": 0}, {"k": 2.0}, {"keep": 0}, {"keep": 1.1}, {"k": 3, "keep": 0.5}]),
        (AttentionThreshold, [{"threshold": t} for t in (-0.1, 1, 1.0, 2, math.nan, None)] + [{"at_least": -1}]),
        (AttentionWindow, [{"window": -1}, {"global_tokens": -1}, {"stride": 0}, {"window": None}]),
        (AttentionDynamic, [{"min_keep": 0}, {"max_keep": 1.1}, {"min_keep": 0.6}, {"min_keep": math.nan}]),
    ],
)
def test_options_out_of_range_are_refused_by_name(make: Any, options: list[dict[str, Any]]) -> None:
    for option in options:
        error = refusal(lambda option=option: make(**option))  # type: ignore[misc]
        assert isinstance(error, ConfigError)
        assert error.kind == "sparsity-option"
        assert make.name in str(error)
        assert any(name in str(error) for name in option)
