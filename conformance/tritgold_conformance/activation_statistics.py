"""Activation statistics: the few numbers per array that an engine's developer looks at first."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Statistics:
    """Of one array, over all its elements, in float64. zeros: share of exact zeros. finite: share of finite values.

    Where nothing is finite the moments are None: a mean that skips NaN would hide what it is there to show.
    """

    mean: float | None
    std: float | None
    rms: float | None
    min: float | None
    max: float | None
    zeros: float
    finite: float


def statistics(array: np.ndarray) -> Statistics:
    """The statistics of an array; moments are given only where every element is finite.

    >>> s = statistics(np.array([0.0, 3.0, -3.0, 4.0]))
    >>> s.mean, s.max, s.zeros, s.finite
    (1.0, 4.0, 0.25, 1.0)
    """
    x = np.asarray(array, np.float64)
    finite = float(np.isfinite(x).mean()) if x.size else 0.0
    zeros = float((x == 0).mean()) if x.size else 0.0
    if finite < 1.0:
        return Statistics(None, None, None, None, None, zeros, finite)
    rms = float(np.sqrt(np.mean(x * x)))
    return Statistics(float(x.mean()), float(x.std()), rms, float(x.min()), float(x.max()), zeros, finite)


# What statistics are compared by.
MOMENTS = ("mean", "std", "rms", "min", "max", "zeros")


def moments(array: np.ndarray) -> np.ndarray:
    """MOMENTS of an array, float64 [6]; NaN for moments of what is not finite."""
    found = statistics(array)
    return np.array([np.nan if (v := getattr(found, name)) is None else v for name in MOMENTS], np.float64)


def moments_distance(ours: np.ndarray | None, theirs: np.ndarray) -> float:
    """mean, std, rms, min and max relative to the larger of rms and the extremes; the share of zeros as it is.

    Moments that the engine does not give (NaN) are left out where ours is finite; both non-finite is equal.
    """
    if ours is None:
        return np.inf
    if not np.isfinite(ours[:5]).all():
        return 0.0 if not np.isfinite(theirs[:5]).any() else np.inf
    given = np.isfinite(theirs)
    if not given.any():
        return np.inf
    return float(differences(ours, theirs)[given].max())


def differences(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """|difference| of each of MOMENTS in the units of ``moments_distance``; NaN where one is not given."""
    # The moments by rms, extremes by their own size: one outlier moves no mean.
    size = max(float(np.nan_to_num(theirs[2])), float(ours[2]), 1e-30)
    extreme = max(float(np.abs(np.nan_to_num(theirs[3:5])).max()), float(np.abs(ours[3:5]).max()), 1e-30)
    return np.abs(ours - theirs) / np.array([size, size, size, extreme, extreme, 1.0])


def side_by_side(golden: Mapping[str, np.ndarray], engine: Mapping[str, object]) -> dict[str, dict[str, Statistics]]:
    """name -> {"golden": ..., "engine": ...} for the arrays that both have, in execution order."""
    return {
        name: {"golden": statistics(array), "engine": statistics(np.asarray(engine[name]))}
        for name, array in golden.items()
        if name in engine and np.asarray(engine[name]).dtype.kind in "iuf"
    }
