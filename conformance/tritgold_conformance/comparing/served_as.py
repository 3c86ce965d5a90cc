"""Finds what a server did to log-probabilities before it showed them: temperature, a filter, greed, a wrong sum.

Such a server computes the right logits but shows something other than their softmax. It fails, with this reason.
"""

import numpy as np

CLOSE = 2e-3  # nats: much more than float32's noise, much less than any of these changes
WHOLE = 1e-5  # allowed difference of a probability from 1
MOST_POSITIONS = 0.8  # share of the shown positions that must agree: broken ties spoil some
UNLIKELY = -30.0  # lower values are not used: they may be floors, or logarithms of underflowed numbers
GREEDY = "probabilities after greedy sampling: the token written has all of them"
TOKENS_ONLY = "probabilities that one token has all of, which say no more than the token"


def served_as(golden: np.ndarray, given: np.ndarray, shown: np.ndarray) -> str:
    """What explains the difference, in words; empty if nothing does.

    golden, given: log-probabilities float64 [tokens, vocab]. shown: bool, which of them were given.

    >>> logits = np.log([[0.5, 0.3, 0.15, 0.05], [0.1, 0.4, 0.3, 0.2]])
    >>> warm = logits / 0.5 - np.log(np.exp(logits / 0.5).sum(axis=1, keepdims=True))
    >>> served_as(logits, warm, np.ones(logits.shape, bool))
    'log-probabilities at temperature 0.5'
    >>> served_as(logits, logits, np.ones(logits.shape, bool))
    ''
    """
    rows = [(golden[t, ids], given[t, ids]) for t in range(len(golden)) if len(ids := _likely(given[t], shown[t]))]
    if tokens_only(np.where(shown, given, np.nan)):
        written = np.where(shown, given, -np.inf).argmax(axis=1)
        right = (golden.argmax(axis=1) == written) & (golden.max(axis=1) < -10 * WHOLE)
        return GREEDY if _most(right.tolist()) else TOKENS_ONLY  # logits far apart, of a wrong model, look the same
    rows = [(ours, theirs) for ours, theirs in rows if len(ours) > 2 and np.ptp(ours) > 0.1]
    if _most([_filtered(ours, theirs) for ours, theirs in rows]):
        return "probabilities of the tokens that a filter keeps (top-k, top-p, min-p): their sum is 1"
    if _most([_rest_twice(ours, theirs) for ours, theirs in rows]):
        return "probabilities whose sum has the tokens that are not shown twice; request all tokens (?logprobs=N)"
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


def tokens_only(rows: np.ndarray) -> bool:
    """Whether one token has all of the probability, nearly everywhere: then rows say no more than their tokens.

    The others have the same value, a floor. rows: log-probabilities float64 [tokens, vocab], NaN where none is shown;
    rows that show none are passed over.

    >>> tokens_only(np.array([[0.0, -80.0, -80.0], [np.nan, 0.0, -80.0]]))
    True
    >>> tokens_only(np.array([[0.0, -80.0, -34.0]])), tokens_only(np.log([[0.9, 0.05, 0.05]]))
    (False, False)
    """
    shown = [np.sort(row[np.isfinite(row)]) for row in rows]
    return _most([bool(row[-1] > -WHOLE and row[0] == row[:-1].max(initial=row[0])) for row in shown if row.size])


def _likely(given: np.ndarray, shown: np.ndarray) -> np.ndarray:
    return np.flatnonzero(shown & np.isfinite(given) & (given > UNLIKELY))


def _filtered(ours: np.ndarray, theirs: np.ndarray) -> bool:
    off = theirs - ours
    return bool(np.ptp(off) < CLOSE and off.mean() > 10 * WHOLE and abs(np.exp(theirs).sum() - 1) < WHOLE)


def _rest_twice(ours: np.ndarray, theirs: np.ndarray) -> bool:
    """What ik_llama.cpp's server does at 8337e4cd3: docs/findings/ik-llama-cpp-probabilities.md."""
    off, rest = theirs - ours, 1 - np.exp(ours).sum()
    return bool(rest > 10 * WHOLE and np.abs(off + np.log1p(rest)).max() < min(CLOSE, rest / 10))


def _most(agreeing: list[bool]) -> bool:
    return len(agreeing) > 0 and sum(map(bool, agreeing)) >= MOST_POSITIONS * len(agreeing)
