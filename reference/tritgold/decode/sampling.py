"""From logits to a token: the filters, in order, and a random draw that depends only on seed and position.

The order is that of Hugging Face's generate:

    1. repetition penalty   once for each id in the prompt or in the generated tokens: logit / penalty if the logit
                            is positive, else logit * penalty (arXiv 1909.05858)
    2. temperature          logits / temperature; at 0 the most likely token is taken, without a draw
    3. top-k                keeps the k most likely tokens; 0, or k >= the vocabulary, keeps all
    4. top-p                keeps the fewest most likely tokens whose probabilities sum to at least p (arXiv 1904.09751)
    5. draw                 the token in whose interval u * sum falls, with tokens in order of probability

At every tie the lowest id wins: for the maximum, at the limit of top-k and at the limit of top-p. Engines differ here:
some keep all tokens that tie with the k-th, some keep one token more in top-p if the sum is exactly p, some take the
last maximum. All arithmetic is float64 from ``tritgold.portable_math``, so the same logits and seed give the same token
on every machine. The draw for a position does not depend on the batch or on earlier draws, so a text that is continued
later gets the same tokens.
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

    temperature: 0 or more, finite. top_k: 0 or more. top_p: 0 to 1; 0 keeps only the most likely token.
    repetition_penalty: above 0, finite; 1 changes nothing, less than 1 favours repetition. seed: 0 to 2**64 - 1.
    text_ids: ids from this on have no text and are never chosen; 0: all ids may be chosen.

    Raises ConfigError (``sampling-option``) for anything else, including NaN.
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
    """The next token after ``history``, which is prompt and generated tokens, from the logits [vocab] after it.

    The index of the random number is len(history), the token's position. Raises as ``candidates`` does.

    >>> choose(np.array([0.0, 5.0, 5.0]), GREEDY, [7])
    1
    """
    tokens, probabilities = candidates(logits, sampling, history)
    if len(tokens) == 1:
        return int(tokens[0])
    shares = np.cumsum(probabilities)
    u = uniform(sampling.seed, np.array([len(history)], np.uint64))
    # u < 1, so u * sum is below the sum and falls into an interval. A token of probability 0 has an empty interval.
    return int(tokens[np.searchsorted(shares, u * shares[-1], side="right")[0]])


def candidates(logits: np.ndarray, sampling: Sampling, history: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """The possible next tokens, most likely first: ids int64 [n] and probabilities float64 [n], which sum to 1.

    logits: real [vocab]; -inf for an impossible token. history: ids whose repetition is penalised; ids outside the
    logits are ignored. At temperature 0 there is one candidate.

    Raises NonFiniteError for NaN or +inf (``logits-non-finite``) and if every token is impossible
    (``logits-impossible``), EngineError for logits that are not a vector (``logits-shape``).

    With weights 4, 2, 1, 1 the first two have the probability 6/8:

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
    with np.errstate(over="ignore"):  # a tiny temperature may give -inf, which is a weight of 0
        weights = exp((scores[order] - scores[order[0]]) / sampling.temperature)
    before = np.concatenate([[0.0], np.cumsum(weights)])
    kept = before[:-1] < sampling.top_p * before[-1]
    kept[0] = True
    order, weights = order[kept], weights[kept]
    return order, weights / pairwise_sum(weights)


def usable_logits(logits: np.ndarray, vocab: int = 0, rows: int | None = None) -> np.ndarray:
    """An engine's logits as a float64 copy, [vocab], or with ``rows`` [rows, vocab].

    vocab: the model's, beyond which padding is cut off; 0 keeps all. Raises EngineError (``logits-shape``) for other
    dimensions, too few tokens, and anything but real numbers.
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
    with np.errstate(over="ignore"):  # the caller refuses infinite values
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
