"""judge: one engine, one model, one input -> one report. The levels in order, from the surest verdict to the widest."""

import shlex

import numpy as np

from tritgold.modes import GOLDEN
from tritgold.trace import versions
from tritgold_conformance.compare import Comparison
from tritgold_conformance.engine import Candidate
from tritgold_conformance.engines.reference import ReferenceEngine
from tritgold_conformance.free_running import FreeRunning, compare_traces
from tritgold_conformance.golden import GoldenRun
from tritgold_conformance.logits import LogitsVerdict, judge_logits
from tritgold_conformance.report import Level, Report, Side, Status, Verdict, machine
from tritgold_conformance.speed import measure_speed
from tritgold_conformance.statistics import side_by_side
from tritgold_conformance.teacher_forced import judge_operations
from tritgold_conformance.ties import follow_ties


def judge(golden: GoldenRun, engine: Candidate, model: str, with_speed: bool = True) -> Report:
    """Judge an engine on one golden run.

    model: what to call the model in the report. An engine's own exception is an EngineError: it could not be
    judged, which is neither a pass nor a failure. Speed is measured only where every assessed level passed.
    """
    levels: dict[str, Level] = {}
    comparisons, absent = _operations(golden, engine, levels)
    trace, free = _trace(golden, engine, levels)
    verdicts = [_prefill(golden, engine, levels)]
    if engine.has("step"):
        verdicts.append(_steps(golden, engine, levels))
    else:
        levels["steps"] = Level(status="not assessed", note="the engine has no step()")
    verdict = _verdict(levels)
    passed = verdict == "conforms"
    reference = Candidate(ReferenceEngine(golden.checkpoint))
    return Report(
        verdict=verdict,
        engine=_side(engine, golden.tokens, with_speed and passed),
        reference=_side(reference, golden.tokens, with_speed and passed),
        mode=GOLDEN.id,
        model=model,
        model_hash=golden.trace.model_hash,
        config=golden.checkpoint.config.as_dict(),
        tokens=golden.tokens,
        machine={**machine(), **versions()},
        levels=levels,
        first_divergence=_first(comparisons, free),
        operations=comparisons,
        not_assessed=absent + ([] if free is None else free.missing),
        ties=[] if free is None else free.ties,
        noise=None if free is None else free.worst,
        logits=verdicts,
        statistics=side_by_side(golden.trace.arrays, trace),
        reproduce=_command(engine.spec, model, golden.tokens),
    )


def _operations(golden: GoldenRun, engine: Candidate, levels: dict[str, Level]) -> tuple[list[Comparison], list[str]]:
    if not engine.has("operation"):
        levels["operations"] = Level(status="not assessed", note="the engine has no operation()")
        return [], []
    outcomes = list(judge_operations(golden, engine))
    comparisons = [c for c in outcomes if isinstance(c, Comparison)]
    absent = [name for name in outcomes if isinstance(name, str)]
    failed = [c for c in comparisons if not c.passed]
    levels["operations"] = Level(
        status="failed" if failed else "passed" if comparisons else "not assessed",
        compared=len(comparisons),
        failed=len(failed),
        not_assessed=len(absent),
        note=_operations_note(comparisons),
    )
    return comparisons, absent


def _operations_note(comparisons: list[Comparison]) -> str:
    failed = [c for c in comparisons if not c.passed]
    if failed:
        return f"first: {failed[0].name}: {failed[0].what}"
    counts = {v: sum(c.verdict == v for c in comparisons) for v in ("equal", "within", "ties")}
    return ", ".join(f"{n} {verdict}" for verdict, n in counts.items() if n)


def _trace(
    golden: GoldenRun, engine: Candidate, levels: dict[str, Level]
) -> tuple[dict[str, object], FreeRunning | None]:
    if not engine.has("trace"):
        levels["trace"] = Level(status="not assessed", note="the engine has no trace()")
        return {}, None
    trace = engine.trace(golden.tokens)
    followed, ties = follow_ties(golden, trace)
    free = compare_traces(followed.arrays, trace)
    free.ties = ties
    status: Status = "failed" if free.divergence else "passed" if free.compared else "not assessed"
    levels["trace"] = Level(
        status=status,
        compared=len(free.compared),
        failed=int(free.divergence is not None),
        not_assessed=len(free.missing),
        note=_trace_note(free),
    )
    return trace, free if free.compared else None


def _trace_note(free: FreeRunning) -> str:
    if free.divergence:
        return f"first divergence: {free.divergence.name}: {free.divergence.what}"
    ties = f"; {len(free.ties)} broken ties followed" if free.ties else ""
    return f"float noise at most {free.worst:.1e} of the token's largest value{ties}"


def _prefill(golden: GoldenRun, engine: Candidate, levels: dict[str, Level]) -> LogitsVerdict:
    verdict = judge_logits("prefill", golden, engine.prefill(golden.tokens))
    levels["logits"] = _logits_level(verdict)
    return verdict


def _steps(golden: GoldenRun, engine: Candidate, levels: dict[str, Level]) -> LogitsVerdict:
    engine.reset()
    rows = [engine.step(token) for token in golden.tokens]
    widths = {row.shape for row in rows}
    verdict = judge_logits("steps", golden, np.stack(rows) if len(widths) == 1 else None)
    levels["steps"] = _logits_level(verdict)
    return verdict


def _logits_level(verdict: LogitsVerdict) -> Level:
    note = verdict.problem
    if not note:
        note = f"at most {max(p.explained for p in verdict.positions):.1e} of the largest logit"
        note += f"; {len(verdict.ties)} broken ties followed" if verdict.ties else ""
    return Level(
        status="passed" if verdict.passed else "failed",
        compared=len(verdict.positions),
        failed=sum(not p.passed for p in verdict.positions) or int(not verdict.passed),
        note=note,
    )


def _verdict(levels: dict[str, Level]) -> Verdict:
    statuses = {level.status for level in levels.values()}
    if "failed" in statuses:
        return "does not conform"
    return "conforms" if "passed" in statuses else "nothing was checked"


def _first(comparisons: list[Comparison], free: FreeRunning | None) -> Comparison | None:
    """The teacher-forced failure where there is one: the free-running walk may name a later, cascaded one."""
    failed = next((c for c in comparisons if not c.passed), None)
    return failed if failed is not None or free is None else free.divergence


def _side(engine: Candidate, tokens: list[int], with_speed: bool) -> Side:
    speed = measure_speed(engine, tokens) if with_speed else None
    return Side(name=engine.name, versions=engine.versions(), speed=speed)


def _command(engine: str, model: str, tokens: list[int]) -> str:
    where = [] if model == "embedded" else ["--model", model]
    return shlex.join(["tritgold", "check", "--engine", engine, *where, "--ids", ",".join(map(str, tokens))])
