"""Diagnosis from whole runs: statistics alone, or logits alone, where errors have cascaded through every layer.

Each candidate is run from the tokens on and compared with what the engine gave. Weaker than single operations: a fault
that a norm takes out again cannot be seen, two faults hide one another, and broken ties stand between equal models.
"""

from collections.abc import Callable

import numpy as np

from tritgold.errors import TritgoldError
from tritgold_conformance.diagnosis.distance import geometric, relative
from tritgold_conformance.diagnosis.evidence import Evidence, moments
from tritgold_conformance.faults.fault import Subject
from tritgold_conformance.faults.faulty_engine import FaultyEngine
from tritgold_conformance.judge import cuts

PATHS = ("logits", "continued", "steps")


def predicted_logits(subject: Subject, tokens: list[int], path: str) -> np.ndarray | None:
    """What the subject says on one path; None where it cannot (something is not finite)."""
    engine = FaultyEngine(subject, len(tokens))
    cut, end = cuts(len(tokens))
    pieces = {
        "logits": [tokens],
        "continued": [tokens[:cut], tokens[cut:end], *([t] for t in tokens[end:])],
        "steps": [[t] for t in tokens],
    }[path]
    try:
        with np.errstate(all="ignore"):
            return np.concatenate([engine.prefill(piece) for piece in pieces if piece])
    except (TritgoldError, ValueError):
        return None


def logits_distance(subject: Subject, evidence: Evidence, path: str) -> np.ndarray:
    """By position, float64 [tokens]; infinite where the subject gives nothing."""
    theirs = getattr(evidence, path)
    ours = predicted_logits(subject, evidence.golden.tokens, path)
    if ours is None or ours.shape != theirs.shape:
        return np.full(len(theirs), np.inf)
    return relative(ours, theirs)


def predicted_statistics(subject: Subject, tokens: list[int]) -> dict[str, np.ndarray]:
    """MOMENTS by trace name, of a fresh prefill."""
    with np.errstate(all="ignore"):
        arrays = FaultyEngine(subject, len(tokens)).trace(tokens).arrays
    return {name: moments(array) for name, array in arrays.items()}


def statistics_distance(subject: Subject, evidence: Evidence) -> np.ndarray:
    """By trace name, in execution order: the largest difference of a moment, in units of the engine's rms."""
    try:
        ours = predicted_statistics(subject, evidence.golden.tokens)
    except (TritgoldError, ValueError):
        ours = {}
    return np.array([moments_distance(ours.get(name), theirs) for name, theirs in evidence.statistics.items()])


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
    # The moments by rms, extremes by their own size: one outlier moves no mean.
    size = max(float(np.nan_to_num(theirs[2])), float(ours[2]), 1e-30)
    extreme = max(float(np.abs(np.nan_to_num(theirs[3:5])).max()), float(np.abs(ours[3:5]).max()), 1e-30)
    units = np.array([size, size, size, extreme, extreme, 1.0])
    return float((np.abs(ours - theirs) / units)[given].max())


def summary(r: np.ndarray) -> float:
    """One number to rank by."""
    return geometric(r)


Measure = Callable[[Subject], np.ndarray]


def measure(evidence: Evidence, level: str) -> Measure:
    """How far a subject is from the engine at ``statistics`` or on one of PATHS."""
    if level == "statistics":
        return lambda subject: statistics_distance(subject, evidence)
    return lambda subject: logits_distance(subject, evidence, level)
