"""What the model takes masked tokens for: probabilities, ties, noise, and the fast exponential."""

import math

import numpy as np
import pytest
from refusals import refusal

from tritgold.decode.predictions import likeliest, predict, probabilities, schraudolph_exp
from tritgold.decode.sampling import GREEDY, Sampling

LOGITS = np.log(np.array([[1.0, 2.0, 5.0, 2.0], [4.0, 4.0, 1.0, 1.0]]))


def test_without_noise_the_likeliest_and_its_share() -> None:
    tokens, sure = predict(LOGITS, [7, 8], 0, "none", GREEDY)
    assert tokens.tolist() == [2, 0]
    assert sure.tolist() == pytest.approx([0.5, 0.4], abs=1e-15)


def test_the_last_of_equals() -> None:
    assert predict(LOGITS, [7, 8], 0, "none", GREEDY, last_ties=True)[0].tolist() == [2, 1]
    assert likeliest(np.zeros((2, 5)), last_ties=True).tolist() == [4, 4]


def test_probabilities_beside_numpys_own() -> None:
    logits = np.random.default_rng(5).normal(0, 3, (20, 30))
    tokens = np.arange(20)
    known = (np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))[np.arange(20), tokens]
    assert np.allclose(probabilities(logits, tokens), known, rtol=1e-13)


@pytest.mark.parametrize("noise", ["gumbel", "nucleus"])
def test_drawn_tokens_come_as_often_as_they_should(noise: str) -> None:
    """4000 positions of the same logits: within four standard deviations, on one seed."""
    logits = np.repeat(LOGITS[:1], 4000, axis=0)
    tokens, sure = predict(logits, range(4000), 3, noise, Sampling(temperature=1.0, seed=9))  # type: ignore[arg-type]
    shares = np.bincount(tokens, minlength=4) / 4000
    assert np.abs(shares - [0.1, 0.2, 0.5, 0.2]).max() < 4 * math.sqrt(0.25 / 4000)
    assert sure == pytest.approx(np.array([0.1, 0.2, 0.5, 0.2])[tokens], abs=1e-12)


def test_gumbel_noise_is_scaled_by_temperature_and_leaves_the_confidence_alone() -> None:
    """At temperature 1/2 ids come as the squares of their weights; what is sure is still the plain softmax."""
    logits = np.repeat(LOGITS[:1], 4000, axis=0)
    tokens, sure = predict(logits, range(4000), 3, "gumbel", Sampling(temperature=0.5, seed=9))
    shares = np.bincount(tokens, minlength=4) / 4000
    assert np.abs(shares - np.array([1, 4, 25, 4]) / 34).max() < 4 * math.sqrt(0.25 / 4000)
    assert sure == pytest.approx(np.array([0.1, 0.2, 0.5, 0.2])[tokens], abs=1e-12)


def test_a_nucleus_is_renormalised() -> None:
    tokens, sure = predict(LOGITS[:1], [0], 0, "nucleus", Sampling(temperature=1.0, top_p=0.6))
    assert (tokens[0], sure[0]) in [(2, pytest.approx(5 / 7)), (1, pytest.approx(2 / 7))]


@pytest.mark.parametrize("noise", ["gumbel", "nucleus"])
def test_a_draw_knows_seed_position_and_pass_and_nothing_else(noise: str) -> None:
    logits = np.zeros((6, 97))

    def drawn(positions: list[int], number: int = 1, seed: int = 1) -> list[int]:
        sampling = Sampling(temperature=1.0, seed=seed)
        return predict(logits[: len(positions)], positions, number, noise, sampling)[0].tolist()  # type: ignore[arg-type]

    first = drawn([3, 4, 5, 6, 7, 8])
    assert drawn([8, 4]) == [first[5], first[1]]
    assert len(set(first)) > 3
    assert drawn([3, 4, 5, 6, 7, 8], number=2) != first
    assert drawn([3, 4, 5, 6, 7, 8], seed=2) != first


@pytest.mark.parametrize("noise", ["none", "first", "gumbel", "nucleus"])
def test_at_temperature_0_nothing_is_drawn(noise: str) -> None:
    assert predict(LOGITS, [7, 8], 0, noise, GREEDY)[0].tolist() == [2, 0]  # type: ignore[arg-type]


def test_the_fast_exponential_errs_upwards_by_at_most_six_percent() -> None:
    x = -np.linspace(0, 80, 100_001)
    error = schraudolph_exp(x) / np.exp(x) - 1
    assert -1e-5 < error.min() < 1e-5
    assert error.max() == pytest.approx(0.0615, abs=2e-4)
    assert error.mean() == pytest.approx(0.0397, abs=1e-3)
    assert 0 <= schraudolph_exp(np.array([-np.inf, -1e9]))[0] < 1e-38


def test_a_fast_confidence_is_lower_and_its_token_the_same() -> None:
    logits = np.random.default_rng(6).normal(0, 2, (50, 40))
    exact, fast = (predict(logits, range(50), 0, "none", GREEDY, c) for c in ("exact", "schraudolph"))  # type: ignore[arg-type]
    assert np.array_equal(exact[0], fast[0])
    assert (fast[1] < exact[1]).all()
    assert (fast[1] > exact[1] / 1.0616).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_logit_is_refused(value: float) -> None:
    logits = LOGITS.copy()
    logits[1, 2] = value
    assert refusal(lambda: predict(logits, [0, 1], 0, "none", GREEDY)).kind == "logits-non-finite"
    logits[1] = -np.inf
    assert refusal(lambda: predict(logits, [0, 1], 0, "none", GREEDY)).kind == "logits-impossible"
