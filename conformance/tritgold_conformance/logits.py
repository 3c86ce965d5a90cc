"""Logits at every position: how far, and whether it would matter to a reader of the text."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tritgold_conformance.compare import incomparable
from tritgold_conformance.free_running import FLIPPED, NOISE, FreeRunning

Outcome = Literal["within", "tie", "unseen tie", "fails"]
TOP_K = (1, 5, 10)
# Without a trace a broken tie cannot be shown. Measured: 0 to 3 positions of 41 on small random models.
UNSEEN_TIES = 0.1


@dataclass(frozen=True)
class Position:
    """One position. relative: largest |difference| over the position's largest |logit|. kl: golden || engine, nats.

    top_k: share of the golden top k that the engine has too, for each k of TOP_K. near_tie: the argmax differs,
    but between two tokens whose golden logits are closer than the two engines are. outcome: ``within`` NOISE;
    ``tie``: worse, behind a broken tie that the trace shows; ``unseen tie``: worse, no trace shows why; ``fails``.
    """

    position: int
    max_abs: float
    relative: float
    kl: float
    top_k: dict[int, float]
    argmax: tuple[int, int]
    near_tie: bool
    outcome: Outcome


@dataclass(frozen=True)
class LogitsVerdict:
    """All positions of one path (``prefill`` or ``steps``). problem: why it failed; empty when it passed."""

    path: str
    positions: list[Position]
    problem: str

    @property
    def passed(self) -> bool:
        """No position fails."""
        return not self.problem


def judge_logits(path: str, golden: np.ndarray, engine: object, free: FreeRunning | None) -> LogitsVerdict:
    """Compare logits [tokens, vocab].

    free: the free-running comparison of the same input, where the engine gives a trace: positions behind a tie
    that it shows broken may be worse than NOISE. Others may too, since another path through an engine breaks
    other ties, but no more than UNSEEN_TIES of all positions; and none by more than FLIPPED.
    """
    problem = incomparable(golden, engine)
    if problem:
        return LogitsVerdict(path, [], problem)
    logits = np.asarray(engine, np.float64)
    if golden.shape[1] > 1 and not np.ptp(logits, axis=1).any():
        return LogitsVerdict(path, [], "degenerate: the logits are constant at every position")
    flipped = free.flipped if free is not None else np.zeros(golden.shape[0], bool)
    positions = [_position(t, golden[t].astype(np.float64), logits[t], bool(flipped[t])) for t in range(len(logits))]
    return LogitsVerdict(path, positions, _problem(positions))


def _problem(positions: list[Position]) -> str:
    failing = [p for p in positions if p.outcome == "fails"]
    if failing:
        worst = f"first {failing[0].position}: off by {failing[0].relative:.2g} of the largest logit"
        return f"{len(failing)} of {len(positions)} positions, {worst}"
    unseen = sum(p.outcome == "unseen tie" for p in positions)
    if unseen > max(1, UNSEEN_TIES * len(positions)):
        return f"{unseen} of {len(positions)} positions are worse than float32 noise, and no broken tie explains them"
    return ""


def _position(t: int, golden: np.ndarray, engine: np.ndarray, flipped: bool) -> Position:
    difference = np.abs(engine - golden)
    worst = float(difference.max())
    relative = worst / max(float(np.abs(golden).max()), 1e-30)
    moved = float(np.sqrt((difference**2).mean()) / max(np.sqrt((golden**2).mean()), 1e-30))
    outcome: Outcome = "within"
    if relative > NOISE:
        outcome = "fails" if moved > FLIPPED else "tie" if flipped else "unseen tie"
    best, chosen = int(np.argmax(golden)), int(np.argmax(engine))
    return Position(
        position=t,
        max_abs=worst,
        relative=relative,
        kl=_kl(golden, engine),
        top_k={k: _overlap(golden, engine, k) for k in TOP_K if k <= golden.size},
        argmax=(best, chosen),
        near_tie=best != chosen and golden[best] - golden[chosen] <= 2 * worst,
        outcome=outcome,
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
