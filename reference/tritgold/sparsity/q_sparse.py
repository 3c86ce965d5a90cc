"""Q-Sparse: only the largest activations of each token reach a linear layer. Source: arXiv 2407.10969.

    Y = (X * M) W^T / ||X * M||,   M = the top k of |X|;   with int8 codes the mask is that of |Q(X)|

Without ``rescale`` there is no division by the L2 norm, as in training code derived from the paper. A model that was
trained without the division does not work with it: q and k become far too small.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32

from tritgold.portable_math import dot
from tritgold.sparsity.activation import MaskingRule, Quantizer, finite
from tritgold.sparsity.base import Sparse, count_of, largest


@dataclass(frozen=True)
class QSparse(MaskingRule):
    """Keep the largest max(1, int(keep * group)) of every ``group`` consecutive channels; of equal ones the first.

    keep: above 0, at most 1; the paper's best for ternary weights is 1 - 0.6125. group: None is the whole row;
    keep 0.5 and group 32 is the paper's 16:32. A shorter last group keeps as many as a full one, or all it has.

    >>> rule = QSparse(keep=0.5, group=2, rescale=False)
    >>> rule.sparsify(np.array([[3, -4, 0, 1, 7]], np.float32)).values
    array([[ 0., -4.,  0.,  1.,  7.]], dtype=float32)
    >>> QSparse(keep=0.5).sparsify(np.array([[3, -4, 0, 1]], np.float32)).values
    array([[ 0.6, -0.8,  0. ,  0. ]], dtype=float32)
    """

    keep: float = 0.4
    group: int | None = None
    rescale: bool = True
    name = "q_sparse"

    def __post_init__(self) -> None:
        self._check_shares("keep")
        if self.group is not None:
            self._check_count("group", 1)

    def mask(self, x: Float32[np.ndarray, "tokens width"]) -> Bool[np.ndarray, "tokens width"]:
        """The mask of each token; depends only on that token."""
        return self._largest(np.abs(x))

    def sparsify(self, x: Float32[np.ndarray, "tokens width"]) -> Sparse:
        """The kept values, with ``rescale`` divided by their L2 norm; a token of zeros stays zero."""
        kept = super().sparsify(x)
        if not self.rescale:
            return kept
        norm = np.sqrt(dot(kept.values, kept.values))
        values = (kept.values / np.where(norm > 0, norm, 1.0)[:, None]).astype(np.float32)
        return Sparse(values, kept.kept, kept.of)

    def quantize(self, x: np.ndarray, place: str, dense: Quantizer) -> tuple[np.ndarray, np.ndarray]:
        """The largest codes of ``dense``; with ``rescale`` the scale is ||codes||, as (codes / s) / ||codes / s||."""
        codes, scale = dense(finite(x))
        magnitudes = np.abs(codes.astype(np.int64))  # |-128| is not an int8
        kept = np.where(self._largest(magnitudes), magnitudes, 0)
        if self.rescale:
            # Exact before the root: a sum of integers below 2**31. A token with only zero codes has scale 1.
            scale = np.sqrt(np.maximum((kept * kept).sum(axis=1), 1).astype(np.float64)).astype(np.float32)
        return np.where(kept > 0, codes, np.int8(0)), scale

    def _largest(self, magnitudes: np.ndarray) -> np.ndarray:
        tokens, width = magnitudes.shape
        full = self.group or width
        group = min(full, width)
        groups = math.ceil(width / group)
        padded = np.full((tokens, groups * group), -1, magnitudes.dtype)  # -1 is below every magnitude, so never chosen
        padded[:, :width] = magnitudes
        mask = largest(padded.reshape(tokens, groups, group), count_of(self.keep, full))
        return mask.reshape(tokens, groups * group)[:, :width]
