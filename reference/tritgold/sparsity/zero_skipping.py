"""Exact skipping: products with a zero activation are not computed, and no bit changes.

The squared ReLU makes most inputs of the down projection exactly zero, in ternary models more than in others. Integer
products are exact, so a linear layer that uses only the columns with non-zero codes gives the same accumulators as the
dense one; and a row of the up projection whose gate is not positive need not be computed at all.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float32, Int8, Int32

from tritgold.config import ScaleRule
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC, Arithmetic
from tritgold.layers.bit_linear import accumulate, apply_scales
from tritgold.layers.feed_forward import gated_activation
from tritgold.sparsity.base import Sparse, SparsityRule, Tally
from tritgold.ternary import TernaryTensor


def accumulate_nonzero(
    codes: Int8[np.ndarray, "tokens in"], trits: Int8[np.ndarray, "out in"]
) -> Int32[np.ndarray, "tokens out"]:
    """The same integers as ``bit_linear.accumulate``, using only the columns in which a token's code is not zero.

    >>> accumulate_nonzero(np.array([[127, 0, -3], [0, 0, 0]], np.int8), np.array([[1, 1, 1], [-1, 0, 1]], np.int8))
    array([[ 124, -130],
           [   0,    0]], dtype=int32)
    """
    acc = np.empty((codes.shape[0], trits.shape[0]), np.int32)
    for token, row in enumerate(codes):
        columns = np.flatnonzero(row)
        acc[token] = accumulate(row[None, columns], trits[:, columns])[0]
    return acc


def gated_up(
    gate: Float32[np.ndarray, "tokens inter"],
    codes: Int8[np.ndarray, "tokens in"],
    activation_scale: Float32[np.ndarray, " tokens"],
    up: TernaryTensor,
    rule: ScaleRule,
) -> Sparse:
    """relu(gate)^2 * up, computed only for the rows of ``up`` [inter, in] whose gate is positive.

    The values equal those of the dense layer, except that 0.0 replaces -0.0 where the gate is not positive and up is
    negative; both quantise to code 0. kept: rows computed. A NaN gate is computed too, so that it is not hidden.

    >>> up = TernaryTensor(np.array([[1, 1], [1, -1]], np.int8), np.asarray(np.float32(0.5)))
    >>> gate, codes = np.array([[2, -1]], np.float32), np.array([[10, 20]], np.int8)
    >>> gated_up(gate, codes, np.ones(1, np.float32), up, "multiply")
    Sparse(values=array([[60.,  0.]], dtype=float32), kept=1, of=2)
    """
    values, computed = np.zeros(gate.shape, np.float32), 0
    for token, row in enumerate(gate):
        rows = np.flatnonzero(~(row <= 0))
        acc = accumulate_nonzero(codes[token : token + 1], up.trits[rows])
        outputs = apply_scales(acc, activation_scale[token : token + 1], up.scale, rule)
        values[token, rows] = gated_activation(row[None, rows], outputs, "relu2")[0]
        computed += len(rows)
    return Sparse(values, computed, gate.size)


@dataclass(frozen=True)
class ZeroSkipping(SparsityRule):
    """Every linear layer without the products of its zero codes; the model's outputs do not change by a bit."""

    name = "zero_skipping"

    def arithmetic(self, base: Arithmetic = GOLDEN_ARITHMETIC, tally: Tally | None = None) -> Arithmetic:
        """``base`` with ``accumulate_nonzero``. The tally counts ``products``: codes times rows of weights."""

        def accumulate_counted(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
            if tally is not None:
                tally.add("products", int(np.count_nonzero(codes)) * trits.shape[0], codes.size * trits.shape[0])
            return accumulate_nonzero(codes, trits)

        return replace(base, accumulate=accumulate_counted)
