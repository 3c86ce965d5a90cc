"""Products of bf16 against those of float32: the same forward pass, gradients to the rounding of bf16."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_training import SMALL, varied

from tritgold_xla.training import bf16_qat, objective, qat, questions
from tritgold_xla.training.recipe import RECIPES

AR = replace(RECIPES["skills-ar"], **SMALL | {"length": 32})
DLM = replace(AR, name="tiny-dlm", objective="block diffusion")


def loss_and_gradients(recipe):
    rows, noise = questions.batch_of(recipe, 0), objective.noise_of(recipe, 0)
    step = jax.jit(
        lambda masters: jax.value_and_grad(objective.loss)(masters, rows.tokens, noise, recipe, rows.counted)
    )
    return step(varied(recipe))


@pytest.mark.parametrize("recipe", [AR, DLM, replace(AR, ternary=False)], ids=["ar", "dlm", "float"])
def test_loss_and_gradients_are_those_of_float32(recipe):
    loss, gradients = loss_and_gradients(recipe)
    exact, exact_gradients = loss_and_gradients(replace(recipe, products="float32"))
    assert float(loss) == pytest.approx(float(exact), rel=1e-3)
    distance = jax.tree.map(lambda a, b: np.linalg.norm(a - b) / np.linalg.norm(b), gradients, exact_gradients)
    assert max(jax.tree.leaves(distance)) < 0.03
    assert max(jax.tree.leaves(distance)) > 0  # it is not the same computation


def test_a_bit_linear_is_the_product_of_codes_and_trits():
    """Exactly: sums of whole numbers below 2**24, whatever their order."""
    rng = np.random.default_rng(3)
    x, master = rng.standard_normal((256, 10), np.float32), rng.standard_normal((128, 256), np.float32)
    trits, scale = qat.trits_and_scale(jnp.asarray(master))
    stretch = 127 / np.abs(x).max(axis=0)
    sums = np.asarray(trits, np.float64) @ np.clip(np.round(x * stretch), -128, 127).astype(np.float64)
    got = bf16_qat.bit_linear(jnp.asarray(x), jnp.asarray(master))
    np.testing.assert_allclose(got, sums * (float(scale) / stretch), rtol=1e-6)


def test_turned_is_the_transpose():
    a = np.arange(24.0).reshape(4, 6)
    np.testing.assert_array_equal(bf16_qat.turned(jnp.asarray(a)), a.T)
