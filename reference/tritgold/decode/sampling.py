"""From logits to a token: the filters in their order, and a draw that depends on seed and position alone.

In this order, which is that of Hugging Face's generate:

    1. repetition penalty   each id that stands in the prompt or in what was generated, once: logit / penalty where it
                            is positive, logit * penalty otherwise (arXiv 1909.05858)
    2. temperature          logits / temperature; at 0 the likeliest token is taken and nothing is drawn
    3. top-k                the k likeliest tokens; 0, or as many as the vocabulary, keeps all
    4. top-p                of these the fewest likeliest whose probabilities add up to at least p (arXiv 1904.09751)
    5. the draw             token i where u * sum falls into its share, tokens in order of likelihood

The lowest id wins every tie: among the likeliest, at the edge of top-k and at the edge of top-p. Engines differ here:
some keep every tie of the k-th token, some drop from top-p only what lies beyond more than p, some take the last
maximum. Everything is float64 from ``tritgold.portable_math``, so the same logits and seed give the same token on every
machine; the draw for a position knows neither the batch nor what was drawn before, and a text continued later continues
with the same tokens.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tritgold.counter_random import MAX_SEED, uniform
from tritgold.errors import ConfigError, EngineError, NonFiniteError
from tritgold.option_values import MOST, is_count, real_number
from tritgold.portable_math import exp, pairwise_sum


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen. The defaults are greedy decoding.

    temperature: 0 or more, finite. top_k: 0 or more. top_p: 0 to 1; at 0 the likeliest token alone is kept.
    repetition_penalty: above 0, finite; 1 changes nothing, less than 1 invites repetition. seed: 0 to 2**64 - 1.
    text_ids: ids from this on have no text and never come, however likely; 0 where all may.

    Raises ConfigError (``sampling-option``) for anything else, NaN among it.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int = 0
    text_ids: int = 0

    def __post_init__(self) -> None:
        self._check("temperature", 0 <= real_number(self.temperature) < math.inf, "a number, 0 or more, finite")
        self._check("top_k", is_count(self.top_k), f"an integer, 0 to {MOST}")
        self._check("top_p", 0 <= real_number(self.top_p) <= 1, "a number, 0 to 1")
        self._check(
            "repetition_penalty", 0 < real_number(self.repetition_penalty) < math.inf, "a number above 0, finite"
        )
        self._check("text_ids", is_count(self.text_ids), f"an integer, 0 to {MOST}")
        self._check("seed", is_count(self.seed, 0, MAX_SEED), f"an integer, 0 to {MAX_SEED}")

    def _check(self, name: str, usable: bool, expected: str) -> None:
        if not usable:
            got = repr(getattr(self, name))
            raise ConfigError("is not usable", kind="sampling-option", thing=name, got=got, expected=expected)


GREEDY = Sampling()


def choose(logits: np.ndarray, sampling: Sampling, history: Sequence[int]) -> int:
    """The token that follows ``history``, prompt and generated tokens alike, by the logits [vocab] after it.

    Its number in the sequence, len(history), is the index of the random number. Raises what ``candidates`` raises.

    >>> choose(np.array([0.0, 5.0, 5.0]), GREEDY, [7])
    1
    """
    tokens, probabilities = candidates(logits, sampling, history)
    if len(tokens) == 1:
        return int(tokens[0])
    shares = np.cumsum(probabilities)
    u = uniform(sampling.seed, np.array([len(history)], np.uint64))
    # u < 1, so u * sum is below the sum: some share ends after it. A token of probability 0 has no share to hit.
    return int(tokens[np.searchsorted(shares, u * shares[-1], side="right")[0]])


def candidates(logits: np.ndarray, sampling: Sampling, history: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """The tokens that may follow, likeliest first: ids int64 [n], and their probabilities float64 [n], which sum to 1.

    logits: real [vocab]; -inf is a token that cannot come. history: ids whose repetition is penalised; those outside
    the logits are passed over. At temperature 0 there is one candidate.

    Raises NonFiniteError for NaN or +inf (``logits-non-finite``) and where no token can come (``logits-impossible``),
    EngineError for logits that are not a vector (``logits-shape``).

    Weights 4, 2, 1, 1: the first two make up 6/8.

    >>> logits = np.log([1.0, 2.0, 1.0, 4.0])
    >>> ids, shares = candidates(logits, Sampling(temperature=1, top_p=0.7), [])
    >>> ids.tolist(), shares.round(4).tolist()
    ([3, 1], [0.6667, 0.3333])
    """
    scores = _possible(_penalised(usable_logits(logits), sampling.repetition_penalty, history))
    if sampling.text_ids:
        scores[sampling.text_ids :] = -np.inf
        _possible(scores)
    if sampling.temperature == 0:
        return np.array([np.argmax(scores)]), np.ones(1)
    order = np.argsort(-scores, kind="stable")  # stable: ties stay in the order of their ids
    order = order[: sampling.top_k or None]
    with np.errstate(over="ignore"):  # far below the likeliest, at a tiny temperature: -inf, a weight of 0
        weights = exp((scores[order] - scores[order[0]]) / sampling.temperature)
    before = np.concatenate([[0.0], np.cumsum(weights)])
    kept = before[:-1] < sampling.top_p * before[-1]
    kept[0] = True
    order, weights = order[kept], weights[kept]
    return order, weights / pairwise_sum(weights)


def usable_logits(logits: np.ndarray, vocab: int = 0, rows: int | None = None) -> np.ndarray:
    """What an engine gave as float64 of its own, [vocab], or with ``rows`` [rows, vocab].

    vocab: the model's, beyond which an engine's padding is cut off; 0: as many as there are. Raises EngineError
    (``logits-shape``) for other dimensions, too few tokens, and what are not real numbers.
    """
    logits = np.asarray(logits)
    leading = () if rows is None else (rows,)
    fits = logits.ndim == len(leading) + 1 and logits.shape[:-1] == leading and logits.shape[-1] >= max(vocab, 1)
    if not fits or logits.dtype.kind not in "fiu":
        got, size = f"{logits.dtype} {list(logits.shape)}", f"{vocab} or more" if vocab else "vocab"
        expected = f"[{size}]" if rows is None else f"[{rows}, {size}]"
        raise EngineError("logits are not one number a token", kind="logits-shape", got=got, expected=expected)
    return logits[..., : vocab or None].astype(np.float64)


def _penalised(scores: np.ndarray, penalty: float, history: Sequence[int]) -> np.ndarray:
    seen = np.unique(np.asarray(history, np.int64))
    seen = seen[(seen >= 0) & (seen < len(scores))]
    was = scores[seen]
    with np.errstate(over="ignore"):  # what becomes infinite here is refused next
        scores[seen] = np.where(was > 0, was / penalty, was * penalty)
    return scores


def _possible(scores: np.ndarray) -> np.ndarray:
    wrong = np.flatnonzero(np.isnan(scores) | (scores == np.inf))
    if wrong.size:
        got = f"{scores[wrong[0]]} for token {wrong[0]}"
        raise NonFiniteError("are not finite", kind="logits-non-finite", thing="logits", got=got)
    if np.isneginf(scores).all():
        raise NonFiniteError("rule out every token", kind="logits-impossible", thing="logits", got="-inf throughout")
    return scores
