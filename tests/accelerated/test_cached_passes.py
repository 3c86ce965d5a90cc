"""Several sequences in one cache: each is what it would be alone."""

import numpy as np
import pytest
from engine_cases import LLAMA, make_weights

from tritgold.errors import ContextError
from tritgold_xla import XlaEngine

U = 2.0**-24
PROMPTS = ([1, 2, 3], [4], [5, 6, 7, 8, 9, 10, 11, 12, 13], [14, 15])


@pytest.fixture(scope="module")
def engines():
    weights = make_weights(LLAMA)
    alone = XlaEngine(LLAMA, weights, capacity=40)
    return alone, alone.fork(sequences=len(PROMPTS))


def test_a_batch_is_its_sequences_alone(engines):
    # No tie is broken on the way: what is left is the rounding of sums that depend on the number of tokens.
    alone, batch = engines
    batch.reset()
    for sequence, prompt in enumerate(PROMPTS):
        batch.read(prompt, sequence=sequence)
    steps = np.stack([batch.step_all([20 + step, 30, 40 + step, 50]) for step in range(3)])
    assert steps.shape == (3, len(PROMPTS), LLAMA.vocab)
    for sequence, prompt in enumerate(PROMPTS):
        alone.reset()
        alone.read(prompt)
        for step in range(3):
            expected = alone.step([20 + step, 30, 40 + step, 50][sequence])
            assert np.abs(steps[step, sequence] - expected).max() < 50 * U * np.abs(expected).max()


def test_the_order_of_the_sequences_is_of_no_account(engines):
    _, batch = engines
    rows = []
    for order in ([0, 1, 2, 3], [2, 0, 3, 1]):
        batch.reset()
        for place, sequence in enumerate(order):
            batch.read(PROMPTS[sequence], sequence=place)
        logits = batch.step_all([60 + sequence for sequence in order])
        rows.append(logits[np.argsort(order)])
    np.testing.assert_allclose(rows[0], rows[1], rtol=0, atol=50 * U * np.abs(rows[0]).max())


def test_an_engine_beside_another_shares_its_weights_and_nothing_else(engines):
    alone, batch = engines
    alone.reset()
    alone.read(PROMPTS[0])
    batch.reset()
    batch.read(PROMPTS[2], sequence=1)
    assert (alone.length, batch.length, batch._lengths[1]) == (3, 0, 9)
    assert alone.step(9).shape == (LLAMA.vocab,)
    assert alone._parameters is batch._parameters
    assert alone.fork(2, capacity=7).capacity == 7


@pytest.mark.parametrize("capacity", [41, 0, -1, True, 7.0])
def test_an_engine_beside_another_has_no_more_positions(engines, capacity):
    # RoPE's rows are shared, and there are none after the first engine's capacity.
    with pytest.raises(ContextError, match=rf"found {capacity}, expected 1 to 40, .*engine.*\[capacity\]"):
        engines[0].fork(2, capacity=capacity)


def test_a_sequence_can_be_cut_and_continued(engines):
    _, batch = engines
    batch.reset()
    batch.read(PROMPTS[2], sequence=1)
    batch.truncate(1, 1)
    assert batch.lengths == (0, 1, 0, 0)
    again = batch.read(PROMPTS[2][1:], sequence=1)
    batch.truncate(1, 1)
    np.testing.assert_array_equal(batch.read(PROMPTS[2][1:], sequence=1), again)
    for length, sequence in ((10, 1), (-1, 1), (0, 4)):
        with pytest.raises(ContextError, match="batch"):
            batch.truncate(length, sequence)


def test_refusals(engines):
    _, batch = engines
    batch.reset()
    with pytest.raises(ContextError, match="batch"):
        batch.step_all([1, 2])
    with pytest.raises(ContextError, match="batch"):
        batch.read([1], sequence=4)
    with pytest.raises(ContextError, match="token-id"):
        batch.step_all([1, 2, 3, 101])
    assert batch._lengths == [0, 0, 0, 0]
    for sequences in (0, -1, 1.5):
        with pytest.raises(ContextError, match="batch"):
            XlaEngine(LLAMA, make_weights(LLAMA), sequences=sequences)
