"""The training loop: a step depends only on seed and step number, so stopping and resuming changes nothing."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import isfinite
from pathlib import Path

import jax
import numpy as np
import optax  # type: ignore[import-untyped]

from tritgold.errors import NonFiniteError
from tritgold_xla.training import objective, questions, run_state
from tritgold_xla.training.optimiser import optimiser
from tritgold_xla.training.qat import Parameters
from tritgold_xla.training.recipe import Recipe
from tritgold_xla.training.run_state import Run


def train(
    run: Run,
    ids: np.ndarray,
    path: Path,
    *,
    passages: np.ndarray | None = None,
    evaluate: Callable[[Parameters], float],
    progress: Callable[[Run], None] = lambda run: None,
    save_every: int = 50,
    evaluate_every: int = 250,
) -> Run:
    """Train ``run`` to its last step and return it.

    ids: int32 [tokens], the training stream. passages: as ``objective.with_passages`` has them, for a recipe with a
    share of them. path: the file of the state, replaced every ``save_every`` steps, at the end, and when interrupted
    (KeyboardInterrupt is then raised again), so that nothing is lost.
    evaluate: masters -> held-out bits per byte, called every ``evaluate_every`` steps and at the end. progress: called
    after every step. Raises NonFiniteError if the loss is not finite.
    """
    recipe = run.recipe
    if (passages is None) != (recipe.passages == 0):
        raise ValueError("passages are for a recipe with a share of them, and for no other")
    update = jax.jit(partial(_update, recipe))
    try:
        while run.step < recipe.steps:
            began = time.perf_counter()
            batch, given = _batch(ids, passages, recipe, run.step)
            noise = np.zeros((recipe.batch, recipe.length), bool)
            if recipe.objective == "block diffusion":  # else sequences need not hold whole blocks
                given += [objective.block_starts(counted, recipe) for counted in given]
                noise = objective.noise_of(recipe, run.step, *given[1:])
            parameters, moments, loss = update(run.parameters, run.moments, batch, noise, *given)
            if not isfinite(float(loss)):
                raise _diverged(path, run.step + 1)
            losses = (*run.losses, float(loss))
            seconds = run.seconds + time.perf_counter() - began
            step = run.step + 1
            held_out = run.held_out
            if step % evaluate_every == 0 or step == recipe.steps:
                held_out = (*held_out, (step, evaluate(parameters)))
            # One assignment: an interrupt comes either before or after the step.
            run = replace(
                run,
                parameters=parameters,
                moments=moments,
                step=step,
                losses=losses,
                held_out=held_out,
                seconds=seconds,
            )
            if step % save_every == 0 or step == recipe.steps:
                run_state.save(run, path)
            progress(run)
    except KeyboardInterrupt:
        run_state.save(run, path)
        raise
    return run


def _batch(
    ids: np.ndarray, passages: np.ndarray | None, recipe: Recipe, step: int
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Tokens, and of questions which of them count: what has to be said."""
    if recipe.data == "kjv":
        rows = objective.batch_of(ids, recipe, step)
        return rows if passages is None else objective.with_passages(rows, passages, recipe, step), []
    asked = questions.batch_of(recipe, step)
    return asked.tokens, [asked.counted]


def _diverged(path: Path, step: int) -> NonFiniteError:
    what = "the loss is not finite"
    hint = "the file holds the last sound state; a lower learning rate needs another recipe"
    return NonFiniteError(what, kind="training-diverged", file=path, thing=f"step {step}", hint=hint)


def _update(
    recipe: Recipe,
    parameters: Parameters,
    moments: optax.OptState,
    batch: jax.Array,
    noise: jax.Array,
    counted: jax.Array | None = None,
    starts: jax.Array | None = None,
) -> tuple[Parameters, optax.OptState, jax.Array]:
    """(masters, moments, loss) after one step; the others as ``objective.loss`` has them."""
    loss, gradients = jax.value_and_grad(objective.loss)(parameters, batch, noise, recipe, counted, starts)
    updates, moments = optimiser(recipe).update(gradients, moments, parameters)
    return optax.apply_updates(parameters, updates), moments, loss
