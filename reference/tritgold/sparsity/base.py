"""What all sparsity rules share: how much is kept, which entries are the largest, what is measured."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from tritgold.errors import ConfigError
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC, Arithmetic
from tritgold.option_values import MOST, is_count, real_number


@dataclass(frozen=True, eq=False)
class Sparse:
    """The result of a rule. values: the array. kept: number of non-zero entries. of: number of all entries."""

    values: np.ndarray
    kept: int
    of: int

    @property
    def sparsity(self) -> float:
        """The measured share of zeros, dropped by the rule or zero before; 0 for no entries."""
        return (self.of - self.kept) / self.of if self.of else 0.0


@dataclass
class Tally:
    """Counts over forward passes, by place: ``attn_in``, ``o_in``, ``ffn_in``, ``down_in``, ``probs``, ``products``."""

    kept: dict[str, int] = field(default_factory=dict)
    of: dict[str, int] = field(default_factory=dict)

    def add(self, place: str, kept: int, of: int) -> None:
        """Count ``of`` entries, of which ``kept`` are not zero."""
        self.kept[place] = self.kept.get(place, 0) + kept
        self.of[place] = self.of.get(place, 0) + of

    def sparsity(self, place: str | None = None) -> float:
        """The measured share of zeros at a place, or at all places; 0 if nothing was counted.

        >>> tally = Tally()
        >>> tally.add("o_in", kept=3, of=4)
        >>> tally.add("down_in", kept=1, of=4)
        >>> tally.sparsity("down_in"), tally.sparsity()
        (0.75, 0.5)
        """
        kept, of = (sum(c.values()) if place is None else c.get(place, 0) for c in (self.kept, self.of))
        return (of - kept) / of if of else 0.0


class SparsityRule(ABC):
    """A sparsity rule; its options are the fields of its dataclass. name: in SPARSITY_RULES."""

    name: ClassVar[str]

    @abstractmethod
    def arithmetic(self, base: Arithmetic = GOLDEN_ARITHMETIC, tally: Tally | None = None) -> Arithmetic:
        """``base`` with this rule; ``tally`` counts what the rule keeps."""

    def _bad(self, option: str, expected: str) -> ConfigError:
        got = repr(getattr(self, option))
        return ConfigError(
            "is not usable", kind="sparsity-option", thing=f"{self.name}: {option}", got=got, expected=expected
        )

    def _check_shares(self, *options: str) -> None:
        """Refuse shares that are not above 0 and at most 1: with 0 a layer would compute nothing."""
        for option in options:
            if not 0 < real_number(getattr(self, option)) <= 1:
                raise self._bad(option, "above 0, at most 1")

    def _check_count(self, option: str, least: int) -> None:
        if not is_count(getattr(self, option), least):
            raise self._bad(option, f"an integer, {least} to {MOST}")


def count_of(share: np.ndarray | float, n: np.ndarray | int) -> np.ndarray:
    """floor(share * n) in float64 (0.29 * 100 gives 28), but at least 1 and at most n: the number of entries to keep.

    >>> [int(count_of(0.29, 100)), int(count_of(0.001, 100)), int(count_of(1.0, 3))]
    [28, 1, 3]
    """
    return np.clip(np.floor(np.asarray(share, np.float64) * n).astype(np.int64), 1, n)


def largest(magnitudes: np.ndarray, counts: np.ndarray | int) -> np.ndarray:
    """A mask of the ``counts`` largest entries of each row; of equal ones the lower indices.

    magnitudes: real [..., n], not NaN. counts: integer [...], or one for all rows; more than n keeps the whole row.

    >>> largest(np.array([[1, 3, 3, 3], [5, 0, 0, 1]]), np.array([2, 1])).astype(int).tolist()
    [[0, 1, 1, 0], [1, 0, 0, 0]]
    """
    order = np.argsort(-magnitudes, axis=-1, kind="stable")
    chosen = np.arange(magnitudes.shape[-1]) < np.asarray(counts)[..., None]
    mask = np.zeros(magnitudes.shape, bool)
    np.put_along_axis(mask, order, np.broadcast_to(chosen, mask.shape), axis=-1)
    return mask
