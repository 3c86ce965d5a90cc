"""judge: one engine's answers about one golden run -> one report. A pure function: ``ask`` calls the engine."""

import shlex
from collections.abc import Callable

from tritgold.golden import DEFAULT
from tritgold.layers.arithmetic import Q8_K_ARITHMETIC
from tritgold_conformance.comparing.activation_statistics import side_by_side
from tritgold_conformance.comparing.compare import Comparison
from tritgold_conformance.comparing.next_tokens import TextVerdict, judge_text
from tritgold_conformance.comparing.statistics_bounds import judge_statistics
from tritgold_conformance.golden.run import GoldenRun
from tritgold_conformance.judging.accuracy import judge_accuracy
from tritgold_conformance.judging.behaviours import judge_behaviours
from tritgold_conformance.judging.comparisons import lacks, level_of, unknown_names
from tritgold_conformance.judging.coverage import coverage
from tritgold_conformance.judging.edge_cases import judge_edge_cases
from tritgold_conformance.judging.ladder import judge_ladder
from tritgold_conformance.judging.mode_matching import matched_mode
from tritgold_conformance.judging.packed_bytes import judge_packed_bytes
from tritgold_conformance.judging.paths import BOUNDS, Paths, judge_paths
from tritgold_conformance.judging.teacher_forced import judge_operations
from tritgold_conformance.judging.timed import judge_timed
from tritgold_conformance.questions.evidence import UNANSWERED, Evidence
from tritgold_conformance.results.levels import LEVELS, WEAKEST
from tritgold_conformance.results.report import Level, Report, Side, Verdict

OnProgress = Callable[[str], None]
EDGES = "its inputs are float32, and codes of them; the policy has others"


def judge(
    golden: GoldenRun,
    evidence: Evidence,
    model: str,
    options: tuple[str, ...] = (),
    on_progress: OnProgress = lambda _: None,
) -> Report:
    """Judge the evidence about a golden run.

    model: its name in the report. options: of the command line, to be repeated in ``reproduce``. Speed is shown only if
    every assessed level passed.
    """
    on_progress("judging")
    packed, from_bytes = _packed_bytes(evidence)
    first, comparisons, not_assessed = _operations(golden, evidence)
    first["statistics"], from_statistics = _statistics(golden, evidence)
    paths = judge_paths(golden, evidence, any(level.status == "failed" for level in first.values()))
    next_tokens, text = _next_tokens(golden, evidence)
    on_progress("judging the ladder")
    failed = any(level.status == "failed" for level in paths.levels.values())
    ladder, wrong_sessions = judge_ladder(golden, evidence, paths.known, failed)
    behaved, wrong_answers = judge_behaviours(golden, evidence)
    levels = {"packed_bytes": packed, **first, **paths.levels, **ladder, "timed": judge_timed(golden, evidence)}
    accuracy, lost = judge_accuracy(golden, evidence)
    levels |= {"next_tokens": next_tokens, **behaved, WEAKEST: accuracy}
    verdict = verdict_of(levels)
    wrong = [*wrong_sessions, *wrong_answers, *lost]
    diverged = _first_divergence(golden, from_bytes, [*comparisons, *from_statistics], paths, wrong)
    only = (
        diverged.name
        if diverged is not None and any(diverged is c for c in comparisons) and " [" not in diverged.name
        else ""
    )
    speed, reference_speed = (evidence.speed, evidence.reference_speed) if verdict == "conforms" else (None, None)
    free = paths.free
    return Report(
        verdict=verdict,
        engine=Side(name=evidence.name, versions=evidence.versions, speed=speed),
        reference=Side(name="reference", versions=evidence.reference, speed=reference_speed),
        mode=evidence.mode,
        model=model,
        model_hash=golden.trace.model_hash,
        config=golden.checkpoint.config.as_dict(),
        tokens=golden.tokens,
        machine=evidence.machine,
        levels={name: levels[name] for name in LEVELS},
        coverage=coverage(golden, evidence, {name: levels[name] for name in LEVELS}),
        first_divergence=diverged,
        operations=comparisons,
        not_assessed=not_assessed + ([] if free is None else free.missing),
        free_run=paths.free_run,
        ties=[] if free is None else free.ties,
        noise=free.worst if free is not None and free.compared else None,
        logits=paths.logits,
        text=text,
        statistics=side_by_side(golden.trace.arrays, evidence.trace, evidence.statistics),
        repeat=_command(evidence, model, options, ""),
        reproduce=_command(evidence, model, options, only),
        matches=_other_mode(golden, evidence, levels, paths, on_progress),
    )


def _packed_bytes(evidence: Evidence) -> tuple[Level, list[Comparison]]:
    if not evidence.has("unpack"):
        return lacks("the engine has no unpack()"), []
    return level_of(judge_packed_bytes(evidence.packed))


def _operations(golden: GoldenRun, evidence: Evidence) -> tuple[dict[str, Level], list[Comparison], list[str]]:
    """The levels operations and edge_cases, all comparisons, and the names that are not assessed."""
    if not evidence.has("operation") or golden.plain == Q8_K_ARITHMETIC:
        why = BOUNDS if evidence.has("operation") else "the engine has no operation()"
        return {"operations": lacks(why), "edge_cases": lacks(why)}, [], []
    operations, compared = level_of(judge_operations(golden, evidence.operations))
    edges, compared_edges = lacks(EDGES), list[Comparison]()
    if not golden.policy.unit and golden.policy.quantised:
        edges, compared_edges = level_of(judge_edge_cases(golden, evidence.edges))
    levels = {"operations": operations, "edge_cases": edges}
    return levels, [*compared, *compared_edges], [*operations.absent, *edges.absent]


def _statistics(golden: GoldenRun, evidence: Evidence) -> tuple[Level, list[Comparison]]:
    given = evidence.statistics
    if not given:
        return lacks("the engine gives no statistics()"), []
    level, comparisons = level_of(judge_statistics(golden, given))
    unknown = sorted(given.keys() - golden.trace.arrays.keys())
    if unknown:
        level.note = "; ".join(filter(None, (level.note, unknown_names(unknown))))
    return level, comparisons


def _next_tokens(golden: GoldenRun, evidence: Evidence) -> tuple[Level, TextVerdict | None]:
    if not evidence.has("complete"):
        return lacks("the engine has no complete()"), None
    if not any(evidence.next_tokens):
        return lacks("the engine gave no next tokens"), None
    text = judge_text(golden, evidence.next_tokens)
    errors = [(name, said) for name, said in evidence.refused.items() if name.startswith(UNANSWERED)]
    unanswered = [f"{len(errors)} positions unanswered, first {errors[0][0]}: {errors[0][1]}"] if errors else []
    level = Level(
        status="failed" if text.failing else "passed",
        compared=len(text.positions),
        failed=len(text.failing),
        not_assessed=text.absent,
        note="; ".join([text.note, *unanswered]),
    )
    return level, text


def _other_mode(
    golden: GoldenRun, evidence: Evidence, levels: dict[str, Level], paths: Paths, on_progress: OnProgress
) -> str:
    """Another mode that its logits and next tokens match, if they fail in their own mode; otherwise empty."""
    if all(levels[name].status != "failed" for name in ("logits", "continued", "steps", "next_tokens")):
        return ""
    on_progress("other modes")
    judged = {verdict.path: evidence.logits[_LEVEL_OF.get(verdict.path, verdict.path)] for verdict in paths.logits}
    return matched_mode(golden, judged, evidence.next_tokens)


_LEVEL_OF = {"prefill": "logits"}


def _first_divergence(
    golden: GoldenRun,
    from_bytes: list[Comparison],
    compared: list[Comparison],
    paths: Paths,
    wrong_answers: list[Comparison],
) -> Comparison | None:
    """The first failure: of packed bytes; then of operations and the trace, in execution order; then of behaviours."""
    order = list(golden.trace.arrays)
    for c in from_bytes:
        if not c.passed:
            return c
    failed = [c for c in compared if not c.passed]
    if paths.free is not None and paths.free.divergence is not None:
        failed.append(paths.free.divergence)
    first = min(failed, key=lambda c: order.index(c.name.partition(" [")[0]), default=None)
    if first is None and all(level.status != "failed" for level in paths.levels.values()):
        return next(iter(wrong_answers), None)
    return first


def _command(evidence: Evidence, model: str, options: tuple[str, ...], only: str) -> str:
    where = () if model == DEFAULT else ("--model", model)
    alone = ("--only", only) if only else ()
    ids = ",".join(map(str, evidence.tokens))
    return shlex.join(["tritgold", "check", "--engine", evidence.spec, *where, *options, *alone, "--ids", ids])


def verdict_of(levels: dict[str, Level]) -> Verdict:
    """The verdict of all levels: one that failed is enough to fail; to conform one besides WEAKEST must have passed."""
    if any(level.status == "failed" for level in levels.values()):
        return "does not conform"
    passed = any(level.status == "passed" for name, level in levels.items() if name != WEAKEST)
    return "conforms" if passed else "nothing was checked"
