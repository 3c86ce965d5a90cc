"""Faults of attention: mask, softmax and its scale, and which key head a query head reads."""

import math
from collections.abc import Callable, Mapping

import numpy as np

from tritgold.portable_math import dot, exp, pairwise_sum
from tritgold.trace_names import TraceName
from tritgold_conformance.faults.fault import EDGE_INPUTS, OPERATIONS, Mutant
from tritgold_conformance.faults.library import known_fault
from tritgold_conformance.faults.mutate import altered, with_arithmetic

AREA = "attention"


def _attend(
    scaled: Callable[[np.ndarray, int], np.ndarray] = lambda scores, head_dim: scores / math.sqrt(head_dim),
    hidden: Callable[[np.ndarray, np.ndarray], np.ndarray] = lambda query, key: key > query,
    head_of: Callable[[int, int, int], int] = lambda head, kv_heads, heads: head * kv_heads // heads,
    stable: bool = True,
) -> Callable[..., np.ndarray]:
    """Softmax weights with one of its parts replaced.

    hidden(query positions [tokens, 1], key positions [keys]) is what a token does not see; in blocks of positions it is
    given the last position of the token's block. A row that sees nothing is zero. stable: the largest score is
    subtracted before exp; without it float32 overflows, as an engine's does.
    """

    def softmax_weights(
        q: np.ndarray, k: np.ndarray, start: int, block: int = 1, window: int | None = None
    ) -> np.ndarray:
        tokens, heads, head_dim = q.shape
        keys, kv_heads = k.shape[:2]
        weights = np.zeros((heads, tokens, keys), np.float32)
        query, key = start + np.arange(tokens)[:, None], np.arange(keys)
        mask = hidden((query // block + 1) * block - 1, key)
        if window is not None:
            mask = mask | (key <= query - window)
        for head in range(heads):
            scores = scaled(dot(q[:, None, head], k[:, head_of(head, kv_heads, heads)]), head_dim)
            scores = np.where(mask, -np.inf, scores)
            largest = scores.max(axis=1, keepdims=True)
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                if stable:
                    powers = exp(scores - np.where(np.isfinite(largest), largest, 0.0))
                else:
                    powers = exp(scores).astype(np.float32).astype(np.float64)
                total = pairwise_sum(powers)[:, None]
                weights[head] = np.where(total == 0, 0.0, powers / total)
        return weights

    return softmax_weights


@known_fault(OPERATIONS, invisible_on=("position-0",))
def mask_missing(s: Mutant) -> Mutant:
    """Tokens see those after them.

    Looks like: the last position right in layer 0; prefill and steps differ"""
    return with_arithmetic(s, softmax_weights=_attend(hidden=lambda query, key: (key < 0) & (query < 0)))


@known_fault(OPERATIONS, invisible_on=("position-0",))
def mask_off_by_one(s: Mutant) -> Mutant:
    """A token sees the one after it as well.

    Looks like: prefill suspiciously good, steps differ"""
    return with_arithmetic(s, softmax_weights=_attend(hidden=lambda query, key: key > query + 1))


@known_fault(OPERATIONS)
def mask_hides_the_token_itself(s: Mutant) -> Mutant:
    """A token does not see itself.

    Looks like: position 0 has no attention at all"""
    return with_arithmetic(s, softmax_weights=_attend(hidden=lambda query, key: key >= query))


@known_fault(OPERATIONS, invisible_on=("position-0",))
def window_of_16(s: Mutant) -> Mutant:
    """A token sees the last 16 only.

    Looks like: short inputs right"""
    return with_arithmetic(s, softmax_weights=_attend(hidden=lambda query, key: (key > query) | (key <= query - 16)))


@known_fault(OPERATIONS, invisible_on=("position-0",))
def softmax_scale_missing(s: Mutant) -> Mutant:
    """Scores are not divided by the root of head_dim.

    Looks like: attention too sharp; position 0 right"""
    return with_arithmetic(s, softmax_weights=_attend(scaled=lambda scores, _: scores))


@known_fault(OPERATIONS, invisible_on=("position-0",))
def softmax_scale_of_hidden(s: Mutant) -> Mutant:
    """Scores are divided by the root of hidden.

    Looks like: attention too flat; position 0 right"""
    root = math.sqrt(s.config.hidden)
    return with_arithmetic(s, softmax_weights=_attend(scaled=lambda scores, _: scores / root))


@known_fault(OPERATIONS, invisible_on=("position-0",))
def softmax_scale_without_root(s: Mutant) -> Mutant:
    """Scores are divided by head_dim, not by its root.

    Looks like: attention too flat; position 0 right"""
    return with_arithmetic(s, softmax_weights=_attend(scaled=lambda scores, head_dim: scores / head_dim))


@known_fault(EDGE_INPUTS, invisible_on=("small-scores",))
def softmax_without_max(s: Mutant) -> Mutant:
    """The largest score is not subtracted before exp, in float32.

    Looks like: NaN where a score passes 88, nothing before"""
    return with_arithmetic(s, softmax_weights=_attend(stable=False))


@known_fault(OPERATIONS)
def kv_heads_tiled(s: Mutant) -> Mutant | None:
    """Query head h reads key head h % kv_heads.

    Looks like: babble of the right size; right for as many key heads as query heads"""
    if s.config.kv_heads in (1, s.config.heads):
        return None

    def mix_values(weights: np.ndarray, v: np.ndarray) -> np.ndarray:
        heads, tokens, _ = weights.shape
        mixed = np.empty((tokens, heads, v.shape[2]), np.float32)
        for head in range(heads):
            mixed[:, head] = dot(weights[head, :, None, :], v[:, head % v.shape[1]].T)
        return mixed.reshape(tokens, -1)

    tiled = _attend(head_of=lambda head, kv_heads, _: head % kv_heads)
    return with_arithmetic(s, softmax_weights=tiled, mix_values=mix_values)


@known_fault(OPERATIONS, invisible_on=("position-0",))
def keys_of_head_0(s: Mutant) -> Mutant | None:
    """Every query head reads key head 0.

    Looks like: the first group of heads right"""
    return None if s.config.kv_heads == 1 else with_arithmetic(s, softmax_weights=_attend(head_of=lambda *_: 0))


@known_fault(OPERATIONS)
def heads_transposed(s: Mutant) -> Mutant | None:
    """The mix lies [head_dim, heads], and is read as [heads, head_dim].

    Looks like: attention equal, o wrong: channels permuted"""
    heads = (-1, s.config.heads, s.config.head_dim)

    def alter(name: str, value: np.ndarray, seen: Mapping[str, np.ndarray]) -> np.ndarray | None:
        if TraceName.of(name).what != "attn_mix":
            return None
        return np.ascontiguousarray(value.reshape(heads).transpose(0, 2, 1)).reshape(value.shape)

    return altered(s, alter) if s.config.heads > 1 else None
