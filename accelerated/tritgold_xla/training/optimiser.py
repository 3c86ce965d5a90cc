"""The optimiser: Muon for the ternary matrices, Adam for embedding and gains, the two-stage schedule of BitNet.

Two stages, as in "The Era of 1-bit LLMs: Training Tips, Code and FAQ" (Ma et al., 2024) and the BitNet b1.58 2B4T
report (arXiv 2504.12285): in the first half a high learning rate that falls, then a step down and a fall to zero;
weight decay in the first half and none in the second, so that masters near a threshold settle. The ratios are those of
1.5e-3 to 8e-4, then 5e-4 to 0; here both falls are linear, and the weight decay of the first half is constant.

Muon (Jordan et al., 2024) orthogonalises the momentum of each matrix, so that a step has one size in all directions.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax  # type: ignore[import-untyped]

from tritgold_xla.training.bf16_qat import product, turned
from tritgold_xla.training.recipe import Recipe

SECOND_STAGE, FIRST_END = 5e-4 / 1.5e-3, 8e-4 / 1.5e-3


def two_stages(recipe: Recipe, peak: float) -> Callable[[Any], Any]:
    """Learning rate by step: warm-up to ``peak``, falling to peak * FIRST_END at half of the steps, then from
    peak * SECOND_STAGE to 0.
    """
    half = recipe.steps // 2
    return optax.join_schedules(
        [
            optax.linear_schedule(0.0, peak, recipe.warmup),
            optax.linear_schedule(peak, peak * FIRST_END, max(half - recipe.warmup, 1)),
            optax.linear_schedule(peak * SECOND_STAGE, 0.0, recipe.steps - half),
        ],
        [recipe.warmup, half],
    )


def optimiser(recipe: Recipe) -> optax.GradientTransformation:
    """The complete update rule: gradient clipping at norm 1, then Muon or Adam by ``_kinds``."""
    decay = optax.piecewise_constant_schedule(recipe.decay, {recipe.steps // 2: 0.0})
    matrices = optax.chain(
        *_muon(recipe),
        optax.add_decayed_weights(decay),
        optax.scale_by_learning_rate(two_stages(recipe, recipe.peak)),
    )
    rest = optax.chain(
        optax.scale_by_adam(b1=0.9, b2=0.98),
        optax.scale_by_learning_rate(two_stages(recipe, recipe.small)),
    )
    return optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.partition({"matrices": matrices, "rest": rest}, _kinds),
    )


def _muon(recipe: Recipe) -> list[optax.GradientTransformation]:
    """Momentum, and each layer's matrix of it made orthogonal."""
    if recipe.products == "float32":
        return [optax.contrib.scale_by_muon(weight_dimension_numbers=_matrix_axes)]
    each = lambda stacked: jnp.stack([_orthogonal(matrix) for matrix in stacked])  # noqa: E731
    return [
        optax.trace(0.95, nesterov=True),
        optax.stateless(lambda updates, _: jax.tree.map(each, updates)),
    ]


def _orthogonal(matrix: jax.Array) -> jax.Array:
    """Five steps of the Newton-Schulz iteration of Muon, [out, in] float32; its products of bf16 numbers.

    Singular values come out between 0.5 and 1.5, whatever they were: precision is not what is asked for here.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = matrix.shape[0] > matrix.shape[1]
    x = turned(matrix) if tall else matrix
    x /= jnp.linalg.norm(x) + 1e-8
    for _ in range(5):
        square = product(x, x, (1, 1))
        x = a * x + product(b * square + c * product(square, square, (1, 0)), x, (1, 0))
    return turned(x) if tall else x


def _kinds(parameters: Any) -> Any:
    """``matrices`` for the stacked linears [layers, out, in], ``rest`` for all other parameters."""
    return jax.tree.map(lambda p: "matrices" if p.ndim == 3 else "rest", parameters)


def _matrix_axes(parameters: Any) -> Any:
    """The layer axis is a batch axis: each layer's matrix is orthogonalised separately."""
    axes = optax.contrib.MuonDimensionNumbers(reduction_axis=2, output_axis=1)
    return jax.tree.map(lambda _: axes, parameters)
