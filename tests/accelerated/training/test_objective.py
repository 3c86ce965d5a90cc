"""The objectives: batches and noise by seed and step alone, the mask of Fast-dLLM v2, each token learnt once a pair."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from tiny_training import DIFFUSION, TINY, varied

from tritgold_xla.training import objective, qat
from tritgold_xla.training.recipe import Recipe
from tritgold_xla.training.tokens import MASK

COUNTING = np.arange(1000, dtype=np.int32)


def test_a_batch_is_decided_by_seed_and_step_alone():
    first = objective.batch_of(COUNTING, TINY, 3)
    objective.batch_of(COUNTING, TINY, 4)  # leaves nothing behind
    np.testing.assert_array_equal(objective.batch_of(COUNTING, TINY, 3), first)
    others = [objective.batch_of(COUNTING, TINY, 4), objective.batch_of(COUNTING, replace(TINY, seed=1), 3)]
    assert not any(np.array_equal(first, other) for other in others)


def test_a_batch_is_made_of_crops_from_everywhere():
    batches = np.concatenate([objective.batch_of(COUNTING[:40], TINY, step) for step in range(200)])
    assert batches.shape == (200 * TINY.batch, TINY.length + 1)
    assert (np.diff(batches) == 1).all()
    assert set(batches[:, 0].tolist()) == set(range(40 - TINY.length))  # the last of them ends with the stream


def test_noise_is_decided_by_seed_and_step_alone():
    first = objective.noise_of(DIFFUSION, 3)
    assert (first.shape, first.dtype) == ((DIFFUSION.batch, DIFFUSION.length), bool)
    objective.noise_of(DIFFUSION, 4)
    np.testing.assert_array_equal(objective.noise_of(DIFFUSION, 3), first)
    others = [objective.noise_of(DIFFUSION, 4), objective.noise_of(replace(DIFFUSION, seed=1), 3)]
    assert not any(np.array_equal(first, other) for other in others)


def test_no_two_draws_of_a_run_have_a_random_number_in_common():
    """Philox counts its first word on by itself: steps that begin a word apart would share nearly all they draw."""
    wide = replace(DIFFUSION, batch=20)
    drawn = [objective._draws(wide, 0, step, 1).random(1000) for step in range(9)]
    drawn += [objective._draws(wide, step, eight, 0).random(4) for step in range(200) for eight in range(3)]
    assert len(np.unique(np.concatenate(drawn))) == 9 * 1000 + 200 * 3 * 4
    starts = np.concatenate([objective.batch_of(np.arange(10**6), wide, step)[:, 0] for step in range(200)])
    assert len(np.unique(starts)) > 0.99 * len(starts)


def test_each_block_is_masked_at_a_rate_of_its_own():
    wide = replace(DIFFUSION, context=4096, length=4096, block=1024)
    noise = np.concatenate([objective.noise_of(wide, step) for step in range(50)])
    rates = np.sort(noise.reshape(-1, 1024).mean(axis=1))
    # Uniform between the bounds: 400 rates, each known to about a hundredth.
    np.testing.assert_allclose(rates, np.linspace(objective.MIN_RATE, 1, len(rates)), atol=0.1)
    assert rates[0] < 0.03
    assert rates[-1] > 0.97
    # The eight blocks of a step have nothing to do with one another: chance stays below a half in 50 steps.
    together = np.corrcoef(noise.reshape(50, 8, 1024).mean(axis=2), rowvar=False)
    assert np.abs(together - np.eye(8)).max() < 0.6


def test_a_rate_is_never_below_its_least(monkeypatch):
    monkeypatch.setattr(objective, "MIN_RATE", 0.9)
    wide = replace(DIFFUSION, context=4096, length=4096, block=1024)
    rates = objective.noise_of(wide, 0).reshape(-1, 1024).mean(axis=1)
    assert rates.min() > 0.85


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("noisy", [1, 2])
@pytest.mark.parametrize(("length", "block"), [(8, 4), (6, 2), (4, 1), (4, 4)])
def test_the_diffusion_mask_follows_the_rule(length, block, noisy, causal):
    mask = objective.diffusion_mask(length, block, noisy, causal)
    assert mask.shape == ((noisy + 1) * length, (noisy + 1) * length)
    for query in range(len(mask)):
        for key in range(len(mask)):
            own, other = query % length // block, key % length // block
            if query // length == key // length:  # in one copy: its block both ways, and where it is clean those before
                sees = other == own or (query // length == noisy and other < own)
            else:
                sees = key // length == noisy and other < own
            if causal:
                sees = sees and key % length <= query % length
            assert mask[query, key] == sees, (query, key)


class Scripted:
    """In place of the network: hidden states that are drawn once, and a record of what was asked."""

    VOCAB = 11

    def __init__(self, batch, tokens):
        self.states = np.random.default_rng(0).normal(0, 2, (batch, tokens, self.VOCAB)).astype(np.float32)
        self.parameters = {"embedding": np.eye(self.VOCAB, dtype=np.float32)}  # the states are the logits

    def __call__(self, parameters, tokens, recipe, positions, mask):
        self.tokens, self.positions, self.mask = np.asarray(tokens), positions, mask
        return jax.numpy.asarray(self.states)

    def nats(self, row, at, target):
        logits = self.states[row, at].astype(float)
        return np.log(np.exp(logits).sum()) - logits[target]


def scripted_recipe(objective_name):
    return Recipe("scripted", objective=objective_name, batch=2, length=6, block=3, vocab=260)


def test_the_next_token_is_predicted_from_those_before_it(monkeypatch):
    network = Scripted(2, 6)
    monkeypatch.setattr(objective, "hidden_states", network)
    batch = np.random.default_rng(1).integers(0, network.VOCAB, (2, 7))
    got = objective.loss(network.parameters, batch, None, scripted_recipe("autoregressive"))
    expected = np.mean([network.nats(row, at, batch[row, at + 1]) for row in range(2) for at in range(6)])
    assert float(got) == pytest.approx(expected, rel=1e-5)
    np.testing.assert_array_equal(network.tokens, batch[:, :-1])
    np.testing.assert_array_equal(network.positions, np.arange(6))
    np.testing.assert_array_equal(network.mask, np.tril(np.ones((6, 6), bool)))


def asked_of(monkeypatch, masked, batch, recipe):
    """(the network that was asked, the loss): states drawn at random for the two noisy copies and the clean one."""
    network = Scripted(len(batch), 3 * masked.shape[1])
    monkeypatch.setattr(objective, "hidden_states", network)
    return network, float(objective.loss(network.parameters, batch, masked, recipe))


def nats_of_the_masked(network, batch, masked):
    """The copy in which token ``at`` is masked predicts it, by the state before it; in the first copy where masked."""
    return [
        network.nats(row, at - 1 if masked[row, at] else 6 + at - 1, batch[row, at])
        for row in range(len(batch))
        for at in range(1, 6)
    ]


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_every_token_but_the_first_is_learnt_once_a_pair(monkeypatch, share):
    rng = np.random.default_rng(2)
    batch, masked = rng.integers(4, Scripted.VOCAB, (2, 7)), rng.random((2, 6)) < share
    network, got = asked_of(monkeypatch, masked, batch, scripted_recipe("block diffusion"))
    assert got == pytest.approx(np.mean(nats_of_the_masked(network, batch, masked)), rel=1e-5)
    clean = batch[:, :-1]
    np.testing.assert_array_equal(network.tokens[:, :6], np.where(masked, MASK, clean))
    np.testing.assert_array_equal(network.tokens[:, 6:12], np.where(masked, clean, MASK))
    np.testing.assert_array_equal(network.tokens[:, 12:], clean)
    np.testing.assert_array_equal(network.positions, np.tile(np.arange(6), 3))
    for row in network.mask:
        np.testing.assert_array_equal(row[0], objective.diffusion_mask(6, 3, noisy=2))


def test_causal_rows_see_what_is_before_them_and_learn_the_next_token_too(monkeypatch):
    rng = np.random.default_rng(4)
    batch, masked = rng.integers(4, Scripted.VOCAB, (4, 7)), rng.random((4, 6)) < 0.5
    network, got = asked_of(monkeypatch, masked, batch, replace(scripted_recipe("block diffusion"), causal=True))
    # The last two of the four rows: each token of their clean copy, by the state before it.
    next_token = [network.nats(row, 12 + at - 1, batch[row, at]) for row in (2, 3) for at in range(1, 6)]
    expected = np.mean(nats_of_the_masked(network, batch, masked)) + np.mean(next_token)
    assert got == pytest.approx(expected, rel=1e-5)
    for row, causal in enumerate((False, False, True, True)):
        expected = objective.diffusion_mask(6, 3, noisy=2, causal=causal)
        np.testing.assert_array_equal(network.mask[row, 0], expected)


ANSWERS = replace(scripted_recipe("block diffusion"), data="skills", causal=True, answers=True)
# Two rows of questions: prompts of two tokens, answers of four and of three.
COUNTED = np.array([[0, 0, 1, 1, 1, 1, 0], [0, 0, 0, 1, 1, 1, 0]], bool)


def test_blocks_begin_at_the_second_token_of_an_answer():
    starts = objective.block_starts(np.repeat(COUNTED, 2, axis=0), ANSWERS)
    np.testing.assert_array_equal(
        starts,
        [[0, 0, 0, 3, 3, 3], [0, 0, 0, 3, 3, 3], [0, 1, 2, 3, 4, 4], [0, 1, 2, 3, 4, 4]],
    )
    long = replace(ANSWERS, length=9, context=9)
    counted = np.tile(np.arange(10) >= 1, (2, 1))
    assert objective.block_starts(counted, long)[1].tolist() == [0, 1, 2, 2, 2, 5, 5, 5, 8]
    ordinary = objective.block_starts(np.repeat(COUNTED, 2, axis=0), replace(ANSWERS, answers=False))
    assert (ordinary == np.arange(6) // 3 * 3).all()


def test_a_block_of_an_answer_has_one_rate(monkeypatch):
    """Places that begin together are masked at one rate, whichever multiple of the block they lie in."""
    monkeypatch.setattr(objective, "MIN_RATE", 0.0)
    wide = replace(ANSWERS, length=4096, context=4096, block=1024, batch=2)
    counted = np.tile(np.arange(4097) >= 500, (2, 1))
    starts = objective.block_starts(counted, wide)
    noise = np.stack([objective.noise_of(wide, step, starts)[1] for step in range(40)])
    halves = [noise[:, 501 + 100 * part : 501 + 100 * part + 100].mean(axis=1) for part in (0, 4, 9)]
    assert all(np.abs(halves[0] - half).max() < 0.25 for half in halves[1:])  # one side of 1,024 and the other
    assert np.abs(halves[0] - noise[:, 1600:1700].mean(axis=1)).max() > 0.5  # the next block


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_in_rows_of_answers_first_tokens_of_blocks_are_learnt_by_the_clean_copy(monkeypatch, share):
    rng = np.random.default_rng(6)
    batch, masked = rng.integers(4, Scripted.VOCAB, (2, 7)), rng.random((2, 6)) < share
    counted = COUNTED[:1].repeat(2, axis=0)
    starts = objective.block_starts(counted, ANSWERS)  # of the second row 0, 1, 2, 3, 3, 3
    network = Scripted(2, 18)
    monkeypatch.setattr(objective, "hidden_states", network)
    got = objective.loss(network.parameters, batch, masked, ANSWERS, jax.numpy.asarray(counted), starts)
    learnt = [(0, at) for at in (2, 3, 4, 5)] + [(1, at) for at in (4, 5)]
    nats = [network.nats(row, at - 1 if masked[row, at] else 6 + at - 1, batch[row, at]) for row, at in learnt]
    clean = [network.nats(1, 12 + at - 1, batch[1, at]) for at in (2, 3, 4, 5)]
    assert float(got) == pytest.approx(np.mean(nats) + np.mean(clean), rel=1e-5)
    # The first token of an answer stands in both noisy copies; the rest of it is masked in one of them.
    assert (network.tokens[1, [2, 8]] == batch[1, 2]).all()
    for at in (3, 4, 5):
        assert sorted(network.tokens[1, [at, 6 + at]] == MASK) == [False, True]
    mask = network.mask[1, 0]
    assert mask[4, :6].tolist() == [False, False, False, True, True, False]  # its block, up to itself
    assert mask[4, 12:].tolist() == [True, True, True, False, False, False]  # clean: what is before its block


@pytest.fixture(scope="module")
def states():
    """Tokens [24] of one doubled sequence of three blocks -> its hidden states, of a float32 network."""
    recipe = replace(DIFFUSION, ternary=False, length=12, block=4)
    parameters = varied(recipe)
    positions, mask = np.tile(np.arange(12), 2), objective.diffusion_mask(12, 4)
    compiled = jax.jit(lambda tokens: qat.hidden_states(parameters, tokens[None], recipe, positions, mask)[0])
    return lambda tokens: np.asarray(compiled(tokens))


@pytest.mark.parametrize("at", [0, 5, 11, 12, 17, 23])
def test_a_token_reaches_what_may_see_it_and_nothing_else(states, at):
    # The prediction of a masked token, by the state before it, must not know the token: a leak would be learnt at once.
    tokens = np.random.default_rng(3).integers(4, 300, 24)
    before = states(tokens)
    tokens[at] += 1 if tokens[at] < 299 else -1
    changed = (states(tokens) != before).any(axis=1)
    block = np.arange(24) % 12 // 4
    own, noisy = block[at], np.arange(24) < 12
    expected = noisy & (block == own) if at < 12 else (noisy & (block > own)) | (~noisy & (block >= own))
    np.testing.assert_array_equal(changed, expected)
