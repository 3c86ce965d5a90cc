"""Sparse activations: which entries of a linear layer's input are dropped before it is quantised.

``Threshold`` and ``TopK`` are the rules of most engines; other rules are in their own files.
"""

import itertools
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float32

from tritgold.errors import ContextError, NonFiniteError
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC, Arithmetic
from tritgold.option_values import real_number
from tritgold.sparsity.base import Sparse, SparsityRule, Tally, count_of, largest

# The inputs of a layer's linears, in the order in which a forward pass quantises them (``graph.operations``).
PLACES = ("attn_in", "o_in", "ffn_in", "down_in")
Quantizer = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


class ActivationRule(SparsityRule):
    """A rule for the inputs of linear layers. The order of the calls shows which of PLACES an input is."""

    @abstractmethod
    def quantize(self, x: np.ndarray, place: str, dense: Quantizer) -> tuple[np.ndarray, np.ndarray]:
        """Codes int8 [tokens, in] and scale float32 [tokens] of x; ``dense`` computes them without a rule.

        Raises NonFiniteError on inf or NaN.
        """

    def arithmetic(self, base: Arithmetic = GOLDEN_ARITHMETIC, tally: Tally | None = None) -> Arithmetic:
        """``base`` with this rule before its quantiser. The tally counts zero codes of rule and rounding."""
        places: Iterator[str] = itertools.cycle(PLACES)

        def embed(*args: np.ndarray) -> np.ndarray:
            nonlocal places
            places = itertools.cycle(PLACES)  # a pass may have ended early, with an error
            return base.embed(*args)

        def quantize(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            place = next(places)
            codes, scale = self.quantize(x, place, base.quantize)
            if tally is not None:
                tally.add(place, int(np.count_nonzero(codes)), codes.size)
            return codes, scale

        return replace(base, embed=embed, quantize=quantize)


@dataclass(frozen=True)
class Dense(ActivationRule):
    """No rule: changes no bit. To measure the zeros of the dense model."""

    name = "none"

    def quantize(self, x: np.ndarray, place: str, dense: Quantizer) -> tuple[np.ndarray, np.ndarray]:
        """The same as ``dense``."""
        return dense(x)


class MaskingRule(ActivationRule):
    """A rule that sets entries of x to zero, the same way at all places."""

    @abstractmethod
    def mask(self, x: Float32[np.ndarray, "tokens width"]) -> Bool[np.ndarray, "tokens width"]:
        """Which entries are kept. x is finite."""

    def sparsify(self, x: Float32[np.ndarray, "tokens width"]) -> Sparse:
        """x with dropped entries set to zero, and the measured sparsity. Raises NonFiniteError for inf or NaN."""
        values = np.where(self.mask(finite(x)), x, np.float32(0))
        return Sparse(values, int(np.count_nonzero(values)), values.size)

    def quantize(self, x: np.ndarray, place: str, dense: Quantizer) -> tuple[np.ndarray, np.ndarray]:
        """``dense`` of the values that are kept."""
        return dense(self.sparsify(x).values)


@dataclass(frozen=True)
class Threshold(MaskingRule):
    """Keep values whose magnitude is above ``threshold``, which is finite and 0 or more; 0 drops only zeros.

    >>> Threshold(threshold=2).sparsify(np.array([[1, -2, 3, -4]], np.float32)).values
    array([[ 0.,  0.,  3., -4.]], dtype=float32)
    """

    threshold: float = 0.01
    name = "threshold"

    def __post_init__(self) -> None:
        if not 0 <= real_number(self.threshold) < math.inf:
            raise self._bad("threshold", "0 or more, finite")

    def mask(self, x: Float32[np.ndarray, "tokens width"]) -> Bool[np.ndarray, "tokens width"]:
        """|x| > threshold; the threshold is not rounded to float32."""
        return np.abs(x).astype(np.float64) > float(self.threshold)


@dataclass(frozen=True)
class TopK(MaskingRule):
    """Keep the largest max(1, int(width * keep)) magnitudes of each token; of equal ones the lower indices.

    keep: the share to keep, above 0 and at most 1; 1 changes no bit.

    >>> TopK(keep=0.5).sparsify(np.array([[1, -2, 3, 2]], np.float32)).values
    array([[ 0., -2.,  3.,  0.]], dtype=float32)
    """

    keep: float = 0.5
    name = "top_k"

    def __post_init__(self) -> None:
        self._check_shares("keep")

    def mask(self, x: Float32[np.ndarray, "tokens width"]) -> Bool[np.ndarray, "tokens width"]:
        """The mask of each token; depends only on that token."""
        return largest(np.abs(x), count_of(self.keep, x.shape[1]))


def finite(x: np.ndarray) -> np.ndarray:
    """x [tokens, width] unchanged, after a check: NonFiniteError for inf or NaN, which a rule's comparison would hide.

    Raises ContextError (``activation-shape``) if x is not a matrix of real numbers with at least one column.
    """
    if not isinstance(x, np.ndarray) or x.ndim != 2 or not x.shape[1] or x.dtype.kind not in "fiu":
        got = f"{x.dtype} {list(x.shape)}" if isinstance(x, np.ndarray) else f"a {type(x).__name__}"
        raise ContextError("activations are a matrix", kind="activation-shape", got=got, expected="[tokens, width]")
    wrong = ~np.isfinite(x).all(axis=1)
    if wrong.any():
        token = int(np.flatnonzero(wrong)[0])
        raise NonFiniteError(f"activations of token {token} are not finite", kind="activation-non-finite")
    return x
