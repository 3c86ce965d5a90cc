"""The list of all questions to an engine about a golden run."""

from collections.abc import Callable

from tritgold.layers.arithmetic import Q8_K_ARITHMETIC
from tritgold_conformance.contract.engine import BEHAVIOURS
from tritgold_conformance.contract.session import Session, cuts
from tritgold_conformance.golden.run import GoldenRun
from tritgold_conformance.questions.accuracy import Exam
from tritgold_conformance.questions.behaviours import behaviours
from tritgold_conformance.questions.edge_inputs import edge_inputs
from tritgold_conformance.questions.ladder import Ladder
from tritgold_conformance.questions.packed_bytes import cases
from tritgold_conformance.questions.request_batch import Behaviour, OperationInput, RequestBatch


def all_questions(
    golden: GoldenRun,
    has: Callable[[str], bool],
    ladder: Ladder | None = None,
    twice: bool = False,
    exam: Exam | None = None,
) -> RequestBatch:
    """The questions that an engine with these methods can answer. ladder: more sessions. twice: it may be made twice.

    exam: questions that it answers right or wrong, as sessions; an engine without logits is asked them afterwards.
    Operations, trace and statistics are not requested if the arithmetic of the golden run has no bounds for them.
    """
    tokens, bounded = golden.tokens, golden.plain != Q8_K_ARITHMETIC
    operations = list[OperationInput]()
    if bounded and has("operation"):
        operations = [OperationInput(o, inputs, dict(o.reads)) for o, inputs in golden.operations()]
        operations += [OperationInput(o, inputs) for o, _, inputs in edge_inputs(golden)]
    sessions = main_sessions(tokens, has)
    sessions += [] if ladder is None else ladder.sessions(has("step"), has("prefill"), twice)
    sessions += [] if exam is None else exam.sessions([method for method in ("prefill", "step") if has(method)])
    offered = [method for method in BEHAVIOURS if has(method)]
    return RequestBatch(
        operations=operations,
        trace=tokens if bounded and has("trace") else [],
        sessions=sessions,
        text=tokens if has("complete") else [],
        files=list(cases()) if has("unpack") else [],
        statistics=tokens if bounded and has("statistics") else [],
        behaviours=[Behaviour(q.method, q.arguments) for q in behaviours(golden, offered)],
    )


def main_sessions(tokens: list[int], has: Callable[[str], bool]) -> list[Session]:
    """One prefill; a prompt in two pieces, then steps (without ``step``: one more piece); all tokens one by one."""
    count, steps = len(tokens), has("step")
    cut, end = cuts(count)
    sessions = [Session("prefill", tokens, [count])] if has("prefill") else []
    if cut and has("prefill"):  # shorter texts cannot be cut
        rest = [1] * (count - end) if steps else [count - end] * (count > end)
        calls = ("prefill", "prefill", *["step" if steps else "prefill"] * len(rest))
        sessions.append(Session("continued", tokens, [cut, end - cut, *rest], calls))
    return [*sessions, Session("steps", tokens, [1] * count, ("step",) * count)] if steps else sessions
