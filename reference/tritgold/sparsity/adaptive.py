"""Adaptive activation sparsity: how much of a token is kept depends on the token, from ``min_keep`` to ``max_keep``.

``Adaptive`` is the rule of a BitNet server whose notes call it entropy-based: it goes by the variance, compared with
the other tokens of the same call, so a token's result depends on its batch and a prefill is not its steps. ``Entropy``
is what the notes say: it goes by the entropy of the token alone.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32

from tritgold.portable_math import log, pairwise_sum
from tritgold.sparsity.activation import MaskingRule
from tritgold.sparsity.base import count_of, largest

_EPSILON = 1e-8  # as written: below it all variances count as equal, and it is added to their range


class _BetweenShares(MaskingRule):
    min_keep: float
    max_keep: float

    def __post_init__(self) -> None:
        self._check_shares("min_keep", "max_keep")
        if self.min_keep > self.max_keep:
            raise self._bad("min_keep", f"at most max_keep = {self.max_keep}")


@dataclass(frozen=True)
class Adaptive(_BetweenShares):
    """Keep more of the tokens that vary more: the largest int(keep * width) magnitudes of each, at least 1, where

        keep = min_keep + (max_keep - min_keep) (v - min v) / (max v - min v + 1e-8)

    and v is a token's variance over its channels (n - 1 in the denominator; 0 for a single channel). Where all v are
    equal within 1e-8, a single token for example, every token keeps (min_keep + max_keep) / 2.

    drops_feature_0: a defect of that server, off by default. Unused places of the index table point
    to feature 0, so tokens that keep fewer than the most of the call lose feature 0, however large it is.

    The first token has variance 0 and keeps 1 of 4, the second keeps 3, of equal ones those of lower index:

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
        """The mask of each token, from all tokens of the call."""
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
    """Keep more of the tokens whose magnitudes are spread more evenly: the largest int(keep * width), at least 1, where

        keep = min_keep + (max_keep - min_keep) H / ln width,    H = - sum p ln p,    p = |x| / sum |x|

    A token with one value that is not zero has H = 0; all magnitudes equal give H = ln width; a zero token keeps
    ``min_keep`` zeros. Our own definition: each token alone, so chunks and batches change nothing.

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
    """Entropy of each row over that of ``n`` equal shares, 0 to 1. shares: float64 [..., m], each row adding up to 1.

    A share of 0 adds nothing, and n = 1 gives 0, where ln n is 0 too. n: integer [...], or one for all rows.

    >>> relative_entropy(np.array([[0.5, 0.5, 0, 0], [0.25, 0.25, 0.25, 0.25], [1, 0, 0, 0]]), 4).tolist()
    [0.5, 1.0, 0.0]
    """
    entropy = pairwise_sum(-shares * log(np.where(shares > 0, shares, 1.0)))
    most = log(np.maximum(n, 2))
    return np.where(np.asarray(n) > 1, np.clip(entropy / most, 0.0, 1.0), 0.0)


def _variance(x: np.ndarray) -> np.ndarray:
    """Unbiased, over the last axis, float64 in the fixed order."""
    width = x.shape[1]
    if width == 1:
        return np.zeros(len(x))
    centred = x - (pairwise_sum(x) / width)[:, None]
    return pairwise_sum(centred * centred) / (width - 1)
