"""Logits at every position: how far, and whether it would matter to a reader of the text."""

from dataclasses import dataclass, field

import numpy as np

from tritgold_conformance.compare import incomparable
from tritgold_conformance.golden import GoldenRun
from tritgold_conformance.ties import BrokenTie, resolve_ties

# Float32 against golden, relative to the position's largest logit. Measured: 8.6e-7 over 400 models against
# transformers once ties are followed; a broken tie moves a row by 1e-4 and more, so little lies between.
LOGIT_NOISE = 2e-5
TOP_K = (1, 5, 10)


@dataclass(frozen=True)
class Position:
    """One position.

    max_abs, relative: largest |difference|, as it is and over the position's largest golden |logit|. explained:
    the same behind the ties that explain it; equal to ``relative`` where there are none. kl: golden || engine, nats.
    top_k: share of the golden top k that the engine has too, for each k of TOP_K. argmax: golden, engine.
    near_tie: they differ, but between tokens whose golden logits are closer than twice max_abs, at a position
    that passes. passed: explained is within LOGIT_NOISE.
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
    """All positions of one path (``prefill`` or ``steps``). problem: why it failed; empty when it passed."""

    path: str
    positions: list[Position]
    ties: list[BrokenTie] = field(default_factory=list)
    problem: str = ""

    @property
    def passed(self) -> bool:
        """No position fails."""
        return not self.problem


def judge_logits(path: str, golden: GoldenRun, engine: object) -> LogitsVerdict:
    """Compare an engine's logits [tokens, vocab] with the golden ones, broken ties searched for and followed."""
    problem = incomparable(golden.logits, engine)
    if problem:
        return LogitsVerdict(path, [], problem=problem)
    logits = np.asarray(engine, np.float64)
    if logits.shape[1] > 1 and not np.ptp(logits, axis=1).any():
        return LogitsVerdict(path, [], problem="degenerate: the logits are constant at every position")
    resolved = resolve_ties(golden, logits, LOGIT_NOISE)
    plain = golden.logits.astype(np.float64)
    positions = [_position(t, plain[t], resolved.logits[t], logits[t]) for t in range(len(logits))]
    failing = [p for p in positions if not p.passed]
    if failing:
        worst = f"first {failing[0].position}: off by {failing[0].explained:.2g} of the largest logit"
        problem = f"{len(failing)} of {len(positions)} positions, {worst}, and no rounding tie explains it"
    return LogitsVerdict(path, positions, resolved.ties, problem)


def _position(t: int, golden: np.ndarray, followed: np.ndarray, engine: np.ndarray) -> Position:
    worst = float(np.abs(engine - golden).max())
    largest = max(float(np.abs(golden).max()), float(np.finfo(np.float32).tiny))
    explained = float(np.abs(engine - followed).max()) / largest
    best, chosen = int(np.argmax(golden)), int(np.argmax(engine))
    passed = explained <= LOGIT_NOISE
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
