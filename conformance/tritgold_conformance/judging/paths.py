"""Levels logits, continued, steps and trace: whole runs of the engine, in which broken ties are told apart from bugs.

What explains one path is tried first on the next path.
"""

from dataclasses import dataclass, field

from tritgold.layers.arithmetic import Q8_K_ARITHMETIC
from tritgold.modes import GOLDEN
from tritgold.trace import Trace
from tritgold.trace_names import TraceName
from tritgold_conformance.comparing.error_map import error_map
from tritgold_conformance.comparing.free_running import FreeRunning, compare_traces
from tritgold_conformance.comparing.logits import Explained, LogitsVerdict, explain_trace, judge_logits, moved_by
from tritgold_conformance.comparing.tie_search import FEW_TRIALS, MAX_TRIALS
from tritgold_conformance.comparing.tie_sensitivity import trace_spread
from tritgold_conformance.comparing.ties import BrokenTie, follow_ties
from tritgold_conformance.contract.session import cuts
from tritgold_conformance.golden.run import GoldenRun
from tritgold_conformance.judging.comparisons import lacks, unknown_names
from tritgold_conformance.questions.evidence import Evidence
from tritgold_conformance.results.report import FreeRun, Level

BOUNDS = f"bounds are known for mode {GOLDEN.id} alone"
_VERDICT_NAMES = {"logits": "prefill"}  # of a level, in LogitsVerdict.path


@dataclass(frozen=True)
class Paths:
    """Levels, verdicts on logits in the order of judging, and the trace with its errors.

    known: the explanations of the logits of the judged text.
    """

    levels: dict[str, Level]
    logits: list[LogitsVerdict]
    free: FreeRunning | None
    free_run: FreeRun | None
    known: list[Explained]


@dataclass(frozen=True)
class _Judged:
    """The results after a path. broken: the engine is already known to be wrong, so few sets of ties are tried."""

    broken: bool
    levels: dict[str, Level] = field(default_factory=dict)
    logits: list[LogitsVerdict] = field(default_factory=list)
    known: list[Explained] = field(default_factory=list)

    @property
    def trials(self) -> int:
        """Sets of ties that are tried at a position."""
        return FEW_TRIALS if self.broken else MAX_TRIALS


def judge_paths(golden: GoldenRun, evidence: Evidence, broken: bool) -> Paths:
    """Judge the logits of every path, and the trace. broken: an operation or the statistics have failed."""
    trace = evidence.trace
    if not golden.policy.followed:
        return _by_policy(golden, evidence, broken)
    shows_codes = _codes(golden.trace) <= trace.keys()
    followed, ties, first = golden.trace, list[BrokenTie](), list[Explained]()
    if shows_codes:
        followed, ties = follow_ties(golden, trace, ())
        first = [Explained(followed["logits"], ties)] if ties else []
    judged = _path(golden, evidence, "logits", _Judged(broken, known=first))
    told = shows_codes
    if not shows_codes:
        judged, followed, ties, told = _followed_by_logits(golden, evidence, judged)
    level, free, free_run = _free_run(golden, evidence, followed, ties, strict=told)
    judged = _with(judged, "trace", level)
    for path in ("continued", "steps"):
        judged = judged if path in judged.levels else _path(golden, evidence, path, judged)
    return Paths(judged.levels, judged.logits, free, free_run, judged.known)


def _by_policy(golden: GoldenRun, evidence: Evidence, broken: bool) -> Paths:
    """The same for an engine with a policy whose roundings are too many to follow: each path is judged alone."""
    judged = _path(golden, evidence, "logits", _Judged(broken))
    level, free, free_run = _free_run(golden, evidence, golden.trace, [], strict=False)
    judged = _with(judged, "trace", level)
    for path in ("continued", "steps"):
        judged = _path(golden, evidence, path, judged)
    return Paths(judged.levels, judged.logits, free, free_run, judged.known)


def _path(golden: GoldenRun, evidence: Evidence, path: str, before: _Judged) -> _Judged:
    logits = evidence.logits.get(path)
    if logits is None:
        return _with(before, path, lacks(_absent(evidence, path)))
    verdict = judge_logits(_VERDICT_NAMES.get(path, path), golden, logits, before.known, before.trials)
    level = Level(
        status="passed" if verdict.passed else "failed",
        compared=len(verdict.positions),
        failed=sum(not p.passed for p in verdict.positions) or int(not verdict.passed),
        note=verdict.problem or _logits_note(verdict, golden),
    )
    known = before.known
    if verdict.passed and verdict.positions:
        known = [*known, _explanation(verdict, golden, known)]
    judged = _with(before, path, level)
    return _Judged(judged.broken, judged.levels, [*before.logits, verdict], known)


def _with(before: _Judged, name: str, level: Level) -> _Judged:
    broken = before.broken or level.status == "failed"
    return _Judged(broken, {**before.levels, name: level}, before.logits, before.known)


def _absent(evidence: Evidence, path: str) -> str:
    method = "step" if path == "steps" else "prefill"
    if not evidence.has(method):
        return f"the engine has no {method}()"
    cut, _ = cuts(len(evidence.tokens))
    return "the input is too short to be cut" if path == "continued" and not cut else "the engine gave no logits"


def _followed_by_logits(
    golden: GoldenRun, evidence: Evidence, judged: _Judged
) -> tuple[_Judged, Trace, list[BrokenTie], bool]:
    """Follow the ties that the logits show, for a trace without codes; and whether no other tie can be hidden.

    The logits are those of the prefill, of the trace itself, or of the steps. What ties do not explain is wrong.
    """
    searched, trace = not judged.broken, evidence.trace
    if not judged.logits and "logits" in trace:
        why, told = explain_trace(golden, trace, judged.trials)
        followed, ties = follow_ties(golden, trace, why.ties)
        known = [*judged.known, *_told_by(followed, ties), *([why] if why.allowed is not None else [])]
        return _Judged(judged.broken, judged.levels, judged.logits, known), followed, ties, told
    if not judged.logits and trace:
        judged = _path(golden, evidence, "steps", judged)
    verdict = judged.logits[0] if judged.logits else None
    followed, ties = follow_ties(golden, trace, verdict.ties if verdict else ())
    told = verdict is not None and verdict.allowed is None and (verdict.passed or searched)
    known = [*judged.known, *_told_by(followed, ties)]
    return _Judged(judged.broken, judged.levels, judged.logits, known), followed, ties, told


def _told_by(followed: Trace, ties: list[BrokenTie]) -> list[Explained]:
    return [Explained(followed["logits"], ties)] if ties else []


def _free_run(
    golden: GoldenRun, evidence: Evidence, followed: Trace, ties: list[BrokenTie], strict: bool
) -> tuple[Level, FreeRunning | None, FreeRun | None]:
    """The level trace. strict: all ties are known; otherwise some may be hidden, because the trace shows no codes."""
    trace, count = evidence.trace, len(golden.tokens)
    if not trace:
        unbounded = golden.plain == Q8_K_ARITHMETIC
        return lacks(BOUNDS if unbounded else "the engine shows no trace()"), None, None
    spread = None if strict else trace_spread(golden)
    free = compare_traces(followed.arrays, trace, count, spread, golden.policy.followed, golden.policy.logits)
    free.ties = ties
    unknown = sorted(trace.keys() - golden.trace.arrays.keys())
    level = Level(
        status="failed" if free.divergence else "passed" if free.compared else "not assessed",
        compared=len(free.compared),
        failed=int(free.divergence is not None),
        not_assessed=len(free.missing),
        absent=free.missing,
        note=_trace_note(free, unknown, golden, hidden=not strict),
    )
    errors = error_map(followed.arrays, trace, count)
    return level, free, FreeRun(compared=free.compared, divergence=free.divergence, errors=errors)


def _codes(trace: Trace) -> set[str]:
    return {name for name in trace.arrays if TraceName.of(name).role == "codes"}


def _explanation(verdict: LogitsVerdict, golden: GoldenRun, known: list[Explained]) -> Explained:
    """The explanation of this path, to be tried first on the next one."""
    if verdict.allowed is not None:
        return Explained(golden.logits, allowed=verdict.allowed, largest=verdict.largest)
    same = next((e for e in known if e.ties == verdict.ties and e.allowed is None), None)
    if same is not None or not verdict.ties:
        return same or Explained(golden.logits)
    followed, ties = follow_ties(golden, {}, verdict.ties)
    return Explained(followed["logits"], ties)


def _trace_note(free: FreeRunning, unknown: list[str], golden: GoldenRun, hidden: bool) -> str:
    """The divergence, or the noise. hidden: the trace has no codes, and the logits did not show the broken ties."""
    if free.divergence:
        return f"first divergence: {free.divergence.name}: {free.divergence.what}"
    notes = []
    if free.compared and golden.policy.followed:
        notes.append(f"float noise at most {free.worst:.1e} of the token's largest value")
    if free.ties:
        notes.append(f"broken ties followed: {len(free.ties)}")
    if not golden.policy.followed:
        notes.append(f"held to what {moved_by(golden)} do to the golden model's own trace")
    elif hidden:
        blind = f"{int(free.blind.sum())} of {len(free.blind)} positions"
        notes.append(
            f"the trace shows no codes: {blind} see one near a tie, where a broken tie and a bug look alike, "
            "and are held to what breaking ties at random does to the golden model's own trace"
        )
    if unknown:
        notes.append(unknown_names(unknown))
    return "; ".join(notes)


def _logits_note(verdict: LogitsVerdict, golden: GoldenRun) -> str:
    """The largest difference, broken ties, and whether the most likely tokens are the same."""
    positions = verdict.positions
    equal = sum(p.argmax[0] == p.argmax[1] for p in positions)
    near = sum(p.near_tie for p in positions)
    if verdict.allowed is not None:
        why = "ties too many to search" if golden.policy.followed else moved_by(golden)
        note = f"at most {max(p.relative for p in positions):.1e} of the largest logit; {why}, "
        note += f"held to the golden model's own spread of {verdict.allowed:.1e}"
    else:
        note = f"at most {max(p.explained for p in positions):.1e} of the largest logit"
    if verdict.ties:
        note += f"; broken ties followed: {len(verdict.ties)}"
    note += f"; argmax equal at {equal} of {len(positions)}" + (f" ({near} near ties)" if near else "")
    return f"{note}, KL at most {max(p.kl for p in positions):.1e}"
