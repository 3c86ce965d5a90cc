"""Diagnosis from single operations: replays of the golden model and of each candidate, in which errors do not spread.

A candidate explains a divergence if the golden model with that fault gives the engine's values, at that output and at
every other one where the golden model itself does not. Found faults are added to the model, and the search continues.
"""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from tritgold.graph import Operation
from tritgold.layers.arithmetic import Array
from tritgold.trace_names import TraceName
from tritgold_conformance.comparing.compare import Comparison, Tolerance, compare, incomparable
from tritgold_conformance.comparing.tolerance import float_sum_tolerance, tolerances
from tritgold_conformance.diagnosis.distance import distance
from tritgold_conformance.diagnosis.replay import SOURCES, Replay, operation_of
from tritgold_conformance.diagnosis.rules import (
    CLOSER,
    CODES_MATCH,
    HIDDEN_MATCH,
    MATCH,
    Allowed,
    Label,
    Rule,
    Scan,
    axis_of,
    hidden_comparison,
    rounded,
    tolerances_of,
)
from tritgold_conformance.diagnosis.view import View
from tritgold_conformance.faults.fault import Mutant


class Local:
    """The evidence of one engine at the levels that are judged operation by operation."""

    def __init__(self, evidence: View, base: Mutant, allowed: Allowed | None = None) -> None:
        """base: the golden model. allowed: tolerances of an earlier diagnosis of the same input, used again."""
        self.evidence, self.replay, self.base = evidence, Replay(evidence, base), base
        self._allowed: Allowed = {} if allowed is None else allowed
        self.sources = [source for source in SOURCES if getattr(evidence, source)]
        order = list(evidence.golden.trace.arrays)
        self._order = {name: n for n, name in enumerate(order)}
        self.rules: dict[Label, Rule] = {}
        self.golden_values: dict[Label, Array] = {}
        self.comparisons: dict[Label, Comparison] = {}
        self._distances: dict[Label, float] = {}  # from the golden model's own values to the engine's
        for source in self.sources:
            self._golden(source)

    def theirs(self, label: Label) -> Array:
        """The engine's output."""
        given: Mapping[str, Array] = getattr(self.evidence, label[0])
        return given[label[1]]

    def place(self, label: Label) -> tuple[int, int]:
        """A sort key: execution order, then the more precise source first."""
        return self._order[label[1].partition(" [")[0]], SOURCES.index(label[0])

    def failing(self) -> list[Label]:
        """Outputs that the golden model does not explain, in execution order."""
        return sorted((label for label, c in self.comparisons.items() if not c.passed), key=self.place)

    def codes(self) -> tuple[int, int] | None:
        """How many codes of the text differ from the golden ones, and how many there are; None if none are given."""
        source = next((s for s in self.sources if s != "edge_cases"), "")
        of = [c for label, c in self.comparisons.items() if label[0] == source and label[1].endswith(".codes")]
        return (sum(c.differing for c in of), sum(c.compared for c in of)) if of else None

    def passed_over(self) -> list[str]:
        """Text for the output that differs most and passes only because ties may have broken among hidden inputs."""
        hidden = [label for label, rule in self.rules.items() if rule.tolerance is None]
        far = {label: self.off(label) for label in hidden if self.comparisons[label].passed}
        label = max(far, key=lambda label: far[label], default=None)
        if label is None or far[label] <= MATCH:
            return []
        return [f"{HIDDEN_MATCH:g} of a token where codes are not shown ({label[1]} is off by {far[label]:.2g})"]

    def _golden(self, source: str) -> None:
        """The golden model's own replay: the rule for every output, and which outputs fail."""
        for name, tolerance, value in self._judged(source):
            label = (source, name)
            theirs = self.theirs(label)
            self.golden_values[label] = value
            hidden = tolerance is None
            role = TraceName.of(name).role
            codes, exact = role == "codes", source == "edge_cases" or role == "acc"
            match = HIDDEN_MATCH if hidden else CODES_MATCH if codes and not exact else MATCH
            self.rules[label] = Rule(tolerance, match)
            self.comparisons[label] = (
                hidden_comparison(name, value, theirs) if tolerance is None else compare(name, value, theirs, tolerance)
            )

    def _judged(self, source: str) -> Iterator[tuple[str, Tolerance | None, Array]]:
        golden, found = self.evidence.golden, dict[str, Array]()

        def see(name: str, value: Array) -> bool:
            found[name] = value
            return True

        self.replay.run(source, self.base, see)
        if source == "trace":
            yield from self._traced(found)
            return
        if source not in self._allowed:
            self._allowed[source] = tolerances_of(golden, source)
        allowed = self._allowed[source]
        for name, value in found.items():
            yield name, allowed[name], value

    def _traced(self, found: Mapping[str, Array]) -> Iterator[tuple[str, Tolerance | None, Array]]:
        """Tolerances for the engine's own inputs, where it shows them."""
        golden, shown = self.evidence.golden, self.evidence.trace
        inputs_of = {"tokens": np.asarray(golden.tokens, np.int64)}
        for name, (operation, role) in operation_of(self.base).items():
            if name not in found:
                continue
            inputs = {r: shown.get(read, inputs_of.get(read)) for r, read in operation.reads.items()}
            tolerance: Tolerance | None = None
            fit = all(
                array is not None and (read == "tokens" or not incomparable(golden.trace[read], array))
                for read, array in zip(operation.reads.values(), inputs.values(), strict=True)
            )
            if fit:
                given = {r: np.asarray(a) for r, a in inputs.items()}
                c = golden.checkpoint
                tolerance = tolerances(operation, given, c.config, c.weights, golden.policy)[role]
                if role == "out" and operation.writes["acc"] not in shown:
                    tolerance = self._unseen_sums(operation, given) or tolerance
            yield name, tolerance, found[name]

    def _unseen_sums(self, operation: Operation, given: Mapping[str, Array]) -> Tolerance | None:
        """The tolerance of a linear whose integers are not shown; None if its codes have a scale for each block."""
        codes, scale = given["codes"], given["scale"]
        if codes.dtype.kind != "i" or scale.shape != codes.shape[:1]:
            return None
        checkpoint = self.evidence.golden.checkpoint
        assert operation.at.layer is not None
        weight = checkpoint.weights.layers[operation.at.layer].linear(operation.at.what)
        return float_sum_tolerance(codes, scale, weight, checkpoint.config.scale_rule)

    def agrees(self, label: Label, value: Array, found: float) -> bool:
        """Whether a mutant's value matches the engine's. found: their distance."""
        rule, comparison, golden = self.rules[label], self.comparisons[label], self.golden_values[label]
        if value.dtype.kind == golden.dtype.kind and np.array_equal(value, golden):
            return comparison.passed
        if found <= rule.match and (comparison.passed or found <= CLOSER * self.off(label)):
            return True
        if rule.tolerance is not None and compare(label[1], value, self.theirs(label), rule.tolerance).passed:
            return True
        # Tolerances are for golden sizes; a fault may make small values large, and then needs bounds for its own size.
        theirs = self.theirs(label)
        return not comparison.passed and rounded(value, theirs) and not rounded(golden, theirs)

    def off(self, label: Label) -> float:
        """The distance from the golden model's own value to the engine's, see ``distance``."""
        if label not in self._distances:
            self._distances[label] = distance(self.golden_values[label], self.theirs(label), axis_of(label))
        return self._distances[label]

    def scan(self, mutant: Mutant, source: str, until: Label | None = None, skip: Iterable[Label] = ()) -> Scan:
        """Replay a mutant at one source. until: stop after this output."""
        scan, skipped = Scan(), set(skip)

        def see(name: str, value: Array) -> bool:
            label = (source, name)
            if label in skipped or label not in self.rules:
                return True
            own = value is self.golden_values[label]
            found = self.off(label) if own else distance(value, self.theirs(label), axis_of(label))
            scan.distances[label] = found
            if not (self.comparisons[label].passed if own else self.agrees(label, value, found)):
                scan.failing.append(label)
            return label != until

        self.replay.run(source, mutant, see)
        return scan

    def complete(self, mutant: Mutant, skip: Iterable[Label] = ()) -> Scan:
        """Replay a mutant at every source. An output that it does not reach, but the golden model does, fails."""
        whole, skipped = Scan(), set(skip)
        for source in self.sources:
            part = self.scan(mutant, source, skip=skipped)
            whole.distances |= part.distances
            whole.failing += part.failing
        whole.failing += [label for label in self.rules if label not in whole.distances and label not in skipped]
        whole.failing.sort(key=self.place)
        return whole

    def moves(self, mutant: Mutant) -> bool:
        """Whether the mutant would be noticed: an output of its replay is outside the golden tolerances."""
        for source in self.sources:
            seen = False

            def see(name: str, value: Array, source: str = source) -> bool:
                nonlocal seen
                label = (source, name)
                golden = self.golden_values.get(label)
                if golden is not None and value is not golden and not np.array_equal(value, golden):
                    tolerance = self.rules[label].tolerance
                    if tolerance is None:
                        seen = distance(value, golden, axis_of(label)) > HIDDEN_MATCH
                    else:
                        seen = not compare(name, golden, value, tolerance).passed
                return not seen

            self.replay.run(source, mutant, see)
            if seen:
                return True
        return False
