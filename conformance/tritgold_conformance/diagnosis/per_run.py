"""Diagnosis from whole runs: statistics alone, or logits alone, where errors have spread through every layer.

Each candidate is run from the tokens on and compared with the engine's outputs. Weaker than single operations: a norm
can hide a fault, two faults can hide one another, and broken ties make equal models differ.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from tritgold.errors import TritgoldError
from tritgold_conformance.comparing.activation_statistics import moments, moments_distance
from tritgold_conformance.comparing.next_tokens import floored
from tritgold_conformance.comparing.statistics_bounds import RUNS, allowed_by_moves, counted
from tritgold_conformance.comparing.tie_sensitivity import allowed_by_spread, moved_otherwise
from tritgold_conformance.contract.session import cuts
from tritgold_conformance.diagnosis.distance import geometric, relative
from tritgold_conformance.diagnosis.rules import Allowed
from tritgold_conformance.diagnosis.view import View
from tritgold_conformance.faults.fault import Mutant
from tritgold_conformance.faults.faulty_engine import FaultyEngine
from tritgold_conformance.faults.quick import quick
from tritgold_conformance.golden.run import GoldenRun

PATHS = ("logits", "continued", "steps")
# Errors of a candidate: values that are not finite, or faults that do not fit together (sums by block and whole).
CANNOT_RUN = (TritgoldError, ValueError, IndexError, TypeError)


def predicted_logits(mutant: Mutant, tokens: list[int], path: str) -> np.ndarray | None:
    """The mutant's logits on one path; None if it cannot run: not finite, or faults that do not fit together."""
    engine = FaultyEngine(mutant, len(tokens))
    cut, end = cuts(len(tokens))
    pieces = {
        "logits": [tokens],
        "continued": [tokens[:cut], tokens[cut:end], *([t] for t in tokens[end:])],
        "steps": [[t] for t in tokens],
    }[path]
    try:
        with np.errstate(all="ignore"):
            return np.concatenate([engine.prefill(piece) for piece in pieces if piece])
    except CANNOT_RUN:
        return None


def predicted_statistics(mutant: Mutant, tokens: list[int]) -> dict[str, np.ndarray]:
    """MOMENTS by trace name, of a new prefill."""
    with np.errstate(all="ignore"):
        arrays = FaultyEngine(mutant, len(tokens)).trace(tokens).arrays
    return {name: moments(array) for name, array in arrays.items()}


def summary(r: np.ndarray) -> float:
    """One number for ranking."""
    return geometric(r)


Measure = Callable[[Mutant], np.ndarray]
_Key = tuple[str, tuple[str, ...]]
REMEMBERED = 512  # predictions of mutants with several faults


class Predictions:
    """The golden model's outputs for one input, without and with faults, kept for several engines.

    base: the golden model, in the run's arithmetic and optimised for speed. tolerances: of its operations. few: allowed
    differences of its shares of zeros. For mutants with one fault everything is kept; for others only the newest.
    """

    def __init__(self, golden: GoldenRun) -> None:
        self.golden, self.base = golden, quick(golden.checkpoint, golden.arithmetic)
        self.tolerances: Allowed = {}
        self.few = counted(golden)
        self._logits: dict[_Key, np.ndarray | None] = {}
        self._statistics: dict[_Key, dict[str, np.ndarray]] = {}
        self._spread: float | None = None
        self._moved: list[dict[str, np.ndarray]] = []

    def logits(self, mutant: Mutant, path: str) -> np.ndarray | None:
        """float32 [tokens, vocab] on one of PATHS; None if the mutant cannot run."""
        key = (path, mutant.names)
        if key not in self._logits:
            _forget(self._logits)
            self._logits[key] = predicted_logits(mutant, self.golden.tokens, path)
        return self._logits[key]

    def statistics(self, mutant: Mutant) -> dict[str, np.ndarray]:
        """MOMENTS by trace name, of a new prefill; empty if the mutant cannot run."""
        key = ("statistics", mutant.names)
        if key not in self._statistics:
            _forget(self._statistics)
            try:
                self._statistics[key] = predicted_statistics(mutant, self.golden.tokens)
            except CANNOT_RUN:
                self._statistics[key] = {}
        return self._statistics[key]

    def spread(self) -> float:
        """How much logits may differ because of broken ties alone (``tie_sensitivity.allowed_by_spread``)."""
        if self._spread is None:
            self._spread = allowed_by_spread(self.golden)
        return self._spread

    def statistics_allowed(self, names: Iterable[str]) -> np.ndarray:
        """The same for the statistics of each array, float64 [names]: ``statistics_allowed``, from the fast model."""
        if not self._moved:
            self._moved = [predicted_statistics(self._turned(run), self.golden.tokens) for run in range(RUNS)]
        own = self.statistics(self.base)
        return allowed_by_moves({name: own[name] for name in names}, self._moved)

    def _turned(self, run: int) -> Mutant:
        golden = replace(self.golden, arithmetic=self.base.arithmetic)
        return replace(self.base, arithmetic=moved_otherwise(golden, run))

    def measure(self, evidence: View, level: str) -> Measure:
        """A function: mutant -> distance to the engine, float64 [n]; by name for ``statistics``, otherwise by position.

        Infinite if one of both gives nothing or another shape.
        """

        def statistics(mutant: Mutant) -> np.ndarray:
            return moments_distance(self.statistics(mutant), evidence.statistics, self.few)

        def logits(mutant: Mutant) -> np.ndarray:
            ours, theirs = self.logits(mutant, level), getattr(evidence, level)
            if ours is None or ours.shape != theirs.shape:
                return np.full(len(theirs), np.inf)
            return relative(ours, theirs)

        def next_tokens(mutant: Mutant) -> np.ndarray:
            ours, theirs = self.logits(mutant, "logits"), evidence.next_tokens
            if ours is None or theirs is None or ours.shape != theirs.shape:
                return np.full(len(evidence.golden.tokens), np.inf)
            return shown_distance(ours, theirs)

        return {"statistics": statistics, "next_tokens": next_tokens}.get(level, logits)


def shown_distance(logits: np.ndarray, shown: np.ndarray) -> np.ndarray:
    """The distance of the log-softmax of logits from the log-probabilities shown (NaN: none), float64 [tokens].

    >>> shown_distance(np.log([[1.0, 1.0, 2.0]]), np.array([[np.nan, np.nan, np.log(0.5)]])).round(9).tolist()
    [0.0]
    """
    there = ~np.isnan(shown)
    return relative(np.where(there, floored(logits), 0.0), np.where(there, shown, 0.0))


def _forget(remembered: dict[_Key, Any]) -> None:
    """The oldest predictions of several faults, or of one at a place, where there are too many."""
    several = [key for key in remembered if len(key[1]) > 1 or any("@" in name for name in key[1])]
    for key in several[: max(0, len(several) - REMEMBERED)]:
        del remembered[key]
