"""Diagnosis from whole runs: statistics alone, or logits alone, where errors have cascaded through every layer.

Each candidate is run from the tokens on and compared with what the engine gave. Weaker than single operations: a fault
that a norm takes out again cannot be seen, two faults hide one another, and broken ties stand between equal models.
"""

from collections.abc import Callable

import numpy as np

from tritgold.errors import TritgoldError
from tritgold_conformance.activation_statistics import moments, moments_distance
from tritgold_conformance.diagnosis.distance import geometric, relative
from tritgold_conformance.diagnosis.evidence import Evidence
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


def predicted_statistics(subject: Subject, tokens: list[int]) -> dict[str, np.ndarray]:
    """MOMENTS by trace name, of a fresh prefill."""
    with np.errstate(all="ignore"):
        arrays = FaultyEngine(subject, len(tokens)).trace(tokens).arrays
    return {name: moments(array) for name, array in arrays.items()}


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
