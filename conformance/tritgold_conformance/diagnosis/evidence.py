"""Evidence: everything an engine gave on one input, asked for once."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tritgold.errors import EngineError
from tritgold.layers.arithmetic import Q8_K_ARITHMETIC
from tritgold_conformance.comparing.activation_statistics import MOMENTS, moments
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.faults.fault import Subject
from tritgold_conformance.golden.run import GoldenRun
from tritgold_conformance.judging.judge import cuts
from tritgold_conformance.questions.edge_inputs import telling_inputs
from tritgold_conformance.questions.text_and_bytes import (
    METHODS,
    Answer,
    Question,
    answer,
    answer_of,
    questions,
    stable,
)

Outputs = dict[str, np.ndarray]
LEVELS = ("operations", "trace", "statistics", "logits")  # what a diagnosis may be held to, see ``limited``


@dataclass
class Evidence:
    """What there is, by level; empty or None where the engine does not give it.

    operations: trace name -> output, of each operation on golden inputs. vectors: ``name [label]`` -> output, on
    telling inputs. trace: its own activations. statistics: trace name -> MOMENTS. logits, continued, steps: float64
    [tokens, vocab], of one prefill, of a prompt in pieces, token by token. answers: to questions of bytes and text.
    raised: trace name, with its vector's label -> what the engine's operation raised there.
    """

    golden: GoldenRun
    operations: Outputs = field(default_factory=dict)
    vectors: Outputs = field(default_factory=dict)
    trace: Outputs = field(default_factory=dict)
    statistics: Outputs = field(default_factory=dict)
    logits: np.ndarray | None = None
    continued: np.ndarray | None = None
    steps: np.ndarray | None = None
    answers: list[tuple[Question, Answer]] = field(default_factory=list)
    raised: dict[str, str] = field(default_factory=dict)

    @property
    def levels(self) -> list[str]:
        """Those with something in them."""
        names = ("operations", "vectors", "trace", "statistics", "logits", "continued", "steps", "answers")
        return [name for name in names if getattr(self, name) is not None and len(getattr(self, name))]

    def whole_trace(self) -> bool:
        """Whether the engine shows every activation in the golden shape: then each operation has its inputs."""
        return all(name in self.trace and _fits(a, self.trace[name]) for name, a in self.golden.trace.arrays.items())

    def limited(self, level: str) -> "Evidence":
        """As if the engine gave nothing surer than ``level``, one of LEVELS."""
        at = LEVELS.index(level)
        keep = set(LEVELS[at:]) | {"continued", "steps"} | ({"vectors"} if at == 0 else set())
        if level == "statistics":
            keep = {"statistics"}
        fields = {name: getattr(self, name) for name in self.levels if name in keep}
        return Evidence(self.golden, **fields, raised=self.raised if at == 0 else {})


def _fits(golden: np.ndarray, given: np.ndarray) -> bool:
    return given.shape == golden.shape and given.dtype.kind in ("iu" if golden.dtype.kind == "i" else "iuf")


def collect(golden: GoldenRun, engine: EngineUnderTest, say: Callable[[str], None] = lambda _: None) -> Evidence:
    """Ask the engine for everything it has. What it raises is an EngineError, but for an operation, see ``raised``."""
    found = Evidence(golden)
    bounded = golden.arithmetic != Q8_K_ARITHMETIC  # as in ``judge``: there are none for operations and traces of it
    if engine.has("operation") and bounded:
        say("operations of the engine")
        _operations(found, engine)
    say("the engine's trace")
    shown = engine.trace(golden.tokens) if bounded else {}
    found.trace = {name: shown[name] for name in golden.trace.arrays if name in shown}
    if found.trace:
        found.statistics = {n: moments(a) for n, a in found.trace.items() if a.dtype.kind in "iuf"}
    elif engine.has("statistics") and bounded:
        found.statistics = _given(engine, golden)
    if engine.has("prefill"):
        say("the engine's logits")
        engine.reset()
        found.logits = engine.prefill(golden.tokens)
        found.continued = _continued(golden, engine)
    if engine.has("step"):
        engine.reset()
        found.steps = _stacked([engine.step(token) for token in golden.tokens])
    if any(engine.has(method) for method in METHODS):
        say("answers of the engine")
        subject = Subject(golden.checkpoint)
        prompt = [t for t in golden.tokens if t != subject.config.mask][:5]
        fair = (
            q for q in questions(subject, prompt) if engine.has(q.method) and stable(subject, q, answer_of(subject, q))
        )
        found.answers = [(q, a) for q in fair if (a := answer(engine, q)) is not None]
    return found


def _operations(found: Evidence, engine: EngineUnderTest) -> None:
    asked = [(operation, "", inputs, found.operations) for operation, inputs in found.golden.operations()]
    asked += [(o, f" [{label}]", inputs, found.vectors) for o, label, inputs in telling_inputs(found.golden)]
    for operation, label, inputs, kept in asked:
        names = {role: name + label for role, name in operation.writes.items()}
        try:
            given = engine.operation(operation.name, inputs) or {}
        except EngineError as error:
            if error.kind != "engine-failed":  # late, or of another form: nothing can be judged
                raise
            found.raised |= dict.fromkeys(names.values(), error.message)
            continue
        kept |= {names[role]: given[role] for role in names if role in given}


def _given(engine: EngineUnderTest, golden: GoldenRun) -> Outputs:
    given = engine.statistics(golden.tokens)
    return {
        name: np.array([_moment(of, moment) for moment in MOMENTS], np.float64)
        for name in golden.trace.arrays
        if (of := given.get(name)) and any(moment in of for moment in MOMENTS)
    }


def _moment(given: dict[str, float], name: str) -> float:
    """NaN where it is not given; infinite where what is given is no number, which must not pass for nothing given."""
    return np.nan if name not in given else found if np.isfinite(found := given[name]) else np.inf


def _continued(golden: GoldenRun, engine: EngineUnderTest) -> np.ndarray | None:
    cut, end = cuts(len(golden.tokens))
    if not cut:
        return None
    engine.reset()
    pieces = [engine.prefill(golden.tokens[:cut]), engine.prefill(golden.tokens[cut:end])]
    for token in golden.tokens[end:]:
        row = engine.step(token) if engine.has("step") else engine.prefill([token])
        pieces.append(None if row is None else row.reshape(1, -1))
    return _stacked(pieces)


def _stacked(rows: list[np.ndarray | None]) -> np.ndarray | None:
    """[tokens, vocab]; None where one is missing or of another width."""
    whole = [np.atleast_2d(row) for row in rows if row is not None]
    if len(whole) < len(rows) or len({row.shape[1] for row in whole}) != 1:
        return None
    return np.concatenate(whole)
