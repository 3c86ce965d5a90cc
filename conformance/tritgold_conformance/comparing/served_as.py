"""What a server did to log-probabilities before it showed them: a temperature, a filter, or greedy sampling itself.

Such a server computes rightly and shows something else than the softmax of its logits. It fails, and hears why.
"""

import numpy as np

CLOSE = 2e-3  # nats: much more than float32's noise, much less than any of these does
MOST_POSITIONS = 0.8  # of those shown must agree: a broken tie spoils some
UNLIKELY = -30.0  # below: floors, and logarithms of what underflowed


def served_as(golden: np.ndarray, given: np.ndarray, shown: np.ndarray) -> str:
    """In words; empty where none of them explains it.

    golden, given: log-probabilities float64 [tokens, vocab]. shown: bool, which of them were given.

    >>> logits = np.log([[0.5, 0.3, 0.15, 0.05], [0.1, 0.4, 0.3, 0.2]])
    >>> warm = logits / 0.5 - np.log(np.exp(logits / 0.5).sum(axis=1, keepdims=True))
    >>> served_as(logits, warm, np.ones(logits.shape, bool))
    'log-probabilities at temperature 0.5'
    >>> served_as(logits, logits, np.ones(logits.shape, bool))
    ''
    """
    rows = [(golden[t, ids], given[t, ids]) for t in range(len(golden)) if len(ids := _likely(given[t], shown[t]))]
    sharp = [theirs.max() > -CLOSE and ours.max() < -0.05 for ours, theirs in rows]
    if _most(sharp):
        return "probabilities after greedy sampling: the token written has all of them"
    rows = [(ours, theirs) for ours, theirs in rows if len(ours) > 2 and np.ptp(ours) > 0.1]
    if _most([_filtered(ours, theirs) for ours, theirs in rows]):
        return "probabilities of what sampling leaves over (top-k, top-p, min-p): together they are 1"
    slopes = [np.polyfit(ours, theirs, 1) for ours, theirs in rows]
    if not slopes:
        return ""
    slope = float(np.median([a for a, _ in slopes]))
    straight = [
        abs(a - slope) < CLOSE * abs(slope) and np.abs(a * ours + b - theirs).max() < CLOSE * max(1.0, abs(slope))
        for (a, b), (ours, theirs) in zip(slopes, rows, strict=True)
    ]
    if slope > 0 and abs(slope - 1) > 10 * CLOSE and _most(straight):
        return f"log-probabilities at temperature {1 / slope:.3g}"
    return ""


def _likely(given: np.ndarray, shown: np.ndarray) -> np.ndarray:
    return np.flatnonzero(shown & np.isfinite(given) & (given > UNLIKELY))


def _filtered(ours: np.ndarray, theirs: np.ndarray) -> bool:
    off = theirs - ours
    return bool(np.ptp(off) < CLOSE and off.mean() > 2 * CLOSE and abs(np.exp(theirs).sum() - 1) < CLOSE)


def _most(agreeing: list[bool]) -> bool:
    return len(agreeing) > 0 and sum(map(bool, agreeing)) >= MOST_POSITIONS * len(agreeing)
