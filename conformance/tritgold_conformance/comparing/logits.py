"""Logits at every position: how far, why, and whether it would matter to a reader of the text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tritgold_conformance.comparing.classify import classify
from tritgold_conformance.comparing.compare import incomparable
from tritgold_conformance.comparing.tie_sensitivity import measured_spread, relative_largest, relative_rms
from tritgold_conformance.comparing.ties import TIE, BrokenTie, first_off, near_ties, resolve_ties
from tritgold_conformance.golden.run import GoldenRun

# Float32 against golden, relative to the position's largest logit. Measured: 8.6e-7 over 400 models against
# transformers once ties are followed; a broken tie moves a row by 1e-4 and more, so little lies between.
LOGIT_NOISE = 2e-5
TOP_K = (1, 5, 10)
# Beyond so many codes near a tie at one position, which of them broke cannot be searched for.
SEARCHABLE = 128


@dataclass(frozen=True)
class Explained:
    """The golden logits behind the ties that are known or were found.

    allowed: None where that is an explanation to the last digit; else how far, as a relative root mean square, a
    position may be from the plain golden logits. largest: the same of one logit.
    """

    logits: np.ndarray
    ties: list[BrokenTie] = field(default_factory=list)
    allowed: float | None = None
    largest: float = 0.0


@dataclass(frozen=True)
class Position:
    """One position.

    max_abs, relative: largest |difference|, as it is and over the position's largest golden |logit|. explained:
    the same behind the ties that explain it; equal to ``relative`` where there are none. kl: golden || engine, nats.
    top_k: share of the golden top k that the engine has too, for each k of TOP_K. argmax: golden, engine.
    near_tie: they differ, but between tokens whose golden logits are closer than twice max_abs, at a position
    that passes. passed: explained is within LOGIT_NOISE, or the position within what the golden model's own spread
    allows.
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

    ties: those that explain it. allowed: the spread that was allowed instead, where ties were too many to search;
    largest: that of one logit. problem: why it failed; empty when it passed.
    """

    path: str
    positions: list[Position]
    ties: list[BrokenTie] = field(default_factory=list)
    allowed: float | None = None
    problem: str = ""
    largest: float = 0.0

    @property
    def passed(self) -> bool:
        """No position fails."""
        return not self.problem


def judge_logits(
    path: str, golden: GoldenRun, engine: object, known: Sequence[Explained] = (), search: bool = True
) -> LogitsVerdict:
    """Compare an engine's logits [tokens, vocab] with the golden ones, broken ties followed.

    known: explanations found before, from the engine's trace or on another path; tried first. search: look for ties
    where none of them holds; False saves the time for an engine that is known to be wrong.
    """
    problem = incomparable(golden.logits, engine)
    if problem:
        return LogitsVerdict(path, [], problem=problem)
    logits = np.asarray(engine, np.float64)
    if logits.shape[1] > 1 and not np.ptp(logits, axis=1).any():
        return LogitsVerdict(path, [], problem="degenerate: the logits are constant at every position")
    why = explain(golden, logits, known, search)
    plain = golden.logits.astype(np.float64)
    near = np.zeros(len(logits), bool)
    if why.allowed is not None:
        near = relative_rms(golden.logits, logits) <= why.allowed
        near &= relative_largest(golden.logits, logits) <= why.largest
    positions = [_position(t, plain[t], why.logits[t], logits[t], bool(near[t])) for t in range(len(logits))]
    return LogitsVerdict(path, positions, why.ties, why.allowed, _problem(positions, why, logits), why.largest)


def explain(golden: GoldenRun, logits: np.ndarray, known: Sequence[Explained], search: bool) -> Explained:
    """The first explanation that holds for every row; else what a search finds; else the plain golden logits."""
    for candidate in (Explained(golden.logits), *known):
        strict = candidate.allowed is None
        if strict and first_off(candidate.logits, logits, LOGIT_NOISE, 0) is None:
            return candidate
    if not search:
        return Explained(golden.logits)
    for candidate in known:
        if candidate.allowed is not None:  # measured before, on another path
            return candidate
    off = first_off(golden.logits, logits, LOGIT_NOISE, 0)
    count = sum(int((places[:, 0] == off).sum()) for _, places, _ in near_ties(golden, golden.trace, TIE))
    if count > SEARCHABLE:
        allowed, largest = measured_spread(golden)
        return Explained(golden.logits, allowed=allowed, largest=largest)
    resolved = resolve_ties(golden, logits, LOGIT_NOISE)
    return Explained(resolved.logits, resolved.ties)


def explain_trace(golden: GoldenRun, trace: Mapping[str, object], search: bool = True) -> tuple[Explained, bool]:
    """The broken ties that a trace's own logits tell of, where it shows no codes; and whether no tie can be hidden.

    None can where they explain the logits, or were searched for in vain: what no ties explain is wrong.
    """
    rows = trace.get("logits")
    if rows is None or incomparable(golden.logits, rows):
        return Explained(golden.logits), False
    logits = np.asarray(rows, np.float64)
    why = explain(golden, logits, (), search)
    told = why.allowed is None and (search or first_off(why.logits, logits, LOGIT_NOISE, 0) is None)
    return why, told


def _problem(positions: list[Position], why: Explained, logits: np.ndarray) -> str:
    failing = [p for p in positions if not p.passed]
    if not failing:
        return ""
    first = failing[0]
    rows = np.array([not p.passed for p in positions])
    wrong = np.abs(logits - why.logits) > 0
    kind = classify(why.logits[rows], logits[rows], wrong[rows])
    allowed = "no rounding tie explains it"
    if why.allowed is not None:
        allowed = f"broken ties move the golden logits by {why.allowed:.1e} at most, one by {why.largest:.1e}"
    return (
        f"{len(failing)} of {len(positions)} positions, first {first.position}: off by {first.explained:.2g} of the "
        f"largest logit, token {first.argmax[1]} for {first.argmax[0]}; {kind}; {allowed}"
    )


def _position(t: int, golden: np.ndarray, followed: np.ndarray, engine: np.ndarray, near: bool) -> Position:
    worst = float(np.abs(engine - golden).max())
    largest = max(float(np.abs(golden).max()), float(np.finfo(np.float32).tiny))
    explained = float(np.abs(engine - followed).max()) / largest
    best, chosen = int(np.argmax(golden)), int(np.argmax(engine))
    passed = explained <= LOGIT_NOISE or near
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
    p, q = _log_softmax(golden), _log_softmax(engine)
    return float((np.exp(p) * (p - q)).sum())


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def _overlap(golden: np.ndarray, engine: np.ndarray, k: int) -> float:
    """Ties at the k-th place go to the lower id on both sides."""
    first, second = (set(np.argsort(-x, kind="stable")[:k].tolist()) for x in (golden, engine))
    return len(first & second) / k
