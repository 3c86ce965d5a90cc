"""ask: one engine is asked everything about one golden run, each question once and in a fixed order."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from tritgold.errors import EngineError, TritgoldError
from tritgold.graph import Operation
from tritgold.layers.arithmetic import Q8_K_ARITHMETIC, mode_id
from tritgold.trace import versions
from tritgold_conformance.contract.clock import measure_speed
from tritgold_conformance.contract.engine import JUDGED
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.golden.reference_engine import ReferenceEngine
from tritgold_conformance.golden.run import GoldenRun
from tritgold_conformance.questions.behaviours import behaviours
from tritgold_conformance.questions.edge_inputs import edge_inputs
from tritgold_conformance.questions.evidence import BEHAVIOURS, Evidence, OperationAnswer, Raised, Unpacked
from tritgold_conformance.questions.packed_bytes import cases
from tritgold_conformance.questions.request_batch import Behaviour, RequestBatch
from tritgold_conformance.questions.sessions import cuts, stacked
from tritgold_conformance.questions.text_and_bytes import answer

OnProgress = Callable[[str], None]


def ask(engine: EngineUnderTest, golden: GoldenRun, on_progress: OnProgress = lambda _: None) -> Evidence:
    """Ask an engine for everything it has.

    What it raises is an EngineError: nothing can be judged. Where it raises in one operation, on one packed matrix or
    in one behaviour, that is the answer, and the others are asked. Operations, trace and statistics are not asked of
    an engine that is held to an arithmetic without bounds for them.
    """
    on_progress("engine")
    offered = [method for method in BEHAVIOURS if engine.has(method)]
    behaved = behaviours(golden, offered)
    engine.prepare(golden, RequestBatch(behaviours=[Behaviour(q.method, q.arguments) for q in behaved]))
    bounded = golden.arithmetic != Q8_K_ARITHMETIC
    tokens, methods = golden.tokens, [m for m in dict.fromkeys((*JUDGED, *BEHAVIOURS)) if engine.has(m)]
    on_progress("packed bytes")
    packed = [_unpacked(engine, c.format, c.data, c.shape) for c in cases()] if "unpack" in methods else []
    operations, edges = list[OperationAnswer](), list[OperationAnswer]()
    if bounded and "operation" in methods:
        on_progress("operations on golden inputs")
        operations = ask_operations(engine, golden.operations())
        on_progress("operations on edge cases")
        edges = ask_operations(engine, ((o, inputs) for o, _, inputs in edge_inputs(golden)))
    on_progress("activations")
    statistics = engine.statistics(tokens) if bounded else {}
    trace = engine.trace(tokens) if bounded else {}
    logits = _logits(engine, tokens, on_progress)
    on_progress("next tokens")
    prefixes = range(1, len(tokens) + 1) if "complete" in methods else ()
    next_tokens = [engine.complete(tokens[:n]) for n in prefixes]
    on_progress("behaviours")
    answers = {q.label: answer(engine, q) for q in behaved if q.method in methods}
    return Evidence(
        name=engine.name,
        spec=engine.spec,
        mode=mode_id(golden.arithmetic),
        model_hash=golden.trace.model_hash,
        tokens=list(tokens),
        methods=methods,
        versions=engine.versions(),
        machine=versions(),
        reference=EngineUnderTest(ReferenceEngine(golden.checkpoint, len(tokens))).versions(),
        packed=packed,
        operations=operations,
        edges=edges,
        trace=trace,
        statistics=statistics,
        logits=logits,
        next_tokens=next_tokens,
        answers={label: given for label, given in answers.items() if given is not None},
    )


def with_speed(
    evidence: Evidence, engine: EngineUnderTest, golden: GoldenRun, on_progress: OnProgress = lambda _: None
) -> Evidence:
    """The evidence with tokens/s of the engine, and of the reference where the engine has any."""
    on_progress(f"tokens/s of {evidence.name}")
    speed, tokens = measure_speed(engine, golden.tokens), golden.tokens
    if speed is None:
        return evidence
    on_progress("tokens/s of reference")
    reference = measure_speed(EngineUnderTest(ReferenceEngine(golden.checkpoint, len(tokens))), tokens)
    return replace(evidence, speed=speed, reference_speed=reference)


def ask_operations(
    engine: EngineUnderTest, asked: Iterable[tuple[Operation, dict[str, np.ndarray]]]
) -> list[OperationAnswer]:
    """Outputs by role of each operation. What one raises is its answer; one that is late is an EngineError."""
    answers: list[OperationAnswer] = []
    for operation, inputs in asked:
        try:
            answers.append(engine.operation(operation.name, inputs))
        except EngineError as error:
            if error.kind != "engine-failed":
                raise
            answers.append(Raised(error.message))
    return answers


def _unpacked(engine: EngineUnderTest, *packed: Any) -> Unpacked:
    try:
        return engine.unpack(*packed)
    except TritgoldError as error:
        if isinstance(error, EngineError) and error.kind != "engine-failed":
            raise  # late, or of another form: nothing can be judged
        return Raised(error.message)


def _logits(engine: EngineUnderTest, tokens: list[int], on_progress: OnProgress) -> dict[str, np.ndarray]:
    """Of one prefill, of a prompt in pieces and then single steps, token by token: what the engine has of them."""
    paths: dict[str, list[np.ndarray | None]] = {}
    (cut, end), steps = cuts(len(tokens)), engine.has("step")
    if engine.has("prefill"):
        on_progress("logits of one prefill")
        engine.reset()
        paths["logits"] = [engine.prefill(tokens)]
    if engine.has("prefill") and cut:
        on_progress("logits of a prompt in pieces")
        engine.reset()
        pieces = [engine.prefill(tokens[:cut]), engine.prefill(tokens[cut:end])]
        rest = tokens[end:]
        if rest and not steps:
            pieces.append(engine.prefill(rest))
        paths["continued"] = [*pieces, *(engine.step(token) for token in rest if steps)]
    if steps:
        on_progress("logits token by token")
        engine.reset()
        paths["steps"] = [engine.step(token) for token in tokens]
    return {path: rows for path, pieces in paths.items() if (rows := stacked(pieces)) is not None}
