"""From logits to predictions: for each masked token the most likely or a sampled id, and its confidence.

The arithmetic is float64 from ``tritgold.portable_math``, so the same logits give the same tokens on every machine. A
random number depends only on the seed, the number of the pass, the position and (Gumbel) the id, so a sequence gets
the same tokens in a batch as alone.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from tritgold.config import MAX_CONTEXT
from tritgold.counter_random import uniform
from tritgold.decode.sampling import Sampling, candidates
from tritgold.errors import NonFiniteError
from tritgold.options import Noise
from tritgold.portable_math import exp, log, pairwise_sum

Confidence = Literal["exact", "schraudolph"]


def likeliest(logits: np.ndarray, last_ties: bool = False) -> np.ndarray:
    """int64 [rows]: the id with the largest logit; at a tie the first, or the last. logits: float64 [rows, vocab].

    >>> likeliest(np.array([[0.0, 2.0, 2.0]])).tolist(), likeliest(np.array([[0.0, 2.0, 2.0]]), last_ties=True).tolist()
    ([1], [2])
    """
    if last_ties:
        return logits.shape[1] - 1 - np.argmax(logits[:, ::-1], axis=1)
    return np.argmax(logits, axis=1)


def probabilities(logits: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """The softmax probability of one id in each row. logits: float64 [rows, vocab], -inf allowed; tokens: [rows].

    >>> probabilities(np.array([[0.0, 0.0], [-np.inf, 3.0]]), np.array([0, 1])).tolist()
    [0.5, 1.0]
    """
    powers = exp(logits - np.max(logits, axis=1, keepdims=True))
    return powers[np.arange(len(tokens)), tokens] / pairwise_sum(powers)


def schraudolph_exp(x: np.ndarray) -> np.ndarray:
    """e**x by writing x into a float32's exponent field: up to 6.15 % too large, never too small. x: float64, <= 0.

    Between two powers of two it is linear; below -88 it is almost 0. Source: Nicol Schraudolph, "A Fast, Compact
    Approximation of the Exponential Function" (1999), without the correction that makes the mean error 0. Engines that
    vectorise the confidence this way get values that are slightly too low.

    >>> schraudolph_exp(np.array([0.0, -0.5])).round(4).tolist()
    [1.0, 0.6393]
    """
    bits = np.float32(2**23 / np.log(2)) * np.maximum(x, -88).astype(np.float32) + np.float32(127 << 23)
    return bits.astype(np.int32).view(np.float32).astype(np.float64)


def predict(
    logits: np.ndarray,
    positions: Sequence[int],
    number: int,
    noise: Noise,
    sampling: Sampling,
    confidence: Confidence = "exact",
    last_ties: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens int64 [rows] and their confidence, float64 [rows].

    logits: float64 [rows, vocab], for the tokens at ``positions``. number: of the pass. noise: none at temperature 0.
    ``gumbel``: the id with the largest logit + temperature * Gumbel noise; its confidence is the softmax of the logits
    without noise (LLaDA). ``nucleus``: an id sampled with ``sampling``; its confidence is its probability among the
    candidates (Fast-dLLM v2). ``first`` is about the token of the prefill and adds nothing here.

    Raises NonFiniteError for NaN and +inf (``logits-non-finite``) and for a row of -inf (``logits-impossible``).
    """
    if np.isnan(logits).any() or (logits == np.inf).any():
        raise NonFiniteError("are not finite", kind="logits-non-finite", thing="logits")
    if np.isneginf(logits).all(axis=1).any():
        raise NonFiniteError("rule out every token", kind="logits-impossible", thing="logits", got="-inf throughout")
    if noise == "nucleus" and sampling.temperature > 0:
        return _drawn(logits, positions, number, sampling)
    scores = logits
    if noise == "gumbel" and sampling.temperature > 0:
        vocab = np.arange(logits.shape[1], dtype=np.uint64)
        index = (_index(positions, number) * np.uint64(logits.shape[1]))[:, None] + vocab
        with np.errstate(divide="ignore"):
            scores = logits - sampling.temperature * log(-log(uniform(sampling.seed, index)))
    tokens = likeliest(scores, last_ties)
    if confidence == "schraudolph":
        powers = schraudolph_exp(logits - np.max(logits, axis=1, keepdims=True))
        return tokens, powers[np.arange(len(tokens)), tokens] / pairwise_sum(powers)
    return tokens, probabilities(logits, tokens)


def _drawn(
    logits: np.ndarray, positions: Sequence[int], number: int, sampling: Sampling
) -> tuple[np.ndarray, np.ndarray]:
    tokens, sure = np.zeros(len(logits), np.int64), np.zeros(len(logits))
    for row, u in enumerate(uniform(sampling.seed, _index(positions, number))):
        ids, shares = candidates(logits[row], sampling, [])
        sums = np.cumsum(shares)
        chosen = np.searchsorted(sums, u * sums[-1], side="right")
        tokens[row], sure[row] = ids[chosen], shares[chosen]
    return tokens, sure


def _index(positions: Sequence[int], number: int) -> np.ndarray:
    """uint64 [rows]: a different number for each position and pass."""
    return np.asarray(positions, np.uint64) + np.uint64((number + 1) * MAX_CONTEXT)
