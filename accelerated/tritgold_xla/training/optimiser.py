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
import optax  # type: ignore[import-untyped]

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
        optax.contrib.scale_by_muon(weight_dimension_numbers=_matrix_axes),
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


def _kinds(parameters: Any) -> Any:
    """``matrices`` for the stacked linears [layers, out, in], ``rest`` for all other parameters."""
    return jax.tree.map(lambda p: "matrices" if p.ndim == 3 else "rest", parameters)


def _matrix_axes(parameters: Any) -> Any:
    """The layer axis is a batch axis: each layer's matrix is orthogonalised separately."""
    axes = optax.contrib.MuonDimensionNumbers(reduction_axis=2, output_axis=1)
    return jax.tree.map(lambda _: axes, parameters)
