"""Ask an engine, then judge or diagnose it, in one call, as the commands do."""

from collections.abc import Iterator
from typing import Any

from tritgold_conformance.comparing.compare import Comparison
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.diagnosis import diagnose as diagnosing
from tritgold_conformance.engines.ask import ask, ask_operations
from tritgold_conformance.golden.run import GoldenRun
from tritgold_conformance.judging import edge_cases, teacher_forced
from tritgold_conformance.judging.check import check
from tritgold_conformance.questions.edge_inputs import edge_inputs
from tritgold_conformance.questions.request_batch import OperationInput
from tritgold_conformance.results.diagnosis import Diagnosis
from tritgold_conformance.results.report import Report


def judge(golden: GoldenRun, engine: EngineUnderTest, model: str, with_speed: bool = True) -> Report:
    """The report of ``tritgold check``, without a diagnosis."""
    return check(golden, engine, model, timed=with_speed)[0]


def diagnose(golden: GoldenRun, engine: EngineUnderTest, *arguments: Any, **options: Any) -> Diagnosis:
    """The result of ``tritgold diagnose``."""
    return diagnosing.diagnose(golden, ask(engine, golden), *arguments, **options)


def judge_operations(golden: GoldenRun, engine: EngineUnderTest, only: str = "") -> Iterator[Comparison | str]:
    """The comparisons of level operations."""
    answers = ask_operations(engine, [OperationInput(*one) for one in teacher_forced.named(golden, only)])
    return teacher_forced.judge_operations(golden, answers, only)


def judge_edge_cases(golden: GoldenRun, engine: EngineUnderTest) -> Iterator[Comparison | str]:
    """The comparisons of level edge_cases."""
    asked = [OperationInput(operation, inputs) for operation, _, inputs in edge_inputs(golden)]
    return edge_cases.judge_edge_cases(golden, ask_operations(engine, asked))
