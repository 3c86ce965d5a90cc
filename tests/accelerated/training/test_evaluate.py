"""Held-out bits a byte: every token predicted once whatever the length, by distributions that sum to one."""

from dataclasses import replace
from math import log, log2

import jax
import numpy as np
import pytest
from tiny_training import DIFFUSION, TINY, corpus_stream, varied

from tritgold_xla.training import objective
from tritgold_xla.training.evaluate import bits_per_byte, diffusion_bits_per_byte, ngram_bits_per_byte, windows
from tritgold_xla.training.qat import hidden_states, logits
from tritgold_xla.training.tokens import MASK, Stream

IDS = corpus_stream().ids


@pytest.mark.parametrize("length", [2, 3, 4, 7, 8])
def test_every_token_after_the_first_is_predicted_once(length):
    for count in range(1, 4 * length + 2):
        ids = np.arange(1, count + 1)
        tokens, counted = windows(ids, length)
        assert tokens.shape == (len(counted), length + 1)
        predicted = tokens[:, 1:][counted]
        assert sorted(predicted.tolist()) == ids[1:].tolist(), count
        for row, marks in zip(tokens, counted, strict=True):
            real = row[row > 0]
            assert (np.diff(real) == 1).all()  # a piece of the stream, padded after
            context = row[:-1][marks] - row[0] + 1
            # At least half a window, or all that there is.
            assert (context >= np.minimum(length - length // 2, row[1:][marks] - 1)).all()


@pytest.mark.parametrize("count", [20, 400])
def test_a_model_that_knows_nothing_needs_log2_of_the_vocabulary_for_each_token(count):
    # One token more than the stream has, or one less, would show; 400 are more windows than one batch.
    parameters = varied(TINY)
    parameters["embedding"][:] = 0
    got = bits_per_byte(TINY, Stream(IDS[:count], 77))(parameters)
    assert got == pytest.approx((count - 1) * log2(TINY.vocab) / 77, rel=1e-6)


@pytest.mark.parametrize("every", [1, 3])
def test_block_diffusion_that_knows_nothing_needs_as_much(every):
    parameters = varied(DIFFUSION)
    parameters["embedding"][:] = 0
    held_out = Stream(IDS[:400], 77)
    got = diffusion_bits_per_byte(DIFFUSION, held_out, every, batch=2)(parameters)
    assert got == pytest.approx(399 * log2(DIFFUSION.vocab) / 77, rel=1e-6)


def test_block_diffusion_reads_what_decoding_reads():
    """One window, token by token: those before a token are known, those after it in its block are masks."""
    recipe, parameters = replace(DIFFUSION, ternary=False), varied(DIFFUSION)
    ids, nats = IDS[: DIFFUSION.length + 1], 0.0
    positions = np.arange(recipe.length)
    both_ways = positions[:, None] // recipe.block >= positions[None, :] // recipe.block
    for at in range(1, recipe.length):
        known = np.where(positions < at, ids[:-1], MASK)
        states = hidden_states(parameters, known[None], recipe, positions, both_ways)
        nats += float(objective.cross_entropy(logits(parameters, states[0, at - 1]), ids[at]))
    got = diffusion_bits_per_byte(recipe, Stream(ids, 77), every=1, batch=1)(parameters)
    share = (recipe.length - 1) / recipe.length
    assert got == pytest.approx(nats / log(2) / 77 / share, rel=1e-4)


def test_bits_are_those_of_the_training_loss_where_one_window_holds_all():
    recipe, parameters = replace(TINY, ternary=False), varied(TINY)
    ids = IDS[: TINY.length + 1]
    nats = jax.jit(lambda: objective.next_token_loss(parameters, ids[None], recipe))()
    got = bits_per_byte(recipe, Stream(ids, 50))(parameters)
    assert got == pytest.approx(float(nats) * TINY.length / log(2) / 50, rel=1e-5)


def plain_ngram(train, history, token, vocab, order=5, discount=0.75):
    """P(token | history), counted again for each history from the formula of the docstring."""
    p = 1 / vocab
    for n in range(min(order, len(history) + 1)):
        context = history[len(history) - n :]
        after = [train[i + n] for i in range(len(train) - n) if train[i : i + n] == context]
        if after:
            p = max(after.count(token) - discount, 0) / len(after) + discount * len(set(after)) / len(after) * p
    return p


TRAIN = [0, 5, 1, 5, 2, 5, 1, 5, 2, 6, 7, 1, 5, 2, 5, 1, 3]
VOCAB = 9


@pytest.mark.parametrize("history", [[5], [1, 5], [5, 1, 5, 2], [0, 5, 1, 5, 2, 5], [8], [8, 5], [3]])
def test_the_5_gram_is_a_distribution_and_the_plain_one(history):
    def bits(ids):
        return ngram_bits_per_byte(Stream(np.array(TRAIN), 1), Stream(np.array(ids), 1), VOCAB)

    shares = [2.0 ** (bits(history) - bits([*history, token])) for token in range(VOCAB)]
    assert sum(shares) == pytest.approx(1)
    assert min(shares) > 0
    assert shares == pytest.approx([plain_ngram(TRAIN, history, token, VOCAB) for token in range(VOCAB)])


def test_the_5_gram_gains_from_what_came_before():
    half = len(IDS) // 2
    train, held_out = Stream(IDS[:half], 1), Stream(IDS[half:], len(IDS) - half)
    bits = [ngram_bits_per_byte(train, held_out, TINY.vocab, order) for order in (1, 2, 5)]
    assert log2(TINY.vocab) > bits[0] + 1 > bits[1] + 2
    assert bits[1] > bits[2]


def test_bits_are_a_byte():
    train, held_out = Stream(IDS[:500], 1), Stream(IDS[500:600], 100)
    once = ngram_bits_per_byte(train, held_out, TINY.vocab)
    assert ngram_bits_per_byte(train, replace(held_out, bytes=200), TINY.vocab) == pytest.approx(once / 2)
