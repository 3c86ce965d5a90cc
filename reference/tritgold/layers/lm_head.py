"""Logits: the final hidden state times the head, which is a float matrix, never ternary."""

import numpy as np
from jaxtyping import Float32

from tritgold.portable_math import rounded_products
from tritgold.ternary import DenseMatrix

_ROWS = 256  # vocabulary rows at a time: 256 x 2560 float64 numbers are 5 MB


def logits(x: Float32[np.ndarray, "tokens hidden"], head: DenseMatrix) -> Float32[np.ndarray, "tokens vocab"]:
    """x . head[v] for every vocabulary row v, summed in float64 in a fixed order, rounded once."""
    vocab = head.shape[0]
    result = np.empty((x.shape[0], vocab), np.float32)
    for first in range(0, vocab, _ROWS):
        result[:, first : first + _ROWS] = rounded_products(x, head.rows(slice(first, first + _ROWS)))
    return result
