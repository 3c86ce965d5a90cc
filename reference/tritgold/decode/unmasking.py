"""Which masked tokens a pass decides, by how sure the model is of each: one rule a class.

Every rule but ``Leftmost`` takes the surest first and says how many; at least one, so that each pass gets further.
Positions of the same probability stand in their order, or in the opposite one (``last_ties``).
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
        """How many of the tokens are decided. surest: float64 [masked], probabilities from the largest down."""

    def decided(self, sure: np.ndarray, step: int, last_ties: bool = False) -> np.ndarray:
        """bool [masked]. sure: float64 [masked], probabilities by position; step: passes made over them before.

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
    """All tokens whose probability is above a threshold, and the likeliest whatever its probability.

    values: the threshold of the first pass, of the second ...; the last is that of every further pass. At 0 all are
    decided at once, at 1 one a pass. inclusive: a probability of exactly the threshold is enough (Fast-dLLM v1), so at
    1 whatever is certain to the last bit of float64 is decided with the likeliest.

    Raises ConfigError (``threshold``) for none at all, and for one that is not from 0 to 1.
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
        """Those above the pass's threshold."""
        threshold = self.values[min(step, len(self.values) - 1)]
        return int(np.sum(surest >= threshold if self.inclusive else surest > threshold))


CAREFUL = Thresholds()  # the default


@dataclass(frozen=True)
class Factor(Rule):
    """The k surest, as long as the k-th has a probability of at least 1 - factor / (k + 1) (Fast-dLLM v1).

    accepts_last: a defect of the released program: where only the last of all fails, it is decided too.
    Raises ConfigError (``threshold``) for a factor that is not positive.

    With factor 1 the second needs 2/3 and the third 3/4:

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
        """The longest run from the surest on that reaches its thresholds; the first always does."""
        reached = surest >= 1 - self.factor / (np.arange(len(surest)) + 2)
        reached[0] = True
        if reached.all() or (self.accepts_last and reached[:-1].all()):
            return len(surest)
        return int(np.argmin(reached))


@dataclass(frozen=True)
class Steps(Rule):
    """A fixed number of passes a block: m tokens in shares of m // steps, the first m % steps of them one larger.

    Raises ConfigError (``steps``) for less than one step.

    >>> [Steps(3).count(np.zeros(masked), step) for step, masked in enumerate([8, 5, 2])]
    [3, 3, 2]
    """

    steps: int

    def __post_init__(self) -> None:
        if type(self.steps) is not int or self.steps < 1:
            raise ConfigError("is not usable", kind="steps", thing="steps", got=self.steps, expected="1 or more")

    def count(self, surest: np.ndarray, step: int) -> int:
        """The share of this pass, which the tokens left and the passes left decide."""
        return -(-len(surest) // max(1, self.steps - step))


@dataclass(frozen=True)
class Leftmost(Rule):
    """The first masked token and no other: with causal attention and token shift this is greedy decoding."""

    def count(self, surest: np.ndarray, step: int) -> int:
        """One."""
        return 1

    def decided(self, sure: np.ndarray, step: int, last_ties: bool = False) -> np.ndarray:
        """The first."""
        return np.arange(len(sure)) == 0
