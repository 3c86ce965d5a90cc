"""Training in the small: a recipe of one narrow layer, a text of made-up words, masters whose every gain differs."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import numpy as np
from tokenizers import Tokenizer

from tritgold_xla.training.qat import Parameters, initial_parameters
from tritgold_xla.training.recipe import RECIPES, Recipe
from tritgold_xla.training.tokens import Stream, stream, train_tokenizer

# 256 is the narrowest that a recipe may be. Half time, with the second stage of the schedule, is step 4.
SMALL: dict[str, Any] = {
    "steps": 8,
    "batch": 2,
    "length": 32,
    "warmup": 2,
    "vocab": 300,
    "hidden": 256,
    "inter": 256,
    "layers": 1,
    "context": 64,
    "block": 8,
}
TINY = replace(RECIPES["kjv-ar"], **SMALL)  # as the command's tests have it: one compilation for both
DIFFUSION = replace(TINY, name="tiny-dlm", objective="block diffusion")


@cache
def texts(count: int = 30) -> list[str]:
    """Chapters of four lines. Each word is followed by one of two, so that there is something to learn."""
    rng = np.random.default_rng(5)
    words = ["".join(rng.choice(list("abcdefghilmnorstu"), size)) for size in rng.integers(2, 7, 24)]

    def line() -> str:
        at, said = int(rng.integers(len(words))), []
        for _ in range(12):
            said.append(words[at])
            at = (2 * at + int(rng.integers(2))) % len(words)
        return " ".join(said).capitalize() + "."

    return ["\n".join(line() for _ in range(4)) for _ in range(count)]


@cache
def tokenizer() -> Tokenizer:
    """Of TINY's vocabulary."""
    return train_tokenizer(texts(), TINY.vocab)


@cache
def corpus_stream() -> Stream:
    """All the texts."""
    return stream(tokenizer(), texts())


def varied(recipe: Recipe) -> Parameters:
    """Initial masters, but no gain is 1 and none equals another: a gain that is left out or swapped shows."""
    rng = np.random.default_rng(recipe.seed)

    def vary(master: np.ndarray) -> np.ndarray:
        return rng.normal(1, 0.2, master.shape).astype(np.float32) if (master == 1).all() else master

    return jax.tree.map(vary, initial_parameters(recipe))
