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


def side_by_side(golden: Mapping[str, np.ndarray], engine: Mapping[str, object]) -> dict[str, dict[str, Statistics]]:
    """name -> {"golden": ..., "engine": ...} for the arrays that both have, in execution order."""
    return {
        name: {"golden": statistics(array), "engine": statistics(np.asarray(engine[name]))}
        for name, array in golden.items()
        if name in engine and np.asarray(engine[name]).dtype.kind in "iuf"
    }
