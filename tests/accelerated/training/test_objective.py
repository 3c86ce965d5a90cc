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


def test_a_share_of_the_rows_begin_with_a_passage_drawn_by_seed_and_step():
    recipe, size = replace(TINY, batch=8, passages=0.25), 5
    passages = -np.arange(1, 4, dtype=np.int32)[:, None] * np.ones(size, np.int32)
    rows = [objective.batch_of(COUNTING, recipe, step) for step in range(100)]
    mixed = [objective.with_passages(batch, passages, recipe, step) for step, batch in enumerate(rows)]
    new, old = np.concatenate(mixed), np.concatenate(rows)
    begun = (new[:, :size] < 0).all(axis=1)
    assert 150 < begun.sum() < 250  # of 800 a quarter
    np.testing.assert_array_equal(new[~begun], old[~begun])
    np.testing.assert_array_equal(new[:, size:], old[:, size:])
    assert np.unique(new[begun, 0], return_counts=True)[1].min() > 40, "of three, each a third"
    np.testing.assert_array_equal(objective.with_passages(rows[7], passages, recipe, 7), mixed[7])
    other = [objective.with_passages(batch, passages, replace(recipe, seed=1), n) for n, batch in enumerate(rows)]
    assert any((a != b).any() for a, b in zip(mixed, other, strict=True))


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


@pytest.mark.parametrize("noisy", [1, 2])
@pytest.mark.parametrize(("length", "block"), [(8, 4), (6, 2), (4, 1), (4, 4)])
def test_the_diffusion_mask_follows_the_rule(length, block, noisy):
    mask = objective.diffusion_mask(length, block, noisy)
    assert mask.shape == ((noisy + 1) * length, (noisy + 1) * length)
    for query in range(len(mask)):
        for key in range(len(mask)):
            own, other = query % length // block, key % length // block
            if query // length == key // length:  # in one copy: its block both ways, and where it is clean those before
                sees = other == own or (query // length == noisy and other < own)
            else:
                sees = key // length == noisy and other < own
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
        expected = objective.diffusion_mask(6, 3, noisy=2)
        place = np.tile(np.arange(6), 3)
        expected &= (place[None, :] <= place[:, None]) | (not causal)
        np.testing.assert_array_equal(network.mask[row, 0], expected)


ANSWERS = replace(scripted_recipe("block diffusion"), data="skills", causal=True, answers=True)
COUNTED = np.array([[0, 0, 0, 1, 1, 1, 0], [0, 0, 1, 1, 1, 1, 0]], bool)  # after prompts of three and of two tokens


def test_blocks_begin_at_the_second_token_of_an_answer():
    starts = objective.block_starts(np.tile(COUNTED, (2, 1)), ANSWERS)
    ordinary = [0, 0, 0, 3, 3, 3]
    np.testing.assert_array_equal(starts, [ordinary, ordinary, [0, 1, 2, 3, 4, 4], [0, 1, 2, 3, 3, 3]])
    assert (objective.block_starts(COUNTED, replace(ANSWERS, answers=False)) == ordinary).all()


@pytest.mark.parametrize(
    ("counted", "starts"),
    [
        ([0, 1, 1, 1, 1, 1, 1, 1, 1, 0], [0, 1, 2, 2, 2, 5, 5, 5, 8]),  # three blocks
        ([0, 1, 1, 1, 1, 0, 0, 1, 1, 0], [0, 1, 2, 2, 2, 5, 6, 7, 8]),  # two questions
    ],
)
def test_longer_answers_have_several_blocks_and_rows_several_answers(counted, starts):
    long = replace(ANSWERS, length=9, context=9)
    assert objective.block_starts(np.array([counted] * 2, bool), long)[1].tolist() == starts


def test_a_block_of_an_answer_has_one_rate():
    """Tokens whose block is one are masked at one rate, on either side of a multiple of the block."""
    wide = replace(ANSWERS, length=4096, context=4096, block=1024, batch=2)
    starts = objective.block_starts(np.tile(np.arange(4097) >= 500, (2, 1)), wide)
    noise = np.stack([objective.noise_of(wide, step, starts)[1] for step in range(40)])
    rates = [noise[:, at : at + 100].mean(axis=1) for at in (501, 901, 1401, 1601)]
    assert all(np.abs(rates[0] - same).max() < 0.25 for same in rates[1:3])
    assert np.abs(rates[0] - rates[3]).max() > 0.5  # the next block


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_first_tokens_of_answers_and_blocks_are_learnt_by_the_clean_copy(monkeypatch, share):
    rng = np.random.default_rng(6)
    batch, masked = rng.integers(4, Scripted.VOCAB, (2, 7)), rng.random((2, 6)) < share
    starts = objective.block_starts(COUNTED, ANSWERS)  # of the second row 0, 1, 2, 3, 3, 3
    network = Scripted(2, 18)
    monkeypatch.setattr(objective, "hidden_states", network)
    got = objective.loss(network.parameters, batch, masked, ANSWERS, jax.numpy.asarray(COUNTED), starts)
    learnt = [(0, 3), (0, 4), (0, 5), (1, 4), (1, 5)]
    nats = [network.nats(row, at - 1 if masked[row, at] else 6 + at - 1, batch[row, at]) for row, at in learnt]
    clean = [network.nats(1, 12 + at - 1, batch[1, at]) for at in (2, 3, 4, 5)]
    assert float(got) == pytest.approx(np.mean(nats) + np.mean(clean), rel=1e-5)
    for at in (3, 4, 5):
        assert sorted(network.tokens[1, [at, 6 + at]] == MASK) == [False, True]


def test_a_masked_answer_is_read_as_the_causal_presets_read_it():
    """Its states are those of prompt, first token and masks, read causally: what ``adaptive`` reads in a first pass."""
    recipe = replace(DIFFUSION, data="skills", causal=True, answers=True, length=16, block=8)
    parameters = varied(recipe)
    tokens = np.random.default_rng(8).integers(4, 300, (2, 17)).astype(np.int32)
    counted = np.tile((np.arange(17) >= 5) & (np.arange(17) < 13), (2, 1))
    starts = objective.block_starts(counted, recipe)
    seen = []
    network = objective.hidden_states
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objective, "hidden_states", lambda *asked: seen.append(network(*asked)) or seen[0])
        objective.loss(parameters, tokens, np.ones((2, 16), bool), recipe, jax.numpy.asarray(counted), starts)
    read = np.where(counted, MASK, tokens)[1:, :13]
    read[:, 5] = tokens[1, 5]  # the prefill decides it
    alone = objective.hidden_states(parameters, read, recipe, np.arange(13), np.tril(np.ones((13, 13), bool)))
    np.testing.assert_allclose(np.asarray(seen[0])[1, 6:13], np.asarray(alone)[0, 6:13], rtol=2e-5, atol=2e-5)


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
