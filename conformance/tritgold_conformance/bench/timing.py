"""Seconds of repeated work: median, percentiles, and the ratio of two lists that were measured in turn."""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """Seconds of one unit of work (a token, a prompt, a product). samples: how many were measured. low, high: the 95 %
    interval of the median, for six or more samples if they are independent; of fewer, the least and the most.
    """

    samples: int
    median: float
    p50: float
    p95: float
    p99: float
    least: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Timing":
        """Raises ValueError for an empty list, and for values that are not times: 0 or less, infinity, NaN.

        >>> Timing.of([3, 1, 2])
        Timing(samples=3, median=2, p50=2, p95=3, p99=3, least=1, low=1, high=3)
        """
        wrong = [s for s in seconds if not (math.isfinite(s) and s > 0)]
        if wrong or not seconds:
            raise ValueError(f"no seconds: {wrong[0] if wrong else 'none measured'}")
        p50, p95, p99 = (percentile(seconds, percent) for percent in (50, 95, 99))
        return cls(len(seconds), statistics.median(seconds), p50, p95, p99, min(seconds), *median_interval(seconds))


def median_interval(seconds: Sequence[float]) -> tuple[float, float]:
    """The k-th smallest and k-th largest, k as large as 95 % allow: each sample is above the median with chance 1/2.

    >>> median_interval(range(1, 6)), median_interval(range(1, 21))
    ((1, 5), (6, 15))
    """
    ordered, count, k, below = sorted(seconds), len(seconds), 1, 1
    while 2 * (below := below + math.comb(count, k)) <= 0.05 * 2**count and 2 * k < count:
        k += 1
    return ordered[k - 1], ordered[count - k]


def timed(work: Callable[[], object], times: int = 1) -> list[float]:
    """Seconds of each of ``times`` calls."""
    seconds = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return seconds


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least ``percent`` % of all do not exceed (nearest rank): always one that was measured.

    >>> [percentile(range(1, 101), percent) for percent in (50, 95, 99, 100)]
    [50, 95, 99, 100]
    """
    if not values or not 0 < percent <= 100:
        raise ValueError(f"no percentile {percent} of {len(values)} values")
    return sorted(values)[math.ceil(percent / 100 * len(values)) - 1]


def paired_ratio(theirs: Sequence[float], ours: Sequence[float]) -> float:
    """How many times faster ours is: the median over rounds of their seconds by ours in the same round.

    A machine that slows down for a while slows both sides of a round.

    >>> paired_ratio([2.0, 40.0, 2.0], [1.0, 10.0, 1.0])
    2.0
    """
    return statistics.median(t / o for t, o in zip(theirs, ours, strict=True))
