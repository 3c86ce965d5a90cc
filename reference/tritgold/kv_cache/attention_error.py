"""The error of attention if its keys and values are stored in a scheme, measured against exact float64 attention.

For tables and plots: everything except the storage is float64, so only the scheme is measured.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tritgold.kv_cache.base import KvScheme, Sizes
from tritgold.kv_cache.random_matrices import gaussian
from tritgold.portable_math import dot, exp, pairwise_sum


@dataclass(frozen=True)
class AttentionError:
    """The output of all heads for one query [heads * head_dim], compared with the exact output.

    cosine: of the two vectors; 1 if they have the same direction, NaN if one is 0. relative: norm of the difference /
    norm of the exact output, NaN if that is 0. context: tokens. bits_per_value: of the scheme, scales included.
    """

    scheme: str
    context: int
    bits_per_value: float
    cosine: float
    relative: float


def attention_error(scheme: KvScheme, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> AttentionError:
    """The error for the last of ``context`` tokens.

    q: float32 [heads, head_dim], the last token's query. k, v: float32 [context, kv_heads, head_dim]; heads is a
    multiple of kv_heads. All tokens except the last are stored in one pass and the last in a second one, as in
    decoding.
    """
    context, kv_heads, head_dim = k.shape
    shape = Sizes(1, kv_heads, head_dim)
    cache = scheme.cache(shape, context)
    for part in (slice(0, context - 1), slice(context - 1, context)):
        keys, values = cache.append(0, k[part], v[part])
        cache.advance(k[part].shape[0])
    exact, got = exact_attention(q, k, v), exact_attention(q, keys, values)
    norms = [float(np.sqrt(pairwise_sum(x * x))) for x in (exact, got, got - exact)]
    cosine = float(pairwise_sum(exact * got)) / (norms[0] * norms[1]) if norms[0] * norms[1] else math.nan
    relative = norms[2] / norms[0] if norms[0] else math.nan
    return AttentionError(scheme.id, context, scheme.bits_per_value(shape), cosine, relative)


def attention_errors(
    schemes: Sequence[KvScheme],
    contexts: Sequence[int],
    *,
    heads: int = 8,
    kv_heads: int = 8,
    head_dim: int = 128,
    outlier: float = 1.0,
    seed: int = 0,
) -> Iterator[AttentionError]:
    """``attention_error`` of each scheme at each context length, for standard normal q, k and v.

    outlier: factor of one channel of every key, because some channels of real keys are much larger. All schemes get
    the same numbers, and a shorter context is the beginning of a longer one.
    """
    longest = max(contexts)
    q = gaussian(seed, (heads, head_dim)).astype(np.float32)
    k, v = (gaussian(seed, (longest, kv_heads, head_dim), stream).astype(np.float32) for stream in (1, 2))
    k[:, :, head_dim // 3] *= np.float32(outlier)
    return (attention_error(scheme, q, k[:n], v[:n]) for scheme in schemes for n in contexts)


def exact_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """softmax(q k / sqrt(head_dim)) v of one query over all keys, in float64 throughout: [heads * head_dim].

    >>> one = np.ones((2, 1, 2), np.float32)
    >>> exact_attention(one[0], one, np.array([[[1, 3]], [[3, 5]]], np.float32)).tolist()
    [2.0, 4.0]
    """
    heads, head_dim = q.shape
    outputs = []
    for head in range(heads):
        at = head * k.shape[1] // heads
        scores = dot(q[head], k[:, at]) / math.sqrt(head_dim)
        powers = exp(scores - np.max(scores))
        outputs.append(pairwise_sum(powers * v[:, at].T) / pairwise_sum(powers))
    return np.concatenate(outputs)
