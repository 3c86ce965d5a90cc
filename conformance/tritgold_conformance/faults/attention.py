"""Faults of attention: rotation, mask, softmax scale, and which key head a query head reads."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tritgold.formats.rope_rows import interleaved_rows
from tritgold.portable_math import dot, exp, pairwise_sum
from tritgold.ternary import TernaryTensor
from tritgold_conformance.faults.fault import (
    Change,
    Fault,
    Subject,
    Witness,
    arithmetic,
    arithmetic_of,
    config,
    linears,
    output,
)


def _positions(change: Callable[[np.ndarray], np.ndarray]) -> Change:
    def make(s: Subject) -> dict[str, Any]:
        def rotation_table(positions: np.ndarray, head_dim: int, theta: float) -> Any:
            return s.arithmetic.rotation_table(change(positions), head_dim, theta)

        return {"rotation_table": rotation_table}

    return arithmetic_of(make)


def _interleaved(x: np.ndarray, table: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Turns (x[2i], x[2i + 1])."""
    sin, cos = (t[:, None, :] for t in table)
    turned = np.empty(x.shape, np.float64)
    even, odd = x[..., ::2].astype(np.float64), x[..., 1::2].astype(np.float64)
    turned[..., ::2], turned[..., 1::2] = even * cos - odd * sin, odd * cos + even * sin
    return turned.astype(np.float32)


def _backwards(s: Subject) -> dict[str, Any]:
    return {"rotate": lambda x, table: s.arithmetic.rotate(x, (-table[0], table[1]))}


def _half_of_the_head(s: Subject) -> dict[str, Any]:
    """Rotary dimensions are half of head_dim; the rest passes through."""

    def rotate(x: np.ndarray, table: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        sin, cos = (t.copy() for t in table)
        sin[:, sin.shape[1] // 2 :], cos[:, cos.shape[1] // 2 :] = 0.0, 1.0
        return s.arithmetic.rotate(x, (sin, cos))

    return {"rotate": rotate}


def attend(
    scaled: Callable[[np.ndarray, int], np.ndarray] = lambda scores, head_dim: scores / math.sqrt(head_dim),
    hidden: Callable[[np.ndarray, np.ndarray], np.ndarray] = lambda query, key: key > query,
    head_of: Callable[[int, int, int], int] = lambda head, kv_heads, heads: head * kv_heads // heads,
    stable: bool = True,
) -> Callable[..., np.ndarray]:
    """Softmax weights with one of its parts replaced.

    hidden(query positions [tokens, 1], key positions [keys]) is what a token does not see. A row that sees nothing is
    zero. stable: the largest score is subtracted before exp; without it float32 overflows, as an engine's does.
    """

    def softmax_weights(q: np.ndarray, k: np.ndarray, start: int) -> np.ndarray:
        tokens, heads, head_dim = q.shape
        keys, kv_heads = k.shape[:2]
        weights = np.zeros((heads, tokens, keys), np.float32)
        mask = hidden(start + np.arange(tokens)[:, None], np.arange(keys))
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


def _scaled_by_hidden(s: Subject) -> dict[str, Any]:
    root = math.sqrt(s.config.hidden)
    return {"softmax_weights": attend(scaled=lambda scores, _: scores / root)}


def _tiled(s: Subject) -> dict[str, Any] | None:
    """Query head h reads key head h % kv_heads, and its values."""
    if s.config.kv_heads in (1, s.config.heads):
        return None

    def mix_values(weights: np.ndarray, v: np.ndarray) -> np.ndarray:
        heads, tokens, _ = weights.shape
        mixed = np.empty((tokens, heads, v.shape[2]), np.float32)
        for head in range(heads):
            mixed[:, head] = dot(weights[head, :, None, :], v[:, head % v.shape[1]].T)
        return mixed.reshape(tokens, -1)

    return {
        "softmax_weights": attend(head_of=lambda head, kv_heads, _: head % kv_heads),
        "mix_values": mix_values,
    }


def _first_kv_head(s: Subject) -> dict[str, Any] | None:
    if s.config.kv_heads == 1:
        return None
    return {"softmax_weights": attend(head_of=lambda *_: 0)}


def _permuted(s: Subject) -> Subject | None:
    """q and k rows in the order of files for interleaved RoPE, used as if they were in halves."""

    def change(name: str, t: TernaryTensor) -> TernaryTensor:
        if name not in "qk":
            return t
        return TernaryTensor(t.trits[np.argsort(interleaved_rows(t.shape[0], s.config.head_dim))], t.scale)

    return linears(change)(s)


def _transposed_heads(s: Subject) -> Any:
    """The mix is read [head_dim, heads] where it lies [heads, head_dim]."""
    c = s.config

    def alter(name: str, value: np.ndarray, seen: Any) -> np.ndarray | None:
        if not name.endswith(".attn_mix"):
            return None
        return np.ascontiguousarray(value.reshape(-1, c.heads, c.head_dim).transpose(0, 2, 1)).reshape(value.shape)

    return alter if c.heads > 1 else None


_OPERATIONS = Witness("operations")
_AT_0 = ("position-0",)

FAULTS = (
    Fault(
        "rope-missing", "attention", "q and k are not rotated.",
        "position 0 right, word order lost",
        _positions(np.zeros_like), _OPERATIONS, (), _AT_0,
    ),
    Fault(
        "rope-interleaved", "attention", "Neighbours are rotated together, where the model has halves.",
        "position 0 exact, all others diverge",
        arithmetic(rotate=_interleaved), _OPERATIONS, ("kvark/meganeura #38",), _AT_0,
    ),
    Fault(
        "rope-theta-1e4", "attention", "theta is 10,000, whatever the model says.",
        "short texts nearly right, long ones not",
        config(rope_theta=1e4), Witness("operations", "seeded"), ("1bit-MONSTER/1bit-MONSTER #1728",), _AT_0,
    ),
    Fault(
        "rope-theta-5e5", "attention", "theta is 500,000, whatever the model says.",
        "short texts nearly right, long ones not",
        config(rope_theta=5e5), _OPERATIONS, (), _AT_0,
    ),
    Fault(
        "rope-off-by-one", "attention", "Positions begin at 1.",
        "nothing in the text: only differences of positions reach a score",
        _positions(lambda p: p + 1), _OPERATIONS, (), ("logits",),
    ),
    Fault(
        "rope-backwards", "attention", "Rotated by the angle with the other sign.",
        "position 0 right; the difference of two positions counts with the wrong sign",
        arithmetic_of(_backwards), _OPERATIONS, (), _AT_0,
    ),
    Fault(
        "rope-on-half-the-head", "attention", "Only the first half of the pairs is rotated.",
        "position 0 right; long distances blurred",
        arithmetic_of(_half_of_the_head), _OPERATIONS, (), _AT_0,
    ),
    Fault(
        "rope-frozen", "attention", "Each pass counts its positions from 0.",
        "a prompt in one piece is right, what is generated turns to babble",
        _positions(lambda p: p - p[:1]), Witness("steps"), (), ("prefill",),
    ),
    Fault(
        "qk-rows-permuted", "attention", "Rows of q and k are in the order of interleaved RoPE, unpermuted by nobody.",
        "one container right, the other not; histograms equal",
        _permuted, _OPERATIONS, ("ooples/AiDotNet #2074", "ggml-org/llama.cpp #22611"),
    ),
    Fault(
        "mask-missing", "attention", "Tokens see those behind them.",
        "the last position right in layer 0; prefill and steps differ",
        arithmetic(softmax_weights=attend(hidden=lambda query, key: (key < 0) & (query < 0))), _OPERATIONS, (), _AT_0,
    ),
    Fault(
        "mask-off-by-one", "attention", "A token sees the one behind it as well.",
        "prefill suspiciously good, steps differ",
        arithmetic(softmax_weights=attend(hidden=lambda query, key: key > query + 1)), _OPERATIONS, (), _AT_0,
    ),
    Fault(
        "mask-hides-the-token-itself", "attention", "A token does not see itself.",
        "position 0 has no attention at all",
        arithmetic(softmax_weights=attend(hidden=lambda query, key: key >= query)), _OPERATIONS,
    ),
    Fault(
        "window-of-16", "attention", "A token sees the last 16 only.",
        "short inputs right",
        arithmetic(softmax_weights=attend(hidden=lambda query, key: (key > query) | (key <= query - 16))),
        _OPERATIONS, (), _AT_0,
    ),
    Fault(
        "softmax-scale-missing", "attention", "Scores are not divided by the root of head_dim.",
        "attention too sharp; position 0 right",
        arithmetic(softmax_weights=attend(scaled=lambda scores, _: scores)), _OPERATIONS, (), _AT_0,
    ),
    Fault(
        "softmax-scale-of-hidden", "attention", "Scores are divided by the root of hidden.",
        "attention too flat; position 0 right",
        arithmetic_of(_scaled_by_hidden), _OPERATIONS, (), _AT_0,
    ),
    Fault(
        "softmax-scale-without-root", "attention", "Scores are divided by head_dim, not by its root.",
        "attention too flat; position 0 right",
        arithmetic(softmax_weights=attend(scaled=lambda scores, head_dim: scores / head_dim)),
        _OPERATIONS, (), _AT_0,
    ),
    Fault(
        "softmax-without-max", "attention", "The largest score is not subtracted before exp, in float32.",
        "NaN where a score passes 88, nothing before",
        arithmetic(softmax_weights=attend(stable=False)), Witness("vectors"), (), ("small-scores",),
    ),
    Fault(
        "kv-heads-tiled", "attention", "Query head h reads key head h % kv_heads.",
        "babble of the right size; right for as many key heads as query heads",
        arithmetic_of(_tiled), _OPERATIONS,
    ),
    Fault(
        "keys-of-head-0", "attention", "Every query head reads key head 0.",
        "the first group of heads right",
        arithmetic_of(_first_kv_head), _OPERATIONS, (), _AT_0,
    ),
    Fault(
        "heads-transposed", "attention", "The mix lies [head_dim, heads], and is read as [heads, head_dim].",
        "attention equal, o wrong: channels permuted",
        output(_transposed_heads), _OPERATIONS,
    ),
)  # fmt: skip
