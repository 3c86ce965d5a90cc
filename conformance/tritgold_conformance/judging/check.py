"""check: ask an engine once, judge what it answered, and time it where it conforms."""

from tritgold_conformance.comparing.compare import Comparison
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.engines.ask import OnProgress, ask, ask_as_declared, ask_operations, with_speed
from tritgold_conformance.golden.run import GoldenRun
from tritgold_conformance.judging.judge import judge, verdict_of
from tritgold_conformance.judging.teacher_forced import judge_operations, named
from tritgold_conformance.judging.timed import judge_timed
from tritgold_conformance.questions.evidence import Evidence
from tritgold_conformance.questions.ladder import Ladder
from tritgold_conformance.questions.request_batch import OperationInput
from tritgold_conformance.results.report import Report, with_speeds


def check(
    golden: GoldenRun,
    engine: EngineUnderTest,
    model: str,
    timed: bool = True,
    options: tuple[str, ...] = (),
    on_progress: OnProgress = lambda _: None,
    ladder: Ladder | None = None,
    as_declared: bool = False,
) -> tuple[Report, Evidence]:
    """The report of an engine and the evidence that it was made of.

    timed: measure tokens/s where it conforms. ladder: ask more than one text. as_declared: judge by the precision that
    the engine's answers declare, where that is another than the golden run's.
    """
    if as_declared:
        golden, evidence = ask_as_declared(engine, golden, on_progress, ladder)
    else:
        evidence = ask(engine, golden, on_progress, ladder)
    report = judge(golden, evidence, model, options, on_progress)
    if timed and report.verdict == "conforms":
        evidence = with_speed(evidence, engine, golden, on_progress)
        level = judge_timed(golden, evidence)
        verdict = verdict_of({**report.levels, "timed": level})
        report = with_speeds(report, evidence.speed, evidence.reference_speed, level, verdict)
    return report, evidence


def check_operation(golden: GoldenRun, engine: EngineUnderTest, only: str) -> list[Comparison | str]:
    """One operation on golden inputs: what ``reproduce`` asks for."""
    asked = [OperationInput(operation, inputs) for operation, inputs in named(golden, only)]
    return list(judge_operations(golden, ask_operations(engine, asked), only))
