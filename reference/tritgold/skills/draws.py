"""Numbers for questions: drawn one after the other from a seed and a stream, the same on every machine."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np

from tritgold.counter_random import random_bits

T = TypeVar("T")
_AT_ONCE = 4096


class Draws:
    """Uniform numbers of ``seed`` from place ``stream * 2**32`` of the counter on: streams never meet.

    >>> draws, again = Draws(1, 2), Draws(1, 2)
    >>> [draws.below(10) for _ in range(5)] == [again.below(10) for _ in range(5)]
    True
    """

    def __init__(self, seed: int, stream: int) -> None:
        self._seed, self._next = seed, stream << 32
        self._left: Iterator[int] = iter(())

    def below(self, count: int) -> int:
        """0 to count - 1. The remainder of 64 bits: for counts under a million the bias is below 1e-13."""
        for bits in self._left:
            return bits % count
        index = np.arange(self._next, self._next + _AT_ONCE, dtype=np.uint64)
        self._next += _AT_ONCE
        self._left = iter(random_bits(self._seed, index).tolist())
        return self.below(count)

    def between(self, low: int, high: int) -> int:
        """Low to high, both included."""
        return low + self.below(high - low + 1)

    def pick(self, of: Sequence[T]) -> T:
        """One of them."""
        return of[self.below(len(of))]

    def some(self, of: Sequence[T], count: int) -> list[T]:
        """``count`` different ones, in an order that is drawn too."""
        left = list(of)
        return [left.pop(self.below(len(left))) for _ in range(count)]
