"""Masters for a model of which only the exported file is there: drawn anew, so that quantising them gives its trits.

A file keeps trits and scales. What lies behind a trit is lost, how near to the next one its master was: so masters of
zeros are drawn evenly between the two thresholds, those of the others evenly from the threshold on, up to where the
mean of all magnitudes is the scale, as absmean has it.
"""

from pathlib import Path

import numpy as np

from tritgold.checkpoint import open_checkpoint
from tritgold.errors import ConfigError
from tritgold_xla.training.qat import Parameters, initial_parameters
from tritgold_xla.training.recipe import Recipe

EDGE = 0.02  # of the scale, that no master is nearer to a threshold: rounding must not move it across


def of_model(recipe: Recipe, folder: Path) -> Parameters:
    """Masters whose export is the model in ``folder``, drawn by the recipe's seed.

    Raises ConfigError ``start`` for a model of another shape, and as ``open_checkpoint`` does.
    """
    weights = open_checkpoint(folder).weights
    rng = np.random.Generator(np.random.Philox(key=recipe.seed, counter=[0, 0, 1, 0]))
    empty = initial_parameters(recipe)
    found: Parameters = {
        "embedding": weights.embedding.rows(slice(None)),
        "final_norm": weights.final_norm,
        "layers": {
            name: np.stack([_of_layer(getattr(layer, name), rng) for layer in weights.layers])
            for name in empty["layers"]
        },
    }
    for name, like in (("embedding", empty["embedding"]), *empty["layers"].items()):
        array = found["layers"].get(name, found["embedding"])
        if array.shape != like.shape:
            raise ConfigError(
                "is not of the recipe's shape",
                kind="start",
                file=folder,
                thing=name,
                got=list(array.shape),
                expected=list(like.shape),
                hint=f"train it again: --only {recipe.start}",
            )
    return found


def _of_layer(stored: object, rng: np.random.Generator) -> np.ndarray:
    if isinstance(stored, np.ndarray):
        return stored.astype(np.float32)
    tensor = stored.ternary()  # type: ignore[attr-defined]
    return drawn(tensor.trits, float(tensor.scale), rng)


def drawn(trits: np.ndarray, scale: float, rng: np.random.Generator) -> np.ndarray:
    """float32 of the shape of ``trits``: absmean quantisation gives these trits, and this scale rounded to bf16.

    trits: int8, not all of them 0 (of a matrix of zeros the scale says nothing).
    """
    used, share = trits != 0, np.mean(trits != 0)
    zeros = (0.5 - EDGE) * rng.random(trits.shape) * ~used
    mean = (1 - zeros.mean()) / share  # of the magnitudes of the others, in scales
    least = min(0.5 + EDGE, mean)
    others = least + 2 * (mean - least) * rng.random(trits.shape)
    others *= mean / others[used].mean()
    signs = np.where(rng.random(trits.shape) < 0.5, -1, 1)
    return (scale * np.where(used, others * trits, zeros * signs)).astype(np.float32)
