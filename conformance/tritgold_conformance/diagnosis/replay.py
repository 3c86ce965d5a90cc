"""Replays: a subject runs on an engine's own values, so that every operation is judged alone and nothing cascades.

Each output that the engine shows takes the place of the subject's own before the pass goes on. What then differs is
that operation's doing; two faults in one engine are two differences, wherever they lie.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from tritgold.errors import NonFiniteError, TritgoldError
from tritgold.graph import Operation, operations
from tritgold.kv_cache.float32 import Float32Cache
from tritgold.layers.arithmetic import Array
from tritgold.model import forward
from tritgold_conformance.diagnosis.evidence import Evidence
from tritgold_conformance.engines.reference import ReferenceEngine
from tritgold_conformance.faults.fault import Subject
from tritgold_conformance.faults.faulty_engine import FaultyEngine
from tritgold_conformance.vectors import telling_inputs

# (label, the subject's value) -> whether to go on.
See = Callable[[str, Array], bool]
SOURCES = ("operations", "vectors", "trace")


class _EnoughSeenError(Exception):
    """Whoever sees has seen enough."""


@dataclass(frozen=True)
class Replay:
    """The three ways to run a subject on one engine's evidence."""

    evidence: Evidence

    def run(self, source: str, subject: Subject, see: See) -> None:
        """Show every output that the engine has at this source, in execution order, until told to stop.

        A subject that cannot go on (its values are not finite, its shapes do not fit) ends there.
        """
        try:
            {"operations": self._operations, "vectors": self._vectors, "trace": self._trace}[source](subject, see)
        except (_EnoughSeenError, NonFiniteError):
            return
        except (TritgoldError, ValueError, IndexError):
            return  # the engine's arrays do not fit what the subject would do with them

    def _operations(self, subject: Subject, see: See) -> None:
        engine = FaultyEngine(subject, capacity=1)
        for operation, inputs in self.evidence.golden.operations():
            self._alone(engine, operation, inputs, see, "", self.evidence.operations)

    def _vectors(self, subject: Subject, see: See) -> None:
        engine = FaultyEngine(subject, capacity=1)
        for operation, label, inputs in telling_inputs(self.evidence.golden):
            self._alone(engine, operation, inputs, see, f" [{label}]", self.evidence.vectors)

    def _alone(
        self,
        engine: ReferenceEngine,
        operation: Operation,
        inputs: Mapping[str, Array],
        see: See,
        label: str,
        theirs: Mapping[str, Array],
    ) -> None:
        if not any(name + label in theirs for name in operation.writes.values()):
            return
        try:
            outputs = engine.operation(operation.name, {role: array.copy() for role, array in inputs.items()})
        except NonFiniteError:
            return
        for role, name in operation.writes.items():
            if name + label in theirs and not see(name + label, outputs[role]):
                raise _EnoughSeenError

    def _trace(self, subject: Subject, see: See) -> None:
        theirs, before, golden = self.evidence.trace, subject.arithmetic.alter, self.evidence.golden

        def alter(name: str, value: Array, seen: Mapping[str, Array]) -> Array:
            if before is not None:
                value = before(name, value, seen)
            given = theirs.get(name)
            if given is None:
                return value
            if not see(name, value):
                raise _EnoughSeenError
            return forced(value, given)

        with np.errstate(all="ignore"):
            forward(
                golden.tokens,
                subject.checkpoint.weights,
                subject.config,
                Float32Cache(subject.config, len(golden.tokens)),
                arithmetic=replace(subject.arithmetic, alter=alter),
            )


def forced(value: Array, given: Array) -> Array:
    """The engine's array in the dtype of ours; ours where it cannot take its place."""
    if given.shape != value.shape or (value.dtype.kind == "i" and given.dtype.kind not in "iu"):
        return value
    if value.dtype.kind == "i":
        limits = np.iinfo(value.dtype)
        return np.clip(given, limits.min, limits.max).astype(value.dtype)
    return given.astype(value.dtype)


def operation_of(subject: Subject) -> dict[str, tuple[Operation, str]]:
    """Trace name -> the operation that writes it, and the role."""
    return {name: (o, role) for o in operations(subject.config) for role, name in o.writes.items()}
