"""Activation statistics: a few numbers for each array, for a first look."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Statistics:
    """Of one array, over all its elements, in float64. zeros: share of exact zeros. finite: share of finite values.

    If a value is not finite, the moments are None: a mean that skips NaN would hide the problem. If an engine gives
    moments instead of arrays, moments that it did not give are None too, and finite is the share of finite moments.
    """

    mean: float | None
    std: float | None
    rms: float | None
    min: float | None
    max: float | None
    zeros: float | None
    finite: float


def statistics(array: np.ndarray) -> Statistics:
    """The statistics of an array; moments are None if an element is not finite. An empty array has finite = 0.

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


# The moments that are compared, in the order of the fields.
MOMENTS = ("mean", "std", "rms", "min", "max", "zeros")
Moments = Mapping[str, np.ndarray]


def moments(array: np.ndarray) -> np.ndarray:
    """MOMENTS of an array, float64 [6]; infinite if an element is not finite. NaN is reserved for moments not given."""
    found = statistics(array)
    return np.array([np.inf if (v := getattr(found, name)) is None else v for name in MOMENTS], np.float64)


def moments_distance(ours: Moments, theirs: Moments, few: Mapping[str, float] | None = None) -> np.ndarray:
    """The distance of the statistics of each array in ``theirs``, float64 [theirs]; MOMENTS by trace name.

    mean, std and rms relative to the larger rms, min and max relative to the larger extreme (one outlier does not
    change the mean); the share of zeros absolute, minus ``few`` of the array. Moments that are not given (NaN) are left
    out if ours is finite. If both are non-finite the distance is 0. It is infinite if only one is, and for an array
    that ours does not have.
    """
    nothing = np.full(6, np.nan)
    a = np.array([ours.get(name, nothing) for name in theirs]).reshape(-1, 6)
    b = np.array(list(theirs.values())).reshape(-1, 6)
    given = ~np.isnan(b)
    comparable = given.any(axis=1) & (np.isfinite(b) | ~given).all(axis=1) & ~np.isnan(a).all(axis=1)
    lost, theirs_lost = ~np.isfinite(a[:, :5]).all(axis=1), ~np.isfinite(b[:, :5]).any(axis=1)
    both_lost = lost & theirs_lost & ~np.isnan(a).all(axis=1)
    off = differences(a, b, np.array([(few or {}).get(name, 0.0) for name in theirs]))
    r = np.where(given, off, 0.0).max(axis=1)
    return np.where(both_lost, 0.0, np.where(comparable & ~lost, r, np.inf))


def differences(ours: np.ndarray, theirs: np.ndarray, few: np.ndarray | float = 0.0) -> np.ndarray:
    """|difference| of MOMENTS, float64 [..., 6], in the units of ``moments_distance``; NaN if theirs is not given.

    few: float64 [...], subtracted from the difference of the share of zeros. What is not finite has no size.
    """
    a, b = (np.where(np.isfinite(x), x, 0.0) for x in (ours, theirs))
    size = np.maximum(np.maximum(a[..., 2], b[..., 2]), 1e-30)
    extreme = np.maximum(np.maximum(np.abs(a[..., 3:5]).max(axis=-1), np.abs(b[..., 3:5]).max(axis=-1)), 1e-30)
    off = np.abs(a - theirs) / np.stack([size, size, size, extreme, extreme, np.ones_like(size)], axis=-1)
    off[..., 5] = np.maximum(off[..., 5] - few, 0.0)
    return off


def given_statistics(given: Mapping[str, float]) -> Statistics:
    """Statistics from moments by name; any of them may be missing.

    >>> given_statistics({"rms": 2.0, "max": float("nan")})
    Statistics(mean=None, std=None, rms=2.0, min=None, max=None, zeros=None, finite=0.5)
    """
    finite = {moment: value for moment in MOMENTS if np.isfinite(value := given.get(moment, np.nan))}
    share = len(finite) / max(sum(moment in given for moment in MOMENTS), 1)
    return Statistics(**{moment: finite.get(moment) for moment in MOMENTS}, finite=share)


def side_by_side(
    golden: Mapping[str, np.ndarray], trace: Mapping[str, object], given: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, Statistics]]:
    """name -> {"golden": ..., "engine": ...} for the arrays that both have, in execution order.

    The engine's are computed from its array, or from its own statistics if it does not give the array.
    """
    shown = {name: array for name in trace if (array := np.asarray(trace[name])).dtype.kind in "iuf"}
    said = {name: of for name, of in given.items() if not of.keys().isdisjoint(MOMENTS)}
    engine = {name: given_statistics(of) for name, of in said.items()} | {n: statistics(a) for n, a in shown.items()}
    return {name: {"golden": statistics(a), "engine": engine[name]} for name, a in golden.items() if name in engine}
