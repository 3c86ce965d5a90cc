"""Sampling: the filters against a plain second writing, edges and ties, and draws that follow the probabilities."""

import math
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusal

from tritgold.counter_random import MAX_SEED, uniform
from tritgold.decode.sampling import GREEDY, Sampling, candidates, choose
from tritgold.errors import ConfigError, EngineError, NonFiniteError

WARM = Sampling(temperature=1.0)


def plain(logits: list[float], s: Sampling, history: list[int]) -> list[tuple[int, float]]:
    """The five steps once more, on Python numbers: (id, probability), likeliest first."""
    scores = list(logits)
    for token in sorted(set(history)):
        scores[token] = (
            scores[token] / s.repetition_penalty if scores[token] > 0 else scores[token] * s.repetition_penalty
        )
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    if s.temperature == 0:
        return [(order[0], 1.0)]
    order = order[: s.top_k] if s.top_k else order
    weights = [math.exp((scores[i] - scores[order[0]]) / s.temperature) for i in order]
    total, count, so_far = math.fsum(weights), 0, 0.0
    while count < len(order) and (count == 0 or so_far < s.top_p * total):
        so_far += weights[count]
        count += 1
    return [(i, w / so_far) for i, w in zip(order[:count], weights[:count], strict=True)]


def ids(logits: list[float], s: Sampling, history: tuple[int, ...] = ()) -> list[int]:
    return candidates(np.array(logits), s, list(history))[0].tolist()


def logs(*weights: float) -> list[float]:
    return [math.log(w) for w in weights]


@given(
    st.lists(st.integers(-40, 40), min_size=1, max_size=12),
    st.sampled_from([0.0, 0.3, 1.0, 2.5]),
    st.integers(0, 14),
    st.sampled_from([0.0, 0.123, 0.71, 0.987, 1.0]),
    st.sampled_from([1.0, 1.3, 0.7]),
    st.lists(st.integers(0, 11), max_size=6),
)
def test_the_filters_are_those_of_a_plain_second_writing(
    quarters: list[int], temperature: float, top_k: int, top_p: float, penalty: float, history: list[int]
) -> None:
    """Logits are quarters, so that many are equal: ties run through every filter."""
    logits, history = [q / 4 for q in quarters], [h for h in history if h < len(quarters)]
    sampling = Sampling(temperature, top_k, top_p, penalty)
    tokens, probabilities = candidates(np.array(logits, np.float32), sampling, history)
    expected = plain(logits, sampling, history)
    kept = len(tokens)  # what no draw can reach, beyond 2**-53 of the sum, may be left out
    assert tokens.tolist() == [token for token, _ in expected[:kept]]
    np.testing.assert_allclose(probabilities, [p for _, p in expected[:kept]], rtol=1e-13)
    assert sum(p for _, p in expected[kept:]) < 1e-14


def test_temperature_0_is_the_first_maximum_whatever_else_is_set() -> None:
    logits = np.array([1.0, 3.0, 3.0, 2.0], np.float32)
    for sampling in (GREEDY, Sampling(top_k=4, top_p=0.9, seed=5)):
        assert choose(logits, sampling, []) == 1
        assert choose(logits[::-1], sampling, []) == 1
    assert choose(logits, Sampling(repetition_penalty=2), [1]) == 2, "the penalty comes before"


def test_temperature_divides_the_logits() -> None:
    _, shares = candidates(np.array(logs(1, 16)), Sampling(temperature=2), [])
    np.testing.assert_allclose(shares, [4 / 5, 1 / 5])


def test_an_extreme_temperature_warns_of_nothing_and_makes_no_nan() -> None:
    assert ids([0.0, 1.0, 1.0], Sampling(temperature=5e-324)) == [1, 2]
    _, shares = candidates(np.array([0.0, 30.0, -1e38]), Sampling(temperature=1e300), [])
    np.testing.assert_allclose(shares, [1 / 3] * 3)


@pytest.mark.parametrize(
    ("top_k", "kept"), [(0, [2, 1, 3, 0]), (1, [2]), (2, [2, 1]), (3, [2, 1, 3]), (4, [2, 1, 3, 0]), (99, [2, 1, 3, 0])]
)
def test_top_k_keeps_exactly_k_and_the_lower_id_of_a_tie(top_k: int, kept: list[int]) -> None:
    assert ids([0.0, 1.0, 2.0, 1.0], Sampling(temperature=1, top_k=top_k)) == kept


@pytest.mark.parametrize(
    ("top_p", "kept"),
    [(0.0, [0]), (1e-9, [0]), (0.5, [0]), (0.51, [0, 1]), (0.75, [0, 1]), (0.8, [0, 1, 2]), (1.0, [0, 1, 2, 3])],
)
def test_top_p_keeps_the_fewest_that_reach_p(top_p: float, kept: list[int]) -> None:
    """Shares 1/2, 1/4, 1/8, 1/8, exact in binary: at 0.5 and 0.75 the sum hits p exactly, and nothing more is kept."""
    logits = np.array([0.0, -1.0, -2.0, -2.0]) * math.log(2)
    weights = np.exp(logits)
    assert weights.tolist() == [1, 0.5, 0.25, 0.25], "the case stands or falls with exact weights"
    assert ids(logits.tolist(), Sampling(temperature=1, top_p=top_p)) == kept


def test_top_p_on_the_edge_of_a_tie_takes_the_lower_ids() -> None:
    assert ids([7.0] * 10, Sampling(temperature=1, top_p=0.3)) == [0, 1, 2]


def test_top_p_counts_the_probabilities_that_top_k_left() -> None:
    """Of shares 4, 2, 1, 1 in eight, top-k 2 leaves 4/6 and 2/6: the first alone reaches 0.6."""
    assert ids(logs(4, 2, 1, 1), Sampling(temperature=1, top_p=0.6)) == [0, 1]
    assert ids(logs(4, 2, 1, 1), Sampling(temperature=1, top_k=2, top_p=0.6)) == [0]


def test_the_penalty_divides_what_is_positive_and_multiplies_the_rest_once_an_id() -> None:
    logits = np.array([6.0, -6.0, 0.0, 6.0])
    _, shares = candidates(logits, Sampling(temperature=1, repetition_penalty=2), [0, 1, 2, 0, 0])
    expected = np.exp([6.0, 3.0, 0.0, -12.0])
    np.testing.assert_allclose(shares, expected / expected.sum())
    assert ids(logits.tolist(), GREEDY, (3,)) == [0]


def test_a_penalty_of_1_changes_no_bit_and_ids_outside_the_logits_are_passed_over() -> None:
    logits = np.random.default_rng(0).standard_normal(9)
    for history in ([0, 5, 5], [99, -1]):
        sampling = Sampling(temperature=1, repetition_penalty=1 if 5 in history else 3)
        for got, expected in zip(candidates(logits, sampling, history), candidates(logits, WARM, []), strict=True):
            assert got.tobytes() == expected.tobytes()


def test_the_argument_is_left_alone() -> None:
    logits = np.array([1.0, 2.0])
    candidates(logits, Sampling(temperature=1, repetition_penalty=2), [0, 1])
    assert logits.tolist() == [1.0, 2.0]


def test_the_draw_is_the_share_that_the_number_of_its_position_falls_into() -> None:
    """Shares 1/2, 1/4, 1/4: below 1/2 the first, and so on; number 0 has the index 0."""
    logits = np.array(logs(2, 1, 1))
    for position in range(50):
        u = uniform(9, np.array([position], np.uint64))[0]
        expected = 0 if u < 0.5 else 1 if u < 0.75 else 2
        assert choose(logits, Sampling(temperature=1, seed=9), [3] * position) == expected


def test_draws_follow_the_probabilities() -> None:
    """4,000 draws; each count within five standard deviations."""
    logits, draws = np.array(logs(8, 4, 2, 1, 1)), 4_000
    counts = np.zeros(5)
    for seed in range(draws):
        counts[choose(logits, Sampling(temperature=1, seed=seed), [0] * 7)] += 1
    expected = draws * np.array([8, 4, 2, 1, 1]) / 16
    assert (np.abs(counts - expected) < 5 * np.sqrt(expected)).all(), counts
    assert not (np.abs(counts - draws / 5) < 5 * np.sqrt(draws / 5)).all(), "the check can fail"


def python_uniform(seed: int, index: int) -> float:
    """SplitMix64 on Python integers."""
    z = (seed * 0xD1342543DE82EF95 + index * 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return (z ^ z >> 31) // 2**11 / 2**53


def test_the_golden_tokens_of_a_seed() -> None:
    """A seed means the same everywhere: the tokens stand here, and the plain second writing draws them too."""
    logits = [(i * i * 31 + 7 * i) % 50 / 10 for i in range(50)]
    sampling = Sampling(1.5, top_k=40, top_p=0.95, repetition_penalty=1.2, seed=158)
    text: list[int] = []
    for _ in range(12):
        u, shares = python_uniform(158, len(text)), plain(logits, sampling, text)
        ends = np.cumsum([p for _, p in shares])
        assert choose(np.array(logits), sampling, text) == shares[int(np.argmax(ends > u))][0]
        text.append(choose(np.array(logits), sampling, text))
    assert text == [41, 33, 16, 12, 36, 18, 13, 17, 26, 7, 11, 34]


def test_a_token_that_cannot_come_never_comes() -> None:
    logits = np.array([-np.inf, 0.0, -np.inf, 0.0])
    assert {choose(logits, Sampling(temperature=9, seed=s), []) for s in range(200)} == {1, 3}
    assert choose(np.array([-np.inf, -1e30]), GREEDY, [1]) == 1


@pytest.mark.parametrize("sampling", [GREEDY, WARM, Sampling(temperature=1, top_k=1)])
@pytest.mark.parametrize(
    ("logits", "kind", "error"),
    [
        ([0.0, np.nan], "logits-non-finite", NonFiniteError),
        ([0.0, np.inf], "logits-non-finite", NonFiniteError),
        ([-np.inf, -np.inf], "logits-impossible", NonFiniteError),
        ([], "logits-shape", EngineError),
        ([[0.0, 1.0]], "logits-shape", EngineError),
        (["a"], "logits-shape", EngineError),
    ],
)
def test_logits_that_allow_no_choice_are_refused(sampling: Sampling, logits: Any, kind: str, error: type) -> None:
    refused = refusal(lambda: choose(np.array(logits), sampling, []))
    assert isinstance(refused, error)
    assert refused.kind == kind


def test_a_penalty_that_overflows_is_refused_and_does_not_become_nan() -> None:
    sampling = Sampling(temperature=1, repetition_penalty=1e-308)
    assert refusal(lambda: choose(np.array([5.0, 1.0]), sampling, [0])).kind == "logits-non-finite"


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("temperature", [-0.1, math.inf, math.nan, "hot", None, True, 10**400]),
        ("top_k", [-1, 2.0, True, "3", 2**31]),
        ("top_p", [-0.1, 1.1, math.nan, "all"]),
        ("repetition_penalty", [0, -1, math.inf, math.nan, [], 10**400]),
        ("seed", [-1, MAX_SEED + 1, 1.0, None]),
    ],
)
def test_options_out_of_range_are_refused_by_name(option: str, values: list[Any]) -> None:
    assert option in {field.name for field in fields(Sampling)}
    for value in values:
        refused = refusal(lambda value=value: Sampling(**{option: value}))  # type: ignore[misc]
        assert isinstance(refused, ConfigError)
        assert (refused.kind, refused.thing) == ("sampling-option", option)


def test_options_at_their_ends_are_taken() -> None:
    for option in ({"temperature": 0}, {"top_p": 0}, {"top_p": 1}, {"seed": MAX_SEED}, {"temperature": np.float32(1)}):
        choose(np.array([0.0, 1.0]), Sampling(**{"temperature": 1, **option}), [0])  # type: ignore[arg-type]
