"""The update: its schedule, weight decay in the first half alone, Muon for the matrices and Adam for the rest."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from tiny_training import TINY

from tritgold_xla.training.optimiser import optimiser, two_stages

LONG = replace(TINY, steps=1000, warmup=100)
SHORT = replace(TINY, peak=0.5, small=0.25, decay=0.1)
RULE = optimiser(SHORT)
STEP = jax.jit(RULE.update)
# Two layers of one matrix, and something of each other kind; the update rule does not look at the recipe's widths.
SHAPES = {"embedding": (8, 16), "layers": {"q": (2, 32, 32), "attn_norm": (2, 16)}, "final_norm": (16,)}


def arrays(seed):
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda shape: rng.standard_normal(shape).astype(np.float32), SHAPES, is_leaf=lambda x: isinstance(x, tuple)
    )


def zeros():
    return jax.tree.map(np.zeros_like, arrays(0))


def updates(gradients, parameters):
    """Each step of SHORT: number, update, learning rates of matrices and rest. Parameters stay as they are."""
    state = RULE.init(parameters)
    for step in range(SHORT.steps):
        update, state = STEP(gradients, state, parameters)
        matrices, rest = (float(two_stages(SHORT, peak)(step)) for peak in (SHORT.peak, SHORT.small))
        yield step, jax.tree.map(np.asarray, update), matrices, rest


def test_the_learning_rate_falls_in_two_stages():
    rate = two_stages(LONG, 0.03)
    slope = 0.03 * (7 / 15) / 400
    expected = {
        0: 0.0,
        50: 0.015,
        100: 0.03,
        300: 0.03 * (1 + 8 / 15) / 2,
        499: 0.03 * 8 / 15 + slope,
        500: 0.03 * 5 / 15,
        750: 0.03 * 5 / 30,
        1000: 0.0,
    }
    got = {step: float(rate(step)) for step in expected}
    assert got == pytest.approx(expected, rel=1e-5, abs=1e-9)


def test_weight_decay_is_of_the_matrices_and_ends_at_half_time():
    parameters = arrays(1)
    for step, update, rate, _ in updates(zeros(), parameters):
        decay = SHORT.decay if step < SHORT.steps // 2 else 0
        np.testing.assert_allclose(update["layers"]["q"], -rate * decay * parameters["layers"]["q"], atol=1e-7)
        for name in ("embedding", "final_norm"):
            assert not update[name].any()
        assert not update["layers"]["attn_norm"].any()


def test_all_but_the_matrices_move_by_their_own_learning_rate():
    gradients = arrays(2)
    for _, update, _, rate in updates(gradients, zeros()):
        for moved, gradient in (
            (update["embedding"], gradients["embedding"]),
            (update["final_norm"], gradients["final_norm"]),
            (update["layers"]["attn_norm"], gradients["layers"]["attn_norm"]),
        ):
            # What Adam does under one gradient again and again.
            np.testing.assert_allclose(moved, -rate * np.sign(gradient), rtol=1e-2, atol=1e-6)


def test_a_matrix_moves_alike_in_every_direction():
    # Singular values from 1 to 10; the second layer's gradient is a hundred times the first's.
    u, v = (np.linalg.qr(np.random.default_rng(seed).standard_normal((32, 32)))[0] for seed in (3, 4))
    gradients = zeros()
    gradients["layers"]["q"][:] = u * np.linspace(1, 10, 32) @ v, 100 * (v * np.linspace(1, 10, 32) @ u)
    for step, update, rate, _ in updates(gradients, zeros()):
        for layer, first, second in ((0, u, v), (1, v, u)):
            moved = -first.T @ update["layers"]["q"][layer] @ second.T
            values = np.diagonal(moved)
            assert np.abs(moved - np.diag(values)).max() <= 0.01 * rate
            if step > 0:  # the first step of the warm-up has a rate of 0
                assert values.min() > 0.6 * rate  # Newton-Schulz of five steps ends between 0.7 and 1.2
                assert values.max() < 1.3 * rate


def test_one_wild_gradient_is_clipped():
    parameters = arrays(6)
    wild, leaves = jax.tree.map(lambda g: 1e6 * g, arrays(7)), jax.tree.leaves(parameters)
    _, state = STEP(wild, RULE.init(parameters), parameters)
    moments = [np.asarray(leaf) for leaf in jax.tree.leaves(state) if leaf.shape in {p.shape for p in leaves}]
    assert len(moments) == 1 + 2 * 3  # Muon keeps one of the matrices, Adam two of each other leaf
    assert 0 < max(np.abs(moment).max() for moment in moments) <= 1
