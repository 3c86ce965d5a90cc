"""Which masked tokens a pass decides, by their confidence (probability): one class per rule.

Every rule except ``Leftmost`` decides the most probable ones and computes how many; at least one, so that decoding
always ends. Positions of equal probability are taken in order, or in reverse order (``last_ties``).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from tritgold.errors import ConfigError
from tritgold.option_values import real_number
from tritgold.options import bad_threshold


class Rule(ABC):
    """How a pass chooses among the masked tokens of a sub-block. Immutable."""

    @abstractmethod
    def count(self, surest: np.ndarray, step: int) -> int:
        """How many of the tokens are decided. surest: float64 [masked], probabilities in descending order."""

    def decided(self, sure: np.ndarray, step: int, last_ties: bool = False) -> np.ndarray:
        """bool [masked]: which are decided. sure: float64 [masked], probabilities by position. step: earlier passes.

        >>> Thresholds((0.5,)).decided(np.array([0.4, 0.6, 0.5]), step=0).tolist()
        [False, True, False]
        >>> Thresholds((1.0,)).decided(np.array([0.4, 0.6, 0.6]), step=0, last_ties=True).tolist()
        [False, False, True]
        """
        order = (
            len(sure) - 1 - np.argsort(-sure[::-1], kind="stable") if last_ties else np.argsort(-sure, kind="stable")
        )
        chosen = np.zeros(len(sure), bool)
        chosen[order[: max(1, self.count(sure[order], step))]] = True
        return chosen


@dataclass(frozen=True)
class Thresholds(Rule):
    """All tokens whose probability is above a threshold, and always the most probable token.

    values: the threshold of the first pass, of the second ...; the last one is used for all further passes. 0 decides
    all tokens at once, 1 decides one per pass. inclusive: a probability equal to the threshold is enough (Fast-dLLM
    v1), so with 1 all tokens with a probability of exactly 1 in float64 are decided.

    Raises ConfigError (``threshold``) if there is no value, or one that is not from 0 to 1.
    """

    values: tuple[float, ...] = (0.9,)
    inclusive: bool = False

    def __post_init__(self) -> None:
        if (
            not isinstance(self.values, tuple)
            or not self.values
            or not all(0 <= real_number(v) <= 1 for v in self.values)
        ):
            raise bad_threshold(self.values)

    def count(self, surest: np.ndarray, step: int) -> int:
        """The number of probabilities above the pass's threshold."""
        threshold = self.values[min(step, len(self.values) - 1)]
        return int(np.sum(surest >= threshold if self.inclusive else surest > threshold))


CAREFUL = Thresholds()  # the default


@dataclass(frozen=True)
class Factor(Rule):
    """The most probable tokens, as long as the k-th has a probability of at least 1 - factor / (k + 1) (Fast-dLLM v1).

    accepts_last: a defect of the released program: if only the last of all tokens fails, it is decided too.
    Raises ConfigError (``threshold``) for a factor that is not positive.

    With factor 1 the second token needs 2/3 and the third 3/4:

    >>> Factor(1.0).count(np.array([0.9, 0.7, 0.7]), step=0), Factor(1.0, True).count(np.array([0.9, 0.7, 0.7]), step=0)
    (2, 3)
    """

    factor: float = 1.0
    accepts_last: bool = False

    def __post_init__(self) -> None:
        if not real_number(self.factor) > 0:
            got = repr(self.factor)
            raise ConfigError("is not usable", kind="threshold", thing="factor", got=got, expected="a number above 0")

    def count(self, surest: np.ndarray, step: int) -> int:
        """The number of tokens, in order of probability, before the first that misses its threshold; at least one."""
        reached = surest >= 1 - self.factor / (np.arange(len(surest)) + 2)
        reached[0] = True
        if reached.all() or (self.accepts_last and reached[:-1].all()):
            return len(surest)
        return int(np.argmin(reached))


@dataclass(frozen=True)
class Steps(Rule):
    """A fixed number of passes per block: m tokens in ``steps`` shares of m // steps, the first m % steps one larger.

    Raises ConfigError (``steps``) if steps is not an integer from 1.

    >>> [Steps(3).count(np.zeros(masked), step) for step, masked in enumerate([8, 5, 2])]
    [3, 3, 2]
    """

    steps: int

    def __post_init__(self) -> None:
        if type(self.steps) is not int or self.steps < 1:
            raise ConfigError("is not usable", kind="steps", thing="steps", got=self.steps, expected="1 or more")

    def count(self, surest: np.ndarray, step: int) -> int:
        """The remaining tokens / the remaining passes, rounded up."""
        return -(-len(surest) // max(1, self.steps - step))


@dataclass(frozen=True)
class Leftmost(Rule):
    """Only the first masked token: with causal attention and token shift this is greedy decoding."""

    def count(self, surest: np.ndarray, step: int) -> int:
        """1."""
        return 1

    def decided(self, sure: np.ndarray, step: int, last_ties: bool = False) -> np.ndarray:
        """True for the first token only."""
        return np.arange(len(sure)) == 0
