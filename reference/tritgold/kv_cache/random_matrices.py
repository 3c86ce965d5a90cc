"""Gaussian and orthogonal matrices from a seed, with the same bits on every machine."""

import math

import numpy as np

from tritgold.counter_random import uniform
from tritgold.portable_math import log, pairwise_sum, sin_cos


def gaussian(seed: int, shape: tuple[int, ...], stream: int = 0) -> np.ndarray:
    """Standard normal float64 values (the cosine half of Box and Muller's formula). stream: 0, 1, 2 ... of one seed.

    >>> x = gaussian(0, (1000, 10))
    >>> bool(abs(x.mean()) < 0.02), bool(abs(x.std() - 1) < 0.02)
    (True, True)
    """
    count = math.prod(shape)
    index = np.arange(2 * count, dtype=np.uint64) + np.uint64(stream << 40)
    radius, angle = uniform(seed, index[:count]), uniform(seed, index[count:])
    # 1 - u is in (0, 1], so its logarithm is finite and not positive.
    return (np.sqrt(-2.0 * log(1.0 - radius)) * sin_cos(2 * math.pi * angle)[1]).reshape(shape)


def orthogonal(seed: int, size: int) -> np.ndarray:
    """A random rotation or reflection, float64 [size, size]: the rows of a Gaussian matrix, made orthonormal in order.

    By Gram and Schmidt's method, applied twice, with errors of about 1e-15. It is the Q of a QR decomposition whose R
    has a positive diagonal, so its distribution is uniform over all orthogonal matrices.

    >>> p = orthogonal(1, 16)
    >>> bool(np.abs(p @ p.T - np.eye(16)).max() < 1e-14)
    True
    """
    rows = gaussian(seed, (size, size))
    for n in range(size):
        row = rows[n]
        for _ in range(2):
            along = pairwise_sum(rows[:n] * row)
            row = row - pairwise_sum((rows[:n] * along[:, None]).T)
        rows[n] = row / np.sqrt(pairwise_sum(row * row))
    return rows


def times(x: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """x [..., n] times the rows of matrix [m, n]: float64 [..., m], sums in fixed order; in parts, to save memory."""
    flat = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    step = max(1, (1 << 21) // matrix.size)
    parts = [pairwise_sum(flat[i : i + step, None] * matrix) for i in range(0, len(flat), step)]
    return np.concatenate([*parts, np.zeros((0, len(matrix)))]).reshape(*x.shape[:-1], len(matrix))
