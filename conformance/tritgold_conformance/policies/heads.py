"""Heads of quantised blocks: how far the rounding of weights and of their inputs may change a logit.

ggml multiplies a Q8_0 row with activations in Q8_0, and a Q6_K row with activations in Q8_K: int8 codes and a scale for
each block. Q6_K has 64 steps for each 16 weights, Q8_0 255 for each 32.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tritgold.ternary import DenseMatrix
from tritgold_conformance.policies.roundings import Noise


@dataclass(frozen=True)
class Blocks:
    """weights: how many share one step; steps: of the largest weight, in steps. inputs: values in a block of inputs."""

    weights: int
    steps: int
    inputs: int


BLOCKS = {"q8_0": Blocks(32, 127, 32), "q6_k": Blocks(16, 31, 256)}


def half_steps(rows: np.ndarray, block: int, steps: int) -> np.ndarray:
    """Half of the step by which each value is rounded, of the shape of rows [n, width]; the last block may be short."""
    width = rows.shape[1]
    padded = np.pad(np.abs(rows), ((0, 0), (0, -width % block))).reshape(len(rows), -1, block)
    return np.repeat(padded.max(axis=2) / (2 * steps), block, axis=1)[:, :width]


def perturbed_head(
    logits: Callable[..., np.ndarray], blocks: str, noise: Noise, run: int
) -> Callable[[np.ndarray, DenseMatrix], np.ndarray]:
    """The head with its inputs changed at random within half a step, and in every second run its weights too."""
    b = BLOCKS[blocks]

    def moved(x: np.ndarray, head: DenseMatrix) -> np.ndarray:
        x = (x + half_steps(x, b.inputs, 127) * noise(x.shape)).astype(np.float32)
        found = logits(x, head).astype(np.float64)
        if run % 2:
            rows = head.rows(slice(None))
            found += x.astype(np.float64) @ (half_steps(rows, b.weights, b.steps) * noise(rows.shape)).T
        return found.astype(np.float32)

    return moved


def head_bound(x: np.ndarray, head: DenseMatrix, blocks: str) -> np.ndarray:
    """How far each logit may be off, float64 [tokens, vocab]: DEVIATIONS standard deviations of all its roundings."""
    b, rows = BLOCKS[blocks], head.rows(slice(None)).astype(np.float64)
    wide = x.astype(np.float64)
    of_weights = (wide**2) @ (half_steps(rows, b.weights, b.steps) ** 2).T
    of_inputs = (half_steps(wide, b.inputs, 127) ** 2) @ (rows**2).T
    return DEVIATIONS * np.sqrt((of_weights + of_inputs) / 3)


DEVIATIONS = 6.0  # of a sum of uniform roundings: 1 of 10**9 sums is farther
