"""View: an engine's answers, by the names that a diagnosis uses."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from tritgold.graph import Operation
from tritgold_conformance.comparing.activation_statistics import MOMENTS, moments
from tritgold_conformance.comparing.next_tokens import Completion, shown_rows
from tritgold_conformance.golden.run import GoldenRun
from tritgold_conformance.questions.behaviours import fair
from tritgold_conformance.questions.edge_inputs import edge_inputs
from tritgold_conformance.questions.evidence import BEHAVIOURS, PATHS, Evidence, OperationAnswer, Raised
from tritgold_conformance.questions.text_and_bytes import REFUSED, Answer, Question, unpack_questions

Outputs = dict[str, np.ndarray]
SOURCES = ("operations", "trace", "statistics", "logits")  # the levels for ``limited``


@dataclass
class View:
    """An engine's answers by level; empty or None if the engine does not give them.

    operations: trace name -> output, of each operation on golden inputs. edge_cases: ``name [label]`` -> output, for
    edge cases. trace: its own activations. statistics: trace name -> MOMENTS. logits, continued, steps: float64
    [tokens, vocab], of one prefill, of a prompt in pieces, token by token. next_tokens: log-probabilities of that
    shape, NaN where none is shown; completions: the same with the generated tokens. answers: to questions about bytes
    and text. raised: trace name, with its edge case's label -> message of the error in the engine's operation.
    """

    golden: GoldenRun
    operations: Outputs = field(default_factory=dict)
    edge_cases: Outputs = field(default_factory=dict)
    trace: Outputs = field(default_factory=dict)
    statistics: Outputs = field(default_factory=dict)
    logits: np.ndarray | None = None
    continued: np.ndarray | None = None
    steps: np.ndarray | None = None
    next_tokens: np.ndarray | None = None
    completions: list[Completion | None] = field(default_factory=list)
    answers: list[tuple[Question, Answer]] = field(default_factory=list)
    raised: dict[str, str] = field(default_factory=dict)

    @property
    def levels(self) -> list[str]:
        """The levels that are not empty."""
        names = (
            "operations",
            "edge_cases",
            "trace",
            "statistics",
            "logits",
            "continued",
            "steps",
            "next_tokens",
            "answers",
        )
        return [name for name in names if getattr(self, name) is not None and len(getattr(self, name))]

    def whole_trace(self) -> bool:
        """Whether the engine shows every activation in the golden shape, so that each operation has its inputs."""
        return all(name in self.trace and _fits(a, self.trace[name]) for name, a in self.golden.trace.arrays.items())

    def limited(self, level: str) -> "View":
        """The view without levels more precise than ``level``, one of SOURCES."""
        at = SOURCES.index(level)
        keep = set(SOURCES[at:]) | {"continued", "steps", "next_tokens"} | ({"edge_cases"} if at == 0 else set())
        if level == "statistics":
            keep = {"statistics"}
        fields = {name: getattr(self, name) for name in self.levels if name in keep}
        return View(self.golden, **fields, completions=self.completions, raised=self.raised if at == 0 else {})


def _fits(golden: np.ndarray, given: np.ndarray) -> bool:
    return given.shape == golden.shape and given.dtype.kind in ("iu" if golden.dtype.kind == "i" else "iuf")


def view(golden: GoldenRun, evidence: Evidence) -> View:
    """The view of an engine's answers; names that the model does not have are left out."""
    operations = ((o, "") for o, _ in golden.operations())
    edges = ((o, f" [{label}]") for o, label, _ in edge_inputs(golden))
    seen = View(golden)
    _sort(seen, seen.operations, zip(operations, evidence.operations, strict=False))
    _sort(seen, seen.edge_cases, zip(edges, evidence.edges, strict=False))
    seen.trace = {name: evidence.trace[name] for name in golden.trace.arrays if name in evidence.trace}
    if seen.trace:
        seen.statistics = {n: moments(a) for n, a in seen.trace.items() if a.dtype.kind in "iuf"}
    else:
        seen.statistics = _given(golden, evidence.statistics)
    paths = {path: rows for path, rows in evidence.logits.items() if rows.shape != (0, 0)}
    seen.logits, seen.continued, seen.steps = (paths.get(path) for path in PATHS)
    seen.next_tokens = shown_rows(evidence.next_tokens, golden.logits.shape)
    seen.completions = [*evidence.next_tokens]
    seen.answers = _unpacked(evidence)
    for method in BEHAVIOURS:
        seen.answers += [(question, theirs) for question, _, theirs in fair(golden, evidence.answers, method)]
    return seen


def _sort(seen: View, kept: Outputs, answers: Iterable[tuple[tuple[Operation, str], OperationAnswer]]) -> None:
    for (operation, label), given in answers:
        names = {role: name + label for role, name in operation.writes.items()}
        if isinstance(given, Raised):
            seen.raised |= dict.fromkeys(names.values(), given.message)
        elif given is not None:
            kept |= {names[role]: given[role] for role in names if role in given}


def _unpacked(evidence: Evidence) -> list[tuple[Question, Answer]]:
    """Packed bytes that are known to show a fault; REFUSED if the engine raised."""
    asked = zip(unpack_questions(), evidence.packed, strict=False)
    return [(q, REFUSED if isinstance(given, Raised) else given) for q, given in asked if given is not None]


def _given(golden: GoldenRun, given: Mapping[str, Mapping[str, float]]) -> Outputs:
    return {
        name: np.array([_moment(of, moment) for moment in MOMENTS], np.float64)
        for name in golden.trace.arrays
        if (of := given.get(name)) and any(moment in of for moment in MOMENTS)
    }


def _moment(given: Mapping[str, float], name: str) -> float:
    """NaN if it is not given; infinite if it is NaN or infinite, so that it does not count as not given."""
    return np.nan if name not in given else found if np.isfinite(found := given[name]) else np.inf
