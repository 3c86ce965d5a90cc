"""Grouped-query attention in two traced steps: softmax weights, then the weighted sum of the values."""

import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float32

from tritgold.portable_math import dot, exp, pairwise_sum, rounded_products

_SCRATCH = 1 << 20  # float64 products at a time: 8 MB for any number of keys


def softmax_weights(
    q: Float32[np.ndarray, "tokens heads head_dim"],
    k: Float32[np.ndarray, "keys kv_heads head_dim"],
    start: int,
    block: int = 1,
    window: int | None = None,
) -> Float32[np.ndarray, "heads tokens keys"]:
    """softmax(q k / sqrt(head_dim)) over the keys that each token sees; exactly 0 for the others.

    start: absolute position of the first token. block: a token sees the keys of its own block of positions and of all
    blocks before it, those of later tokens in its block among them. 1 is causal: token t sees keys 0 .. start + t.
    window: of those, the last so many positions alone, its own among them; None: all. Query head h reads key head
    h // (heads / kv_heads). Scores stay in float64 and are not traced; the weights are rounded once. Each row depends
    only on the keys it sees: a longer cache after it changes no bit.

    >>> one = np.ones((2, 1, 2), np.float32)
    >>> softmax_weights(one, one, start=0)[0].tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    >>> softmax_weights(one, one, start=0, block=2)[0].tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    tokens, heads, head_dim = q.shape
    keys, kv_heads = k.shape[:2]
    weights = np.zeros((heads, tokens, keys), np.float32)
    for head in range(heads):
        head_keys = k[:, head * kv_heads // heads]
        for part in _slices(tokens, keys * head_dim):
            query = start + np.arange(tokens)[part, None]
            seen = min(keys, (int(query[-1, 0]) // block + 1) * block)  # by the last of these tokens
            scores = dot(q[part, None, head], head_keys[:seen]) / math.sqrt(head_dim)
            hidden = np.arange(seen) // block > query // block
            if window is not None:
                hidden |= np.arange(seen) <= query - window
            scores[hidden] = -np.inf
            powers = exp(scores - scores.max(axis=1, keepdims=True))
            weights[head, part, :seen] = powers / pairwise_sum(powers)[:, None]
    return weights


def mix_values(
    weights: Float32[np.ndarray, "heads tokens keys"], v: Float32[np.ndarray, "keys kv_heads head_dim"]
) -> Float32[np.ndarray, "tokens width"]:
    """Weighted sum of the values, heads concatenated: width = heads * head_dim. float64 sums, rounded once.

    >>> v = np.array([[[1., 10.]], [[3., 30.]]], np.float32)
    >>> mix_values(np.array([[[1., 0.], [.5, .5]]], np.float32), v).tolist()
    [[1.0, 10.0], [2.0, 20.0]]
    """
    heads, tokens, keys = weights.shape
    kv_heads, head_dim = v.shape[1:]
    mixed = np.empty((tokens, heads, head_dim), np.float32)
    for head in range(heads):
        by_channel = v[:, head * kv_heads // heads].T
        for part in _slices(tokens, keys * head_dim):
            mixed[part, head] = rounded_products(weights[head, part], by_channel)
    return mixed.reshape(tokens, heads * head_dim)


def _slices(tokens: int, products_per_token: int) -> Iterator[slice]:
    step = max(1, _SCRATCH // products_per_token)
    return (slice(t, t + step) for t in range(0, tokens, step))
