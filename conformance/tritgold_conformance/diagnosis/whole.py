"""Diagnosis from whole runs: statistics alone, or logits alone, where errors have cascaded through every layer.

Each candidate is run from the tokens on and compared with what the engine gave. Weaker than single operations: a fault
that a norm takes out again cannot be seen, two faults hide one another, and broken ties stand between equal models.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tritgold.errors import TritgoldError
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC
from tritgold_conformance.diagnosis.distance import geometric, relative
from tritgold_conformance.diagnosis.evidence import Evidence, moments
from tritgold_conformance.faults.fault import Subject
from tritgold_conformance.faults.faulty_engine import FaultyEngine
from tritgold_conformance.judge import cuts
from tritgold_conformance.spread import Coin

RUNS, FACTOR, FLOOR = 4, 4.0, 2e-5
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


def predicted_statistics(subject: Subject, tokens: list[int]) -> dict[str, np.ndarray]:
    """MOMENTS by trace name, of a fresh prefill."""
    with np.errstate(all="ignore"):
        arrays = FaultyEngine(subject, len(tokens)).trace(tokens).arrays
    return {name: moments(array) for name, array in arrays.items()}


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


def statistics_allowed(evidence: Evidence) -> np.ndarray:
    """How far the statistics of each array may be off where nothing but broken ties lies between two models.

    FACTOR x what breaking them at random does to the golden model's own, over RUNS runs; float64 by trace name.
    """
    golden, base = evidence.golden, {n: moments(a) for n, a in evidence.golden.trace.arrays.items()}
    worst = np.full(len(evidence.statistics), FLOOR)
    for run in range(RUNS):
        turned = Subject(golden.checkpoint, replace(GOLDEN_ARITHMETIC, quantize=Coin(run, GOLDEN_ARITHMETIC)))
        ours = predicted_statistics(turned, golden.tokens)
        r = np.array([moments_distance(ours.get(name), base[name]) for name in evidence.statistics])
        worst = np.maximum(worst, FACTOR * r)
    return worst


def summary(r: np.ndarray) -> float:
    """One number to rank by."""
    return geometric(r)


Measure = Callable[[Subject], np.ndarray]
_Key = tuple[str, tuple[str, ...]]


class Predictions:
    """What faulty golden models say on one input, remembered by the names of their faults: engines come and go."""

    def __init__(self, tokens: list[int]) -> None:
        self._tokens = tokens
        self._logits: dict[_Key, np.ndarray | None] = {}
        self._statistics: dict[tuple[str, ...], dict[str, np.ndarray]] = {}

    def logits(self, subject: Subject, path: str) -> np.ndarray | None:
        """float32 [tokens, vocab] on one of PATHS; None where the subject gives nothing."""
        key = (path, subject.names)
        if key not in self._logits:
            self._logits[key] = predicted_logits(subject, self._tokens, path)
        return self._logits[key]

    def statistics(self, subject: Subject) -> dict[str, np.ndarray]:
        """MOMENTS by trace name; those of a fresh prefill as far as it gets."""
        if subject.names not in self._statistics:
            try:
                self._statistics[subject.names] = predicted_statistics(subject, self._tokens)
            except (TritgoldError, ValueError):
                self._statistics[subject.names] = {}
        return self._statistics[subject.names]

    def measure(self, evidence: Evidence, level: str) -> Measure:
        """How far a subject is from the engine, at ``statistics`` by name, on one of PATHS by position: float64 [n].

        Infinite where one of the two gives nothing or something else.
        """

        def statistics(subject: Subject) -> np.ndarray:
            ours = self.statistics(subject)
            return np.array([moments_distance(ours.get(name), theirs) for name, theirs in evidence.statistics.items()])

        def logits(subject: Subject) -> np.ndarray:
            ours, theirs = self.logits(subject, level), getattr(evidence, level)
            if ours is None or ours.shape != theirs.shape:
                return np.full(len(theirs), np.inf)
            return relative(ours, theirs)

        return statistics if level == "statistics" else logits
