"""Replays: a mutant runs on an engine's own values, so that every operation is judged alone and errors do not spread.

Each output that the engine shows replaces the mutant's own before the pass continues. A remaining difference comes
from that operation; two faults in one engine are two differences, at any places. An operation that a fault does not
change gives the same output as without the fault, and is not run again.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tritgold.errors import NonFiniteError, TritgoldError
from tritgold.graph import Operation, operations
from tritgold.kv_cache.float32 import Float32Cache
from tritgold.layers.arithmetic import Array
from tritgold.model import forward
from tritgold_conformance.diagnosis.view import View
from tritgold_conformance.faults.fault import Mutant
from tritgold_conformance.faults.faulty_engine import FaultyEngine
from tritgold_conformance.golden.reference_engine import ReferenceEngine
from tritgold_conformance.questions.edge_inputs import edge_inputs

# (label, the mutant's value) -> whether to continue.
See = Callable[[str, Array], bool]
SOURCES = ("operations", "edge_cases", "trace")
Asked = tuple[Operation, str, Mapping[str, Array]]  # operation, label of the edge case, inputs by role


class _EnoughSeenError(Exception):
    """The caller of a replay does not need more outputs."""


@dataclass(frozen=True)
class Replay:
    """The three ways to run a mutant on one engine's evidence.

    base: the golden model. It runs first at each source, and its outputs are kept.
    """

    evidence: View
    base: Mutant
    _kept: dict[str, dict[str, Array]] = field(default_factory=dict)

    def run(self, source: str, mutant: Mutant, see: See) -> None:
        """Pass every output that the engine has at this source to ``see``, in execution order, until it returns False.

        A mutant that cannot continue (values not finite, shapes that do not fit) ends there. If a mutant does not
        change an operation, ``see`` receives the same array object as for the base.
        """
        if source not in self._kept:
            kept: dict[str, Array] = {}
            self._run(source, self.base, lambda name, value: kept.setdefault(name, value) is not None)
            self._kept[source] = kept
        self._run(source, mutant, see)

    def _run(self, source: str, mutant: Mutant, see: See) -> None:
        try:
            if source == "trace" and not self.evidence.whole_trace():
                self._pass(mutant, see)
            elif source == "trace":
                self._traced(mutant, see)
            else:
                self._alone(source, mutant, see)
        except (_EnoughSeenError, NonFiniteError):
            return
        except (TritgoldError, ValueError, IndexError):
            return  # the engine's arrays do not fit the mutant's operation

    def _asked(self, source: str) -> Iterator[Asked]:
        if source == "edge_cases":
            for operation, label, inputs in edge_inputs(self.evidence.golden):
                yield operation, f" [{label}]", inputs
        else:
            for operation, inputs in self.evidence.golden.operations():
                yield operation, "", inputs

    def _alone(self, source: str, mutant: Mutant, see: See) -> None:
        """Each operation on the golden inputs, or on edge cases."""
        engine, theirs = FaultyEngine(mutant, capacity=1), getattr(self.evidence, source)
        for operation, label, inputs in self._asked(source):
            names = {role: name + label for role, name in operation.writes.items() if name + label in theirs}
            if not names or self._unchanged(source, mutant, operation, names.values(), see):
                continue
            try:
                outputs = _operation(engine, operation, inputs)
            except NonFiniteError:
                continue
            for role, name in names.items():
                if not see(name, outputs[role]):
                    raise _EnoughSeenError

    def _unchanged(self, source: str, mutant: Mutant, operation: Operation, names: Any, see: See) -> bool:
        """Pass the base's outputs to ``see``, if the mutant's operation is the same and all outputs are known."""
        kept = self._kept.get(source)
        if kept is None or not same_operation(mutant, self.base, operation) or any(name not in kept for name in names):
            return False
        for name in names:
            if not see(name, kept[name]):
                raise _EnoughSeenError
        return True

    def _traced(self, mutant: Mutant, see: See) -> None:
        """Each operation on the engine's own activations."""
        golden = self.evidence.golden
        shown = {name: forced(array, self.evidence.trace[name]) for name, array in golden.trace.arrays.items()}
        shown["tokens"] = np.asarray(golden.tokens, np.int64)
        engine = FaultyEngine(self._forced(mutant, see, shown), capacity=1)
        with np.errstate(all="ignore"):
            for operation in operations(self.base.config):
                if not self._unchanged("trace", mutant, operation, operation.writes.values(), see):
                    _operation(engine, operation, {role: shown[name] for role, name in operation.reads.items()})

    def _pass(self, mutant: Mutant, see: See) -> None:
        """A whole pass; outputs that the engine does not show are the mutant's own."""
        golden = self.evidence.golden
        made = self._forced(mutant, see)
        with np.errstate(all="ignore"):
            forward(
                golden.tokens,
                mutant.checkpoint.weights,
                mutant.config,
                Float32Cache(mutant.config, len(golden.tokens)),
                arithmetic=made.arithmetic,
            )

    def _forced(self, mutant: Mutant, see: See, shown: Mapping[str, Array] | None = None) -> Mutant:
        """The mutant with the engine's values in place of its own. shown: all activations, if the engine gives all."""
        theirs, before = self.evidence.trace, mutant.arithmetic.alter

        def alter(name: str, value: Array, seen: Mapping[str, Array]) -> Array:
            if before is not None:
                value = before(name, value, seen if shown is None else shown)
            given = theirs.get(name)
            if given is None:
                return value
            if name == "logits" and not np.isfinite(value).all():
                raise _EnoughSeenError  # a normal pass would end here
            if not see(name, value):
                raise _EnoughSeenError
            return forced(value, given)

        return replace(mutant, arithmetic=replace(mutant.arithmetic, alter=alter))


def _operation(engine: ReferenceEngine, operation: Operation, inputs: Mapping[str, Array]) -> dict[str, Array]:
    return engine.operation(operation.name, {role: array.copy() for role, array in inputs.items()})


def forced(value: Array, given: Array) -> Array:
    """The engine's array in the dtype of ours; ours if the engine's has another shape or is not integer."""
    if given.shape != value.shape or (value.dtype.kind == "i" and given.dtype.kind not in "iu"):
        return value
    if value.dtype.kind == "i":
        limits = np.iinfo(value.dtype)
        return np.clip(given, limits.min, limits.max).astype(value.dtype)
    return given.astype(value.dtype)


def same_operation(mutant: Mutant, base: Mutant, operation: Operation) -> bool:
    """Whether a mutant's operation is the base's: identical functions, weights and settings.

    False if the mutant alters outputs by name, because the effect is not known without running it.
    """
    if mutant.arithmetic.alter is not None or base.arithmetic.alter is not None:
        return False
    pairs = zip(_made_of(mutant, operation), _made_of(base, operation), strict=True)
    return all(a is b or (isinstance(a, str | int | float) and a == b) for a, b in pairs)


def _made_of(s: Mutant, operation: Operation) -> tuple[object, ...]:
    """Everything that an operation's outputs depend on beside its inputs."""
    a, c, w, at = s.arithmetic.at(operation.name), s.config, s.checkpoint.weights, operation.at
    layer = None if at.layer is None else w.layers[at.layer]
    match operation.kind:
        case "embedding":
            return a.embed, w.embedding, c.embedding_scale
        case "rms_norm":
            return a.rms_norm, c.norm_eps, w.final_norm if layer is None else getattr(layer, at.what)
        case "quantize":
            return (a.quantize,)
        case "bit_linear":
            assert layer is not None
            return a.accumulate, a.apply_scales, c.scale_rule, layer.linear(at.what), layer.bias(at.what)
        case "rope":
            assert at.layer is not None
            return a.rotation_table, a.rotate, c.head_dim, c.rope_of(at.layer)
        case "softmax":
            assert at.layer is not None
            return a.softmax_weights, c.window_of(at.layer), c.query_scale
        case "mix":
            return a.mix_values, c.kv_heads, c.head_dim
        case "ffn_activation":
            return a.gated_activation, c.activation
        case "add":
            return (c.residual_scale,)
        case "lm_head":
            return a.logits, w.head_or_embedding, c.logit_divisor


def operation_of(mutant: Mutant) -> dict[str, tuple[Operation, str]]:
    """Trace name -> the operation that writes it, and the role."""
    return {name: (o, role) for o in operations(mutant.config) for role, name in o.writes.items()}
