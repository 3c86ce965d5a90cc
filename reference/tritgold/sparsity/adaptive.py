"""Adaptive activation sparsity: the share of a token that is kept depends on the token, ``min_keep`` to ``max_keep``.

``Adaptive`` is the rule of a BitNet server. Its documentation calls it entropy-based, but it uses the variance,
relative to the other tokens of the same call, so a token's result depends on its batch, and prefill differs from
single steps. ``Entropy`` is the rule of that documentation: it uses only the entropy of the token.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32

from tritgold.portable_math import log, pairwise_sum
from tritgold.sparsity.activation import MaskingRule
from tritgold.sparsity.base import count_of, largest

_EPSILON = 1e-8  # as in the server: a smaller range counts as 0, and it is added to the range


class _BetweenShares(MaskingRule):
    min_keep: float
    max_keep: float

    def __post_init__(self) -> None:
        self._check_shares("min_keep", "max_keep")
        if self.min_keep > self.max_keep:
            raise self._bad("min_keep", f"at most max_keep = {self.max_keep}")


@dataclass(frozen=True)
class Adaptive(_BetweenShares):
    """Keep more of tokens with a larger variance: the largest int(keep * width) magnitudes of each, at least 1, where

        keep = min_keep + (max_keep - min_keep) (v - min v) / (max v - min v + 1e-8)

    and v is a token's variance over its channels (n - 1 in the denominator; 0 for a single channel). If all v are
    equal within 1e-8, as for a single token, every token keeps (min_keep + max_keep) / 2.

    drops_feature_0: a defect of that server, off by default. Unused entries of its index table point to feature 0, so
    every token that keeps fewer features than another token of the call loses feature 0, even if it is large.

    The first token has variance 0 and keeps 1 of 4, the second keeps 3; of equal ones the lower indices:

    >>> x = np.array([[5, 5, 5, 5], [9, -9, 9, -9]], np.float32)
    >>> Adaptive(min_keep=0.25, max_keep=0.8).sparsify(x).values
    array([[ 5.,  0.,  0.,  0.],
           [ 9., -9.,  9.,  0.]], dtype=float32)
    """

    min_keep: float = 0.3
    max_keep: float = 0.7
    drops_feature_0: bool = False
    name = "adaptive"

    def mask(self, x: Float32[np.ndarray, "tokens width"]) -> Bool[np.ndarray, "tokens width"]:
        """The mask of each token; depends on all tokens of the call."""
        width = x.shape[1]
        v = _variance(x.astype(np.float64))
        spread = np.ptp(v) if len(v) else 0.0
        if spread < _EPSILON:
            keep = np.full(len(x), (self.min_keep + self.max_keep) / 2)
        else:
            keep = self.min_keep + (self.max_keep - self.min_keep) * ((v - np.min(v)) / (spread + _EPSILON))
        counts = count_of(keep, width)
        mask = largest(np.abs(x), counts)
        if self.drops_feature_0:
            mask[counts < np.max(counts, initial=0), 0] = False
        return mask


@dataclass(frozen=True)
class Entropy(_BetweenShares):
    """Keep more of tokens whose magnitudes are more equal: the largest int(keep * width), at least 1, where

        keep = min_keep + (max_keep - min_keep) H / ln width,    H = - sum p ln p,    p = |x| / sum |x|

    A token with a single non-zero value has H = 0; equal magnitudes give H = ln width; a zero token keeps the share
    ``min_keep``, all zeros. This is our own definition: it depends only on the token, so chunks and batches change
    nothing.

    >>> x = np.array([[8, 0, 0, 0], [2, -2, 2, -2]], np.float32)
    >>> Entropy(min_keep=0.25, max_keep=0.75).sparsify(x).values
    array([[ 8.,  0.,  0.,  0.],
           [ 2., -2.,  2.,  0.]], dtype=float32)
    """

    min_keep: float = 0.3
    max_keep: float = 0.7
    name = "entropy"

    def mask(self, x: Float32[np.ndarray, "tokens width"]) -> Bool[np.ndarray, "tokens width"]:
        """The mask of each token, from that token alone."""
        magnitudes = np.abs(x).astype(np.float64)
        total = pairwise_sum(magnitudes)
        evenness = relative_entropy(magnitudes / np.where(total > 0, total, 1.0)[:, None], x.shape[1])
        return largest(magnitudes, count_of(self.min_keep + (self.max_keep - self.min_keep) * evenness, x.shape[1]))


def relative_entropy(shares: np.ndarray, n: np.ndarray | int) -> np.ndarray:
    """Entropy of each row / entropy of ``n`` equal shares, 0 to 1. shares: float64 [..., m], each row sums to 1.

    A share of 0 adds nothing; n = 1 gives 0. n: integer [...], or one for all rows.

    >>> relative_entropy(np.array([[0.5, 0.5, 0, 0], [0.25, 0.25, 0.25, 0.25], [1, 0, 0, 0]]), 4).tolist()
    [0.5, 1.0, 0.0]
    """
    entropy = pairwise_sum(-shares * log(np.where(shares > 0, shares, 1.0)))
    most = log(np.maximum(n, 2))
    return np.where(np.asarray(n) > 1, np.clip(entropy / most, 0.0, 1.0), 0.0)


def _variance(x: np.ndarray) -> np.ndarray:
    """Unbiased variance over the last axis (0 for width 1), float64, summed in the fixed order."""
    width = x.shape[1]
    if width == 1:
        return np.zeros(len(x))
    centred = x - (pairwise_sum(x) / width)[:, None]
    return pairwise_sum(centred * centred) / (width - 1)
