"""The head: exact to float32 in each of its forms, and a greedy token that screening never changes."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tritgold_xla.layers import lm_head
from tritgold_xla.layers.lm_head import bfloat16_bits
from tritgold_xla.runtime.flags import jit
from tritgold_xla.ternary_matmul.choose import HEAD_SIDES, Choices, Measured, choose_head, library_dots

U = 2.0**-24
_greedy, _logits, _screen = jit(lm_head.greedy), jit(lm_head.logits), jit(lm_head.make_screen)


def rows(vocab, hidden, seed=0):
    return np.random.default_rng(seed).standard_normal((vocab, hidden)).astype(jnp.bfloat16)


@pytest.mark.parametrize("way", [lm_head.logits, lm_head._head_left, lm_head._head_right, lm_head._in_blocks])
@pytest.mark.parametrize("tokens", [1, 8, 33])
@pytest.mark.parametrize("vocab", [67, 4096 + 5])
def test_every_form_is_within_a_few_roundings(way, tokens, vocab):
    weights = rows(vocab, 80)
    x = np.random.default_rng(1).standard_normal((tokens, 80)).astype(np.float32)
    exact = x.astype(np.float64) @ weights.astype(np.float64).T
    got = np.asarray(jit(way)(x, weights))
    assert (got.dtype, got.shape) == (np.float32, (tokens, vocab))
    assert np.abs(got - exact).max() < 40 * U * np.abs(exact).max()


@pytest.mark.parametrize("tokens", [1, 2, 16, 17, 64])
def test_the_head_on_either_side_gives_the_same_bits(tokens):
    """So that a token has the same logits in a step, in a prompt and in a batch."""
    if not library_dots():
        pytest.skip("XLA has no kernel library here, and these forms are not used")
    weights, x = rows(300, 640), np.random.default_rng(3).standard_normal((tokens, 640)).astype(np.float32)
    left, right = (np.asarray(jit(way)(x, weights)) for way in (lm_head._head_left, lm_head._head_right))
    np.testing.assert_array_equal(left, right)
    np.testing.assert_array_equal(left[-1:], np.asarray(jit(lm_head._head_left)(x[-1:], weights)))


@pytest.mark.parametrize("side", HEAD_SIDES)
@pytest.mark.parametrize("tokens", [1, 8, 32])
def test_the_head_stands_where_it_was_measured_to_be_faster(monkeypatch, side, tokens):
    stood = []
    monkeypatch.setattr(lm_head, "library_dots", lambda: True)
    monkeypatch.setattr(
        lm_head, "SIDES", {name: lambda x, _, name=name: stood.append(name) or x for name in HEAD_SIDES}
    )
    x, head = jnp.zeros((tokens, 80)), jnp.asarray(rows(67, 80))
    lm_head.logits(x, head, Choices(measured=(Measured(67, 80, 32, side),)))
    lm_head.logits(x, head, Choices(measured=(Measured(66, 80, 32, side),)))
    assert stood == [side, choose_head(tokens)]


def test_a_head_that_was_rounded_once_more_would_be_seen():
    weights, x = rows(67, 80), np.random.default_rng(1).standard_normal((1, 80)).astype(np.float32)
    exact = x.astype(np.float64) @ weights.astype(np.float64).T
    rounded = x.astype(jnp.bfloat16).astype(np.float64) @ weights.astype(np.float64).T
    assert np.abs(rounded - exact).max() > 40 * U * np.abs(exact).max()


def test_numbers_that_are_bfloat16_and_one_that_is_not():
    exact = np.array([0, -0.0, 1.5, 3e38, 1e-40, np.inf, np.nan], jnp.bfloat16)
    np.testing.assert_array_equal(bfloat16_bits(exact.astype(np.float32)), exact.view(np.uint16))
    assert bfloat16_bits(np.array([[1.0, 1 + 2**-8]], np.float32)) is None


@settings(deadline=None, derandomize=True, max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), spread=st.sampled_from([1e-6, 1.0, 1e4]), copies=st.integers(0, 5))
def test_the_screened_token_is_the_one_of_the_whole_head(seed, spread, copies):
    rng = np.random.default_rng(seed)
    weights, x = rows(300, 48, seed), (spread * rng.standard_normal(48)).astype(np.float32)
    logits = np.asarray(_logits(x[None], weights))[0]
    best = np.argsort(logits)[-1]
    for _ in range(copies):  # rows that are the best one, or nearly
        other = rng.integers(0, 300)
        weights[other] = weights[best]
        weights[other, rng.integers(0, 48)] *= rng.choice([1, 1, 1.01])
    token, _ = _greedy(x, weights, _screen(weights.astype(np.float32)))
    assert int(token) == np.argmax(np.asarray(_logits(x[None], weights))[0])


def test_screening_usually_suffices_and_says_so():
    weights = rows(3000, 256)
    screen = _screen(weights.astype(np.float32))
    sure = [
        bool(_greedy(x, weights, screen)[1]) for x in np.random.default_rng(2).standard_normal((50, 256)).astype("f4")
    ]
    assert np.mean(sure) > 0.8


@pytest.mark.parametrize("x", [np.zeros(48, np.float32), np.full(48, np.nan, np.float32)])
def test_without_a_clear_winner_the_whole_head_decides(x):
    weights = rows(300, 48)
    token, sure = _greedy(x, weights, _screen(weights.astype(np.float32)))
    assert not sure
    assert int(token) == (-1 if np.isnan(x).any() else 0)  # none is a number, or all logits are equal


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("vocab", [67, 3000])
def test_a_head_that_is_not_finite_has_no_greedy_token(value, vocab):
    weights = rows(vocab, 48)
    weights[60, 5] = value
    token, sure = _greedy(np.ones(48, np.float32), weights, _screen(weights.astype(np.float32)))
    assert (int(token), bool(sure)) == (-1, False)


@pytest.mark.parametrize(("of_x", "of_rows"), [(1e-22, 1.0), (1.0, 1e-24), (1e-10, 1e-24)])
def test_numbers_whose_squares_are_lost_are_screened_right(of_x, of_rows):
    # XLA makes zero of what is below 1.2e-38: a norm of 0 would be a bound of 0.
    weights = (rows(300, 48).astype(np.float32) * of_rows).astype(jnp.bfloat16)
    screen = _screen(weights.astype(np.float32))
    x = (of_x * np.random.default_rng(4).standard_normal((150, 48))).astype(np.float32)
    expected = np.argmax(np.stack([np.asarray(_logits(one[None], weights))[0] for one in x]), axis=1)
    assert [int(_greedy(one, weights, screen)[0]) for one in x] == expected.tolist()


def test_the_bound_is_what_keeps_the_token_right():
    # With a screen that claims to be exact the coarse copy's mistakes come through.
    weights = rows(300, 48)
    screen = _screen(weights.astype(np.float32))
    coarse = screen._replace(codes=(np.asarray(screen.codes) // 64 * 64).astype(np.int8))
    wrong = 0
    for x in np.random.default_rng(3).standard_normal((40, 48)).astype(np.float32):
        token, sure = _greedy(x, weights, coarse._replace(slack=jnp.zeros(300), norm=screen.norm * 1e-3))
        wrong += bool(sure) and int(token) != np.argmax(np.asarray(_logits(x[None], weights))[0])
    assert wrong


def test_the_vocabulary_is_not_sorted():
    weights, x = rows(2000, 64), np.ones(64, np.float32)
    program = _greedy.lower(x, weights, _screen(weights.astype(np.float32))).compile().as_text()
    assert " sort(" not in program
    sorts = jit(lambda s: (jnp.sort(s),)).lower(np.ones(2000, np.float32)).compile().as_text()
    assert " sort(" in sorts, "the control"
