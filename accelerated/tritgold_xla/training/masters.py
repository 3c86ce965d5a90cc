"""Masters for an exported model, drawn so that quantising them gives its trits and scales again.

An export holds trits and scales, not the masters they were rounded from. Masters of 0 are drawn uniformly between the
two thresholds; those of -1 and 1 uniformly from the threshold up to the bound that makes the mean of all magnitudes
the scale.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from tritgold.checkpoint import open_checkpoint
from tritgold.errors import ConfigError
from tritgold.ternary import LinearWeight
from tritgold.weights import LINEARS
from tritgold_xla.training.qat import Parameters
from tritgold_xla.training.recipe import Recipe
from tritgold_xla.training.run_state import differing

EDGE = 0.02  # in scales: how far from a threshold masters are drawn, so that rounding does not move them across


def of_model(recipe: Recipe, folder: Path) -> Parameters:
    """Masters whose export is the model in ``folder``, drawn by the recipe's seed: float32, shapes as in training.

    Raises ConfigError ``start`` for a model with another configuration than the recipe's, and as ``open_checkpoint``
    does.
    """
    model, wanted = open_checkpoint(folder), recipe.config()
    found = replace(model.config, bos=wanted.bos, eos=wanted.eos, mask=wanted.mask, block=wanted.block)
    if found != wanted:
        got, expected = differing(found.as_dict(), wanted.as_dict())
        raise ConfigError(
            "is not a model of the recipe",
            kind="start",
            file=folder,
            got=got,
            expected=expected,
            hint=f"train it again: --only {recipe.start}",
        )
    weights = model.weights
    rng = np.random.Generator(np.random.Philox(key=recipe.seed, counter=[0, 0, 1, 0]))
    names = (*LINEARS, *wanted.vector_widths())
    return {
        "embedding": weights.embedding.rows(slice(None)),
        "final_norm": weights.final_norm,
        "layers": {
            name: np.stack([_of_layer(getattr(layer, name), rng) for layer in weights.layers]) for name in names
        },
    }


def _of_layer(stored: np.ndarray | LinearWeight, rng: np.random.Generator) -> np.ndarray:
    if isinstance(stored, np.ndarray):
        return stored.astype(np.float32)
    tensor = stored.ternary()
    return drawn(tensor.trits, float(tensor.scale), rng)


def drawn(trits: np.ndarray, scale: float, rng: np.random.Generator) -> np.ndarray:
    """float32 of the shape of ``trits``: absmean quantisation gives these trits, and this scale rounded to bf16.

    trits: int8. scale: above 0, a bf16 number. Of a matrix of zeros, whose scale says nothing: zeros.
    """
    if not trits.any():
        return np.zeros(trits.shape, np.float32)
    used, share = trits != 0, np.mean(trits != 0)
    zeros = (0.5 - EDGE) * rng.random(trits.shape) * ~used
    mean = (1 - zeros.mean()) / share  # of the magnitudes of the others, in scales
    least = 0.5 + EDGE
    others = least + 2 * (mean - least) * rng.random(trits.shape)
    others *= mean / others[used].mean()
    signs = np.where(rng.random(trits.shape) < 0.5, -1, 1)
    return (scale * np.where(used, others * trits, zeros * signs)).astype(np.float32)
