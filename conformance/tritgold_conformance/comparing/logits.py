"""Logits at every position: how much they differ, why, and whether the text would change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tritgold_conformance.comparing.classify import classify
from tritgold_conformance.comparing.compare import incomparable
from tritgold_conformance.comparing.tie_search import MAX_TRIALS, resolve_ties
from tritgold_conformance.comparing.tie_sensitivity import measured_spread, relative_largest, relative_rms
from tritgold_conformance.comparing.ties import BrokenTie, first_off
from tritgold_conformance.golden.run import GoldenRun

# Float32 against golden, relative to the position's largest logit. Measured: 8.6e-7 over 400 models against
# transformers once ties are followed; a broken tie changes a row by 1e-4 or more, so the two are well separated.
LOGIT_NOISE = 2e-5
TOP_K = (1, 5, 10)


@dataclass(frozen=True)
class Explained:
    """The golden logits after the ties that are known or were found.

    allowed: None if the ties explain the logits to within noise; otherwise how much, as a relative root mean square, a
    position may differ from the plain golden logits. largest: the same for one logit.
    """

    logits: np.ndarray
    ties: list[BrokenTie] = field(default_factory=list)
    allowed: float | None = None
    largest: float = 0.0

    def first(self, count: int) -> "Explained":
        """The same for the first ``count`` positions."""
        return replace(self, logits=self.logits[:count], ties=[tie for tie in self.ties if tie.position < count])


@dataclass(frozen=True)
class Position:
    """One position.

    max_abs, relative: largest |difference|, absolute and divided by the position's largest golden |logit|. explained:
    the same after the ties that explain it; equal to ``relative`` without ties. kl: KL(golden || engine), nats.
    top_k: share of the golden top k that is in the engine's top k, for each k of TOP_K. argmax: golden, engine.
    near_tie: they differ, but between tokens whose golden logits are closer than twice max_abs, at a position
    that passes. passed: explained is within LOGIT_NOISE, or the position within the golden model's own spread.
    """

    position: int
    max_abs: float
    relative: float
    explained: float
    kl: float
    top_k: dict[int, float]
    argmax: tuple[int, int]
    near_tie: bool
    passed: bool


@dataclass(frozen=True)
class LogitsVerdict:
    """All positions of one path (``prefill``, ``continued``, ``steps``).

    ties: those that explain it. allowed: the allowed spread, if there were too many ties to search; largest: the spread
    of one logit. problem: why it failed; empty if it passed.
    """

    path: str
    positions: list[Position]
    ties: list[BrokenTie] = field(default_factory=list)
    allowed: float | None = None
    problem: str = ""
    largest: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether no position fails."""
        return not self.problem


def judge_logits(
    path: str, golden: GoldenRun, engine: object, known: Sequence[Explained] = (), trials: int = MAX_TRIALS
) -> LogitsVerdict:
    """Compare an engine's logits [tokens, vocab] with the golden ones, with broken ties followed.

    known: earlier explanations, from the engine's trace or another path; tried first. trials: sets of
    ties that are tried at a position if none of them holds: fewer, or 0, for an engine that is known to be wrong.
    """
    found = judge_rows(golden, engine, known, trials)
    if not found.why:
        return LogitsVerdict(path, [], problem=found.problem)
    logits, plain, why = np.asarray(engine, np.float64), golden.logits.astype(np.float64), found.why
    rows = range(len(logits))
    positions = [_position(t, plain[t], why.logits[t], logits[t], not found.failing[t]) for t in rows]
    return LogitsVerdict(path, positions, why.ties, why.allowed, found.problem, why.largest)


@dataclass(frozen=True)
class Rows:
    """Judged rows of logits. failing: bool [tokens]. why: what explains the others; None if nothing was comparable.

    worst: largest |difference| after the ties followed, relative to the largest logit of its row. problem: empty if
    none fails.
    """

    problem: str
    failing: np.ndarray
    why: Explained | None = None
    worst: float = np.inf


def judge_rows(golden: GoldenRun, engine: object, known: Sequence[Explained] = (), trials: int = MAX_TRIALS) -> Rows:
    """Judge logits [tokens, vocab] as ``judge_logits`` does, without the figures of each position."""
    problem = incomparable(golden.logits, engine)
    everything = np.ones(len(golden.tokens), bool)
    if problem:
        return Rows(problem, everything)
    logits = np.asarray(engine, np.float64)
    if logits.shape[1] > 1 and not np.ptp(logits, axis=1).any():
        return Rows("degenerate: the logits are constant at every position", everything)
    why = explain(golden, logits, known, trials)
    explained = np.abs(logits - why.logits).max(axis=1) / _largest(golden.logits)
    failing = ~(explained <= noise_of(golden))
    if why.allowed is not None:
        far = relative_rms(golden.logits, logits) > why.allowed
        failing &= far | (relative_largest(golden.logits, logits) > why.largest)
    return Rows(_problem(failing, explained, golden, why, logits, trials), failing, why, float(explained.max()))


def noise_of(golden: GoldenRun) -> float:
    """How far a logit may be off after ties are followed, relative to the row's largest: float32, and its own type."""
    return LOGIT_NOISE + golden.policy.logits


def _largest(rows: np.ndarray) -> np.ndarray:
    """float64 [tokens], never 0."""
    largest: np.ndarray = np.abs(rows).max(axis=1).astype(np.float64)
    return np.maximum(largest, np.finfo(np.float32).tiny)


def explain(golden: GoldenRun, logits: np.ndarray, known: Sequence[Explained], trials: int) -> Explained:
    """The first explanation that holds for every row.

    Otherwise the result of a search, which continues from the one that holds for most rows; without trials the plain
    golden logits. Roundings of a policy are not searched, so that they are always allowed for.
    """
    strict = [Explained(golden.logits), *(e for e in known if e.allowed is None)]
    noise = noise_of(golden)
    off = [first_off(e.logits, logits, noise, 0) for e in strict]
    if None in off:
        return strict[off.index(None)]
    if not trials and golden.policy.followed:
        return strict[0]
    for candidate in known:
        if candidate.allowed is not None:  # measured earlier, for another path
            return candidate
    best = strict[int(np.argmax([position or 0 for position in off]))]
    resolved = None
    if golden.policy.followed:
        resolved = resolve_ties(golden, logits, noise, start=(best.logits, best.ties), trials=trials)
    if resolved is None or resolved.many:
        allowed, largest = measured_spread(golden)
        return Explained(golden.logits, allowed=allowed, largest=largest)
    return Explained(resolved.logits, resolved.ties)


def explain_trace(golden: GoldenRun, trace: Mapping[str, object], trials: int = MAX_TRIALS) -> tuple[Explained, bool]:
    """The broken ties that a trace's own logits show, for a trace without codes; and whether no tie can be hidden.

    No tie can be hidden if ties explain the logits, or if a search found none: what ties do not explain is wrong.
    """
    rows = trace.get("logits")
    if rows is None or incomparable(golden.logits, rows):
        return Explained(golden.logits), False
    logits = np.asarray(rows, np.float64)
    why = explain(golden, logits, (), trials)
    told = why.allowed is None and (trials == MAX_TRIALS or first_off(why.logits, logits, noise_of(golden), 0) is None)
    return why, told


def _problem(
    failing: np.ndarray, explained: np.ndarray, golden: GoldenRun, why: Explained, logits: np.ndarray, trials: int
) -> str:
    if not failing.any():
        return ""
    first = int(np.argmax(failing))
    wrong = np.abs(logits - why.logits) > 0
    kind = classify(why.logits[failing], logits[failing], wrong[failing])
    few = "few sets of rounding ties were tried" if trials else "rounding ties were not searched"
    allowed = "no rounding tie explains it" if trials == MAX_TRIALS else f"{few}, as another level failed"
    if why.allowed is not None:
        allowed = f"{moved_by(golden)} move the golden logits by {why.allowed:.1e} at most, one by {why.largest:.1e}"
    return (
        f"{int(failing.sum())} of {len(failing)} positions, first {first}: off by {explained[first]:.2g} of the "
        f"largest logit, token {int(np.argmax(logits[first]))} for {int(np.argmax(golden.logits[first]))}; "
        f"{kind}; {allowed}"
    )


def moved_by(golden: GoldenRun) -> str:
    """The cause of the golden model's own spread, in words."""
    return "broken ties" if golden.policy.followed else f"roundings of policy {golden.policy.name}"


def _position(t: int, golden: np.ndarray, followed: np.ndarray, engine: np.ndarray, passed: bool) -> Position:
    worst = float(np.abs(engine - golden).max())
    largest = max(float(np.abs(golden).max()), float(np.finfo(np.float32).tiny))
    explained = float(np.abs(engine - followed).max()) / largest
    best, chosen = int(np.argmax(golden)), int(np.argmax(engine))
    return Position(
        position=t,
        max_abs=worst,
        relative=worst / largest,
        explained=explained,
        kl=_kl(golden, engine),
        top_k={k: _overlap(golden, engine, k) for k in TOP_K if k <= golden.size},
        argmax=(best, chosen),
        near_tie=best != chosen and passed and bool(golden[best] - golden[chosen] <= 2 * worst),
        passed=passed,
    )


def _kl(golden: np.ndarray, engine: np.ndarray) -> float:
    p, q = log_softmax(golden), log_softmax(engine)
    return float((np.exp(p) * (p - q)).sum())


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """float64, over the last axis of finite logits."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    found: np.ndarray = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return found


def _overlap(golden: np.ndarray, engine: np.ndarray, k: int) -> float:
    """Share of the golden top k in the engine's top k. Equal logits at the k-th place: the lower id is chosen."""
    first, second = (set(np.argsort(-x, kind="stable")[:k].tolist()) for x in (golden, engine))
    return len(first & second) / k
