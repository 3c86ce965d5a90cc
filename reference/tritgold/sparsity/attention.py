"""Sparse attention: which keys a query reads. The softmax weights that are kept are divided by their sum.

Masking scores before the softmax gives the same: exp(s) / sum of the kept exp(s). Some servers divide by the
sum + 1e-8, here nothing is added; a row that loses nothing keeps its bits.

The rules are causal-aware: shares and counts refer to the keys that a query sees, not to all keys in the call. With
``causal=False`` they refer to all keys, as in those servers: then early queries keep all keys that they see, and
prefill differs from single steps. In full attention (a block as long as the text) there is no difference.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float32, Int64

from tritgold.config import MAX_CONTEXT
from tritgold.errors import ContextError, NonFiniteError
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC, Arithmetic
from tritgold.option_values import is_count, real_number
from tritgold.portable_math import pairwise_sum
from tritgold.sparsity.adaptive import relative_entropy
from tritgold.sparsity.base import Sparse, SparsityRule, Tally, count_of, largest


class AttentionRule(SparsityRule):
    """A rule for the weights after the softmax."""

    @abstractmethod
    def mask(
        self,
        weights: Float32[np.ndarray, "heads tokens keys"],
        positions: Int64[np.ndarray, " tokens"],
        seen: Int64[np.ndarray, " tokens"],
    ) -> Bool[np.ndarray, "#heads tokens keys"]:
        """Which weights are kept. seen: number of keys that each query sees, from the first; others are ignored."""

    def sparsify(self, weights: Float32[np.ndarray, "heads tokens keys"], start: int, block: int = 1) -> Sparse:
        """The weights that are kept, each row summing to 1 again; a row that loses everything is zero.

        start, block: as in ``attention.softmax_weights``: query t has position start + t and sees the keys of its block
        of positions and of earlier blocks. The measured sparsity is the share of zeros among the keys that are seen.
        Raises NonFiniteError for inf or NaN, which a comparison would hide, and ContextError (``attention-shape``) for
        weights of other dimensions and an impossible start or block.
        """
        shape = np.shape(weights)
        if (
            len(shape) != 3
            or not shape[2]
            or not is_count(start, 0, MAX_CONTEXT)
            or not is_count(block, 1, MAX_CONTEXT)
        ):
            got, expected = (
                f"{list(shape)}, start {start}, block {block}",
                "[heads, tokens, keys], start >= 0, block >= 1",
            )
            raise ContextError("no weights after a softmax", kind="attention-shape", got=got, expected=expected)
        if not np.isfinite(weights).all():
            raise NonFiniteError("attention weights are not finite", kind="attention-non-finite")
        heads, tokens, keys = weights.shape
        positions = start + np.arange(tokens)
        seen = np.minimum((positions // block + 1) * block, keys)
        visible = np.arange(keys) < seen[:, None]
        kept = np.where(self.mask(weights, positions, seen) & visible, weights, np.float32(0)).astype(np.float64)
        total = pairwise_sum(kept)[..., None]
        divided = (kept / np.where(total > 0, total, 1.0)).astype(np.float32)
        loses = (kept != weights).any(axis=2, keepdims=True)
        values = np.where(loses, divided, weights)
        return Sparse(values, int(np.count_nonzero(values)), heads * int(seen.sum()))

    def arithmetic(self, base: Arithmetic = GOLDEN_ARITHMETIC, tally: Tally | None = None) -> Arithmetic:
        """``base`` with this rule after its softmax. The tally counts ``probs``."""

        def softmax_weights(
            q: np.ndarray, k: np.ndarray, start: int, block: int = 1, window: int | None = None
        ) -> np.ndarray:
            if window is not None:
                what = "attention sparsity has no rule for sliding windows"
                hint = "it works on models without them"
                raise ContextError(what, kind="attention-window", got=f"a window of {window}", hint=hint)
            options = {} if block == 1 else {"block": block}
            sparse = self.sparsify(base.softmax_weights(q, k, start, **options), start, block)
            if tally is not None:
                tally.add("probs", sparse.kept, sparse.of)
            return sparse.values

        return replace(base, softmax_weights=softmax_weights)


@dataclass(frozen=True)
class AttentionTopK(AttentionRule):
    """Keep the largest weights of each query; of equal ones the lower positions.

    k: a fixed number; if the query sees fewer keys, all are kept. keep: or a share, max(1, int(n * keep)) of n keys;
    0.25 if neither is given. Both together are refused.
    """

    k: int | None = None
    keep: float | None = None
    causal: bool = True
    name = "attention_top_k"

    def __post_init__(self) -> None:
        if self.k is not None:
            self._check_count("k", 1)
        if self.keep is not None:
            self._check_shares("keep")
            if self.k is not None:
                raise self._bad("keep", "nothing where k is given")

    def mask(
        self,
        weights: Float32[np.ndarray, "heads tokens keys"],
        positions: Int64[np.ndarray, " tokens"],
        seen: Int64[np.ndarray, " tokens"],
    ) -> Bool[np.ndarray, "#heads tokens keys"]:
        """The k largest weights, or the largest share of n."""
        if self.k is not None:
            return largest(weights, self.k)
        n = seen if self.causal else np.full_like(seen, weights.shape[2])
        return largest(weights, count_of(0.25 if self.keep is None else self.keep, n))


@dataclass(frozen=True)
class AttentionThreshold(AttentionRule):
    """Keep the weights above ``threshold``, which is 0 or more and below 1, and the ``at_least`` largest of each row.

    With at_least = 0, as in some servers, a query that attends equally to more than 1 / threshold keys loses all of
    them, and its attention is zero.
    """

    threshold: float = 0.01
    at_least: int = 1
    name = "attention_threshold"

    def __post_init__(self) -> None:
        if not 0 <= real_number(self.threshold) < 1:
            raise self._bad("threshold", "0 or more, below 1")
        self._check_count("at_least", 0)

    def mask(
        self,
        weights: Float32[np.ndarray, "heads tokens keys"],
        positions: Int64[np.ndarray, " tokens"],
        seen: Int64[np.ndarray, " tokens"],
    ) -> Bool[np.ndarray, "#heads tokens keys"]:
        """Above the threshold, which is not rounded to float32, or among the ``at_least`` largest."""
        return (weights.astype(np.float64) > self.threshold) | largest(weights, self.at_least)


@dataclass(frozen=True)
class AttentionWindow(AttentionRule):
    """Keep near keys, global keys and keys on a grid, as far as the query sees them.

    window: |query - key| <= window // 2, so causal queries use only half of it. global_tokens: so many first keys are
    read by all queries, and so many first queries read all keys. stride: a query at a multiple of it also reads the
    keys at multiples of it; None: no grid. With stride 64 only one query in 64 uses the grid.
    """

    window: int = 256
    global_tokens: int = 1
    stride: int | None = 64
    name = "attention_window"

    def __post_init__(self) -> None:
        self._check_count("window", 0)
        self._check_count("global_tokens", 0)
        if self.stride is not None:
            self._check_count("stride", 1)

    def mask(
        self,
        weights: Float32[np.ndarray, "heads tokens keys"],
        positions: Int64[np.ndarray, " tokens"],
        seen: Int64[np.ndarray, " tokens"],
    ) -> Bool[np.ndarray, "#heads tokens keys"]:
        """Depends only on positions."""
        q, k = positions[:, None], np.arange(weights.shape[2])
        mask = (np.abs(q - k) <= self.window // 2) | (k < self.global_tokens) | (q < self.global_tokens)
        if self.stride is not None:
            mask |= (q % self.stride == 0) & (k % self.stride == 0)
        return mask[None]


@dataclass(frozen=True)
class AttentionDynamic(AttentionRule):
    """Keep more keys for queries whose attention is more even: the largest int(keep * n), at least 1, where

        keep = min_keep + (max_keep - min_keep) H / ln n,    H = - sum a ln a over the weights of the query

    and n is the number of keys (a single key is kept). Some servers compute ln(a + 1e-8); here a weight of 0 adds
    nothing to H.
    """

    min_keep: float = 0.1
    max_keep: float = 0.5
    causal: bool = True
    name = "attention_dynamic"

    def __post_init__(self) -> None:
        self._check_shares("min_keep", "max_keep")
        if self.min_keep > self.max_keep:
            raise self._bad("min_keep", f"at most max_keep = {self.max_keep}")

    def mask(
        self,
        weights: Float32[np.ndarray, "heads tokens keys"],
        positions: Int64[np.ndarray, " tokens"],
        seen: Int64[np.ndarray, " tokens"],
    ) -> Bool[np.ndarray, "#heads tokens keys"]:
        """The largest weights of each query, as many as its entropy determines."""
        n = seen if self.causal else np.full_like(seen, weights.shape[2])
        evenness = relative_entropy(weights.astype(np.float64), n)
        return largest(weights, count_of(self.min_keep + (self.max_keep - self.min_keep) * evenness, n))
