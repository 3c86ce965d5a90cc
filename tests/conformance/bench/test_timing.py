"""Medians and percentiles are exact, and no time is invented."""

import math

import pytest

from tritgold_conformance.bench.timing import Timing, paired_ratio, percentile


def test_statistics_of_known_seconds() -> None:
    seconds = [float(n) for n in range(100, 0, -1)]
    assert Timing.of(seconds) == Timing(samples=100, median=50.5, p50=50, p95=95, p99=99, least=1, low=40, high=61)
    assert Timing.of([2.0]) == Timing(1, 2, 2, 2, 2, 2, 2, 2)
    assert Timing.of([1.0, 4.0, 2.0, 3.0]).median == 2.5


@pytest.mark.parametrize("seconds", [[], [1.0, 0.0], [1.0, -1.0], [math.nan], [1.0, math.inf]])
def test_what_is_no_time_is_refused(seconds: list[float]) -> None:
    with pytest.raises(ValueError, match="no seconds"):
        Timing.of(seconds)


def test_a_percentile_is_one_that_was_measured() -> None:
    values = [5.0, 1.0, 3.0]
    assert [percentile(values, share) for share in (1, 33, 34, 66, 67, 100)] == [1, 1, 3, 3, 5, 5]
    for share in (0, -1, 101):
        with pytest.raises(ValueError, match="percentile"):
            percentile(values, share)
    with pytest.raises(ValueError, match="percentile"):
        percentile([], 50)


def test_the_ratio_is_that_of_rounds() -> None:
    """One round that was disturbed on one side, one on both."""
    assert paired_ratio([3.0, 30.0, 3.0, 9.0, 3.0], [2.0, 20.0, 2.0, 2.0, 2.0]) == 1.5
    with pytest.raises(ValueError, match="zip"):
        paired_ratio([1.0], [1.0, 2.0])
