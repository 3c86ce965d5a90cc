"""ask: asks one engine all questions about one golden run, each question once and in a fixed order."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from tritgold.config import ModelConfig
from tritgold.errors import EngineError, TritgoldError
from tritgold.trace import versions
from tritgold_conformance.contract.clock import measure, measure_speed
from tritgold_conformance.contract.engine import JUDGED
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.contract.session import Session, groups
from tritgold_conformance.engines.http_server import STATUS_KIND, HttpEngine
from tritgold_conformance.golden.reference_engine import ReferenceEngine
from tritgold_conformance.golden.run import GoldenRun
from tritgold_conformance.policies import named_policy
from tritgold_conformance.questions.accuracy import Exam, exam_of
from tritgold_conformance.questions.asked import all_questions
from tritgold_conformance.questions.behaviours import behaviours
from tritgold_conformance.questions.edge_inputs import edge_inputs
from tritgold_conformance.questions.evidence import (
    BEHAVIOURS,
    UNANSWERED,
    Completion,
    Evidence,
    OperationAnswer,
    Raised,
)
from tritgold_conformance.questions.ladder import ONE_TEXT, Ladder, weights
from tritgold_conformance.questions.request_batch import Behaviour, OperationInput, RequestBatch
from tritgold_conformance.questions.text_and_bytes import answer

OnProgress = Callable[[str], None]
MOST_TWICE = 10**8  # ternary weights of the largest model of which a second instance is made
LEVEL_OF = {"prefill": "logits"}  # session id -> level, for sessions on the judged text


def ask(
    engine: EngineUnderTest,
    golden: GoldenRun,
    on_progress: OnProgress = lambda _: None,
    ladder: Ladder | None = None,
) -> Evidence:
    """Ask an engine all questions that its methods can answer. ladder: sessions beyond those on the judged text.

    An EngineError means that the engine cannot be judged. If the engine raises in one operation, on one packed matrix,
    in one behaviour or in a session of the ladder, this counts as its answer, and the other questions are still asked.
    """
    on_progress("engine")
    config = golden.checkpoint.config
    engine.forget()
    exam = None if ladder is None else exam_of(golden.checkpoint, ladder.depth, ladder.seed)
    exam = None if isinstance(exam, str) else exam
    asked = all_questions(golden, engine.has, ladder, engine.twice and weights(config) <= MOST_TWICE, exam)
    engine.prepare(asked, config)
    tokens, methods = golden.tokens, [m for m in dict.fromkeys((*JUDGED, *BEHAVIOURS)) if engine.has(m)]
    on_progress("packed bytes")
    packed = [_contained(engine.unpack, c.format, c.data, c.shape) for c in asked.files if "unpack" in methods]
    on_progress("operations")
    given = ask_operations(engine, asked.operations if "operation" in methods else [])
    edges = sum(1 for _ in edge_inputs(golden)) if given else 0
    on_progress("activations")
    statistics = engine.statistics(asked.statistics) if asked.statistics else {}
    trace = engine.trace(asked.trace) if asked.trace else {}
    logits, refused = _sessions(engine, [s for s in asked.sessions if {*s.calls} <= {*methods}], on_progress)
    on_progress("next tokens")
    prefixes = range(1, len(asked.text) + 1) if "complete" in methods else ()
    next_tokens, unanswered = _next_tokens(engine, [tokens[:n] for n in prefixes])
    on_progress("behaviours")
    answers = {q.label: answer(engine, q) for q in behaviours(golden, methods)}
    if exam is not None and not any(label in logits or refused.get(label) for label in exam.labels):
        on_progress("questions")
        answers |= _written(engine, exam, config)
    return Evidence(
        name=engine.name,
        spec=engine.spec,
        mode=golden.mode,
        model_hash=golden.trace.model_hash,
        tokens=list(tokens),
        methods=methods,
        depth=ONE_TEXT if ladder is None else ladder.depth,
        seed=0 if ladder is None else ladder.seed,
        versions=engine.versions(),
        machine=versions(),
        reference=EngineUnderTest(ReferenceEngine(golden.checkpoint, len(tokens))).versions(),
        packed=packed,
        operations=given[: len(given) - edges],
        edges=given[len(given) - edges :],
        trace=trace,
        statistics=statistics,
        logits=logits,
        refused=refused | unanswered,
        next_tokens=next_tokens,
        answers={label: found for label, found in answers.items() if found is not None},
    )


def ask_as_declared(
    engine: EngineUnderTest,
    golden: GoldenRun,
    on_progress: OnProgress = lambda _: None,
    ladder: Ladder | None = None,
) -> tuple[GoldenRun, Evidence]:
    """The evidence, and the golden run by the precision that the engine declares.

    A program declares it in its answers, thus after it was asked by another: then it is asked once more.
    Raises EngineError for a policy that is not known.
    """
    evidence = ask(engine, golden, on_progress, ladder)
    policy = named_policy(engine.policy)
    if policy == golden.policy:
        return golden, evidence
    on_progress(f"golden model by policy {policy.name}")
    golden = GoldenRun.of(golden.checkpoint, golden.tokens, golden.plain, policy)
    return golden, ask(engine, golden, on_progress, ladder)


def with_speed(
    evidence: Evidence, engine: EngineUnderTest, golden: GoldenRun, on_progress: OnProgress = lambda _: None
) -> Evidence:
    """The evidence with the tokens/s of the engine and of the reference; unchanged if the engine cannot be timed."""
    on_progress(f"tokens/s of {evidence.name}")
    tokens = golden.tokens
    speed, rows = measure(engine, tokens)
    if speed is None:
        return evidence
    on_progress("tokens/s of reference")
    # Its steps are slow and alike: few of them, so that a quick check stays quick.
    reference = measure_speed(EngineUnderTest(ReferenceEngine(golden.checkpoint, len(tokens))), tokens, steps=4)
    return replace(evidence, speed=speed, timed=rows, reference_speed=reference)


def ask_operations(engine: EngineUnderTest, asked: Iterable[OperationInput]) -> list[OperationAnswer]:
    """Outputs by role of each operation. An error that it raises is its answer; a late answer is an EngineError."""
    return [_contained(engine.operation, one.operation.name, one.inputs) for one in asked]


def _contained(call: Callable[..., Any], *arguments: Any) -> Any:
    """The engine's answer, or the error that it raised."""
    try:
        return call(*arguments)
    except TritgoldError as error:
        if isinstance(error, EngineError) and error.kind != "engine-failed":
            raise  # late, or of a wrong form: the engine cannot be judged
        return Raised(error.message)


def _next_tokens(engine: EngineUnderTest, prefixes: list[list[int]]) -> tuple[list[Completion | None], dict[str, str]]:
    """The next token after each prefix; and the error messages, by ``next_tokens <position>``.

    A position that a server answers with an HTTP error is not assessed; the others are. Raises EngineError if all
    positions are errors.
    """
    found: list[Completion | None] = []
    refused, last = dict[str, str](), None
    for prefix in prefixes:
        try:
            found.append(engine.complete(prefix))
        except EngineError as error:
            if error.kind != STATUS_KIND or (last is not None and not any(found)):
                raise
            found.append(None)
            refused[f"{UNANSWERED}{len(prefix) - 1}"], last = error.message, error
    if last is not None and not any(found):
        raise last
    return found, refused


def _written(engine: EngineUnderTest, exam: Exam, config: ModelConfig) -> dict[str, Any]:
    """What an engine without logits writes after each question; None for an HTTP error. Empty if it cannot write."""
    if not isinstance(engine.engine, HttpEngine):
        if not engine.has("generate"):
            return {}
        questions = exam.calls("generate")
        engine.prepare(RequestBatch(behaviours=[Behaviour(q.method, q.arguments) for q in questions]), config)
        return {q.label: answer(engine, q) for q in questions}
    found = dict[str, Any]()
    for question in exam.calls("write"):
        try:
            found[question.label] = answer(engine, question)
        except EngineError as error:
            if error.kind != STATUS_KIND:
                raise
    return found


def _sessions(
    engine: EngineUnderTest, asked: list[Session], on_progress: OnProgress
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Logits by session id; and, for sessions without logits, the error message, empty if none was raised."""
    logits, refused = dict[str, np.ndarray](), dict[str, str]()
    for group in groups(asked):
        on_progress(f"logits: {group[0].id}")
        contained = group[0].contained
        found = _contained(engine.read, group) if contained else engine.read(group)
        rows = [None] * len(group) if isinstance(found, Raised) else found
        for session, given in zip(group, rows, strict=True):
            if given is None:
                refused[session.id] = found.message if isinstance(found, Raised) else ""
            else:
                logits[LEVEL_OF.get(session.id, session.id)] = given.astype(np.float32) if contained else given
    return logits, refused
