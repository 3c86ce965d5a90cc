"""How a request's next token is chosen, and the log-probabilities that it shows.

The log-probabilities are the log-softmax, in float64, of the model's logits before penalties, biases, temperature and
filters. The token is chosen in this order: presence and frequency penalties, logit bias, min-p, and then the steps of
``tritgold.decode.sampling``. Nothing here depends on other requests.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tritgold.config import ModelConfig
from tritgold.decode.autoregressive import possible
from tritgold.decode.sampling import GREEDY, Sampling, choose
from tritgold_conformance.comparing.logits import log_softmax


class Shown(NamedTuple):
    """The log-probability of a token, and of the most likely ids: most likely first, of equal ones the lowest id.

    ids: int32 [shown]; logprobs: float64 [shown]. Arrays, because a vocabulary of Python numbers at each token of many
    texts would need gigabytes.
    """

    token: int
    logprob: float
    ids: np.ndarray
    logprobs: np.ndarray

    @property
    def top(self) -> list[tuple[int, float]]:
        """(id, log-probability) of each."""
        return list(zip(self.ids.tolist(), self.logprobs.tolist(), strict=True))


@dataclass(frozen=True)
class Choosing:
    """The options of a request that change which token is chosen.

    presence, frequency: subtracted from the logit of a token that was generated already, once, and once for each time.
    bias: added to logits, by id. min_p: tokens with a probability below ``min_p`` times the largest are left out.
    shown: how many of the most likely tokens are shown with each token; None: no log-probabilities at all.
    """

    sampling: Sampling = GREEDY
    presence: float = 0.0
    frequency: float = 0.0
    bias: Mapping[int, float] = field(default_factory=dict)
    min_p: float = 0.0
    shown: int | None = None


class Chooser:
    """The ``choose`` and ``hear`` of one text, for ``Request``. newest: log-probabilities of the last token.

    read: log-probabilities of the prompt's tokens, from the second one on.
    """

    def __init__(self, choosing: Choosing, config: ModelConfig, prompt: Sequence[int]) -> None:
        self.choosing, self._config, self._prompt = choosing, config, prompt
        self._counts = Counter[int]()
        self._biased = np.fromiter(choosing.bias, np.int64)
        self._bias = np.fromiter(choosing.bias.values(), np.float64)
        self.newest: Shown | None = None
        self.read: list[Shown] = []

    def choose(self, logits: np.ndarray, text: Sequence[int]) -> int:
        """The token after ``text``. logits: float32 [vocab]. Raises NonFiniteError if no token has a finite logit."""
        c = self.choosing
        scores = possible(logits, self._config)
        self._change(scores)
        token = choose(scores, c.sampling, text)
        self._counts[token] += 1
        self.newest = None if c.shown is None else shown(logits[: self._config.vocab], token, c.shown)
        return token

    def hear(self, start: int, logits: np.ndarray) -> None:
        """Receive the logits [tokens, vocab] at the prompt's tokens from ``start`` on.

        Those at the last token of the prompt are not kept: they belong to the first generated token.
        """
        for position, row in enumerate(logits, start + 1):
            if position < len(self._prompt):
                self.read.append(shown(row[: self._config.vocab], self._prompt[position], self.choosing.shown or 0))

    def _change(self, scores: np.ndarray) -> None:
        c = self.choosing
        if self._counts and (c.presence or c.frequency):
            seen = np.fromiter(self._counts, np.int64)
            times = np.fromiter(self._counts.values(), np.float64)
            scores[seen] -= c.presence + c.frequency * times
        scores[self._biased] += self._bias
        if c.min_p:
            scores[scores < np.max(scores) + np.log(c.min_p)] = -np.inf


def shown(logits: np.ndarray, token: int, count: int) -> Shown:
    """The log-softmax of finite logits [vocab] at ``token``, and at the ``count`` most likely ids.

    >>> shown(np.log([1.0, 2.0, 1.0]), 0, 2).top
    [(1, -0.6931471805599453), (0, -1.3862943611198906)]
    """
    scores = log_softmax(logits)
    among = np.arange(scores.size)
    if 0 < count < scores.size:  # sorting a few is many times faster than sorting a vocabulary
        among = np.flatnonzero(scores >= np.partition(scores, -count)[-count])
    likeliest = among[np.argsort(-scores[among], kind="stable")[:count]]
    return Shown(token, float(scores[token]), likeliest.astype(np.int32), scores[likeliest])
