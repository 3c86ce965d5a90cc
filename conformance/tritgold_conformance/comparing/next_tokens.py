"""The text level: which token an engine would generate at each position, and the few log-probabilities it shows.

This is what an HTTP server gives. Weaker than logits: only the most likely tokens are judged. Each prefix of the
input is a separate question, so a wrong token does not affect the next answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from tritgold_conformance.comparing.logits import log_softmax, moved_by, noise_of
from tritgold_conformance.comparing.served_as import served_as
from tritgold_conformance.comparing.tie_search import resolve_ties
from tritgold_conformance.comparing.tie_sensitivity import Moves, log_probability_moves
from tritgold_conformance.comparing.ties import BrokenTie, first_off
from tritgold_conformance.golden.run import GoldenRun

# A server computes probabilities in float32 and reports logarithms: below e**-87 they are subnormal, then 0.
FLOOR = -80.0
Completion = tuple[int, dict[int, float]]


@dataclass(frozen=True)
class TextPosition:
    """One position. token: golden, engine. near_tie: they differ, but float noise may exchange the two tokens.

    shown: number of log-probabilities compared; max_abs: their largest |difference|, nats, with broken ties followed;
    None if none was shown. problem: why it fails, empty if it passes.
    """

    position: int
    token: tuple[int, int]
    near_tie: bool
    shown: int
    max_abs: float | None
    problem: str


@dataclass(frozen=True)
class TextVerdict:
    """All positions that the engine answered. absent: number of the others. ties: those that explain it.

    allowed: the largest change of a log-probability by broken ties, nats, if there were too many ties to search or no
    log-probability was shown; otherwise None. moved_by: the cause of such changes if it is not ties. served: what the
    server did to its log-probabilities, if that explains the failures.
    """

    positions: list[TextPosition]
    absent: int = 0
    ties: list[BrokenTie] = field(default_factory=list)
    allowed: float | None = None
    moved_by: str = ""
    served: str = ""

    @property
    def failing(self) -> list[TextPosition]:
        """The failing positions, in order."""
        return [position for position in self.positions if position.problem]

    @property
    def note(self) -> str:
        """The level's numbers in one line."""
        if self.failing:
            first = self.failing[0]
            said = f"{len(self.failing)} of {len(self.positions)} positions, first {first.position}: {first.problem}"
            return said + (f"; shown are {self.served}" if self.served else "")
        near = sum(position.near_tie for position in self.positions)
        same = sum(position.token[0] == position.token[1] for position in self.positions)
        note = f"greedy token equal at {same} of {len(self.positions)}" + (f" ({near} near ties)" if near else "")
        differences = [position.max_abs for position in self.positions if position.max_abs is not None]
        if not differences:
            return f"{note}; no log-probabilities were given"
        most = max(position.shown for position in self.positions)
        note += f"; the {most} log-probabilities shown within {max(differences):.1e}"
        if self.allowed is not None:
            why = self.moved_by or "ties too many to search"
            note += f"; {why}, held to the golden model's own spread of {self.allowed:.1e} nats"
        return note + (f"; broken ties followed: {len(self.ties)}" if self.ties else "")


def judge_text(golden: GoldenRun, completions: Sequence[Completion | None]) -> TextVerdict:
    """Judge the token that the engine would generate after each prefix of the golden tokens; None: no answer.

    Log-probabilities may differ by the noise of float32, with rounding ties followed as for logits; if there are too
    many ties, by what breaking them at random does to the golden model. Another token than the golden one passes if the
    two are closer than the noise could move them. A position fails if the engine's list lacks a
    token that is more likely than the last one in the list.
    """
    golden = _in_log_probabilities(golden)
    shape = golden.logits.shape
    shown, given = np.zeros(shape, bool), np.zeros(shape)
    broken: dict[int, str] = {}
    for position, completion in enumerate(completions):
        token, logprobs = completion or (0, {})
        outside = [i for i in (token, *logprobs) if not 0 <= i < shape[1]]
        if outside or not np.isfinite(list(logprobs.values())).all():
            why = f"token {outside[0]} is outside the vocabulary" if outside else "non-finite log-probabilities"
            broken[position] = why
            continue
        ids = list(logprobs)
        shown[position, ids], given[position, ids] = True, np.maximum(list(logprobs.values()), FLOOR)
    rows, ties, many = _explained(golden, given, shown, search=not broken)
    differ = any(c is not None and c[0] != int(np.argmax(rows[t])) for t, c in enumerate(completions))
    moves = None
    if many or (differ and not shown.any()):
        moves = log_probability_moves(golden, shown | _contenders(golden.logits, completions, given, shown))
    allowed, why = (None, "") if moves is None else (moves.largest, "" if golden.policy.followed else moved_by(golden))
    verdict = TextVerdict([], sum(c is None for c in completions), ties, allowed, why)
    for position, completion in enumerate(completions):
        if completion is not None:
            of = rows[position], completion[0], given[position], shown[position]
            judged = _position(position, *of, moves, noise_of(golden))
            if position in broken:
                judged = replace(judged, problem=broken[position])
            verdict.positions.append(judged)
    return replace(verdict, served=served_as(golden.logits, given, shown)) if verdict.failing else verdict


def shown_rows(completions: Sequence[Completion | None], shape: tuple[int, int]) -> np.ndarray | None:
    """The log-probabilities shown, float64 [tokens, vocab], NaN for the others; None if there are none at all.

    Values that are not finite, and invalid tokens, are left out: ``judge_text`` reports them.
    """
    rows = np.full(shape, np.nan)
    for row, completion in zip(rows, completions, strict=False):
        for token, value in (completion or (0, {}))[1].items():
            if 0 <= token < shape[1] and np.isfinite(value):
                row[token] = max(value, FLOOR)
    return None if np.isnan(rows).all() else rows


@lru_cache(maxsize=4)
def _in_log_probabilities(golden: GoldenRun) -> GoldenRun:
    """The same run with log-probabilities instead of logits, also when it is run again to follow ties."""
    head = golden.arithmetic.logits

    def log_probabilities(x: np.ndarray, weights: object) -> np.ndarray:
        return floored(head(x, weights))

    arrays = {**golden.trace.arrays, "logits": floored(golden.logits)}
    arithmetic = replace(golden.arithmetic, logits=log_probabilities)
    return replace(golden, trace=replace(golden.trace, arrays=arrays), arithmetic=arithmetic)


def floored(logits: np.ndarray) -> np.ndarray:
    """The log-softmax, float64 [tokens, vocab], at least FLOOR."""
    return np.maximum(log_softmax(logits), FLOOR)


def _contenders(
    golden: np.ndarray, completions: Sequence[Completion | None], given: np.ndarray, shown: np.ndarray
) -> np.ndarray:
    """Tokens that are compared although they are not shown, bool [tokens, vocab].

    These are the generated token, the golden one, and tokens more likely than the last one shown.
    """
    found = (golden > np.where(shown, given, np.inf).min(axis=1, keepdims=True)) & ~shown
    for position, completion in enumerate(completions):
        if completion is not None and 0 <= completion[0] < golden.shape[1]:
            found[position, [completion[0], int(np.argmax(golden[position]))]] = True
    return found


def _explained(
    golden: GoldenRun, given: np.ndarray, shown: np.ndarray, search: bool
) -> tuple[np.ndarray, list[BrokenTie], bool]:
    """Golden rows after the ties that explain what is shown; and whether these are too many to search."""
    noise = noise_of(golden)
    off = first_off(golden.logits, given, noise, 0, shown)
    if off is None or not search:
        return golden.logits, [], False
    if not golden.policy.followed:
        return golden.logits, [], True
    resolved = resolve_ties(golden, given, noise, shown)
    return (golden.logits, [], True) if resolved.many else (resolved.logits, resolved.ties, False)


def _position(
    t: int,
    golden: np.ndarray,
    token: int,
    given: np.ndarray,
    shown: np.ndarray,
    moves: Moves | None,
    relative: float,
) -> TextPosition:
    """relative: noise of a log-probability, relative to the largest one of the row."""
    best, size = int(np.argmax(golden)), max(float(np.abs(golden).max()), float(np.finfo(np.float32).tiny))
    floor = relative * size
    noise = floor if moves is None else max(floor, moves.largest)
    off = np.where(shown, np.abs(given - golden), 0.0)
    worst = float(off.max()) if shown.any() else None
    excess = off / _allowed(golden, floor, moves)
    rms = float(np.sqrt((off * off).sum() / max(int(shown.sum()), 1)))
    problem, near_tie = "", False
    if excess.max() > 1:
        at = int(np.argmax(excess))
        problem = f"log-probability of token {at} is {given[at]:.6g}, golden {golden[at]:.6g}"
    elif moves is not None and rms > max(floor, moves.rms):
        problem = (
            f"log-probabilities are off by {rms:.2g} nats, root mean square; broken ties move them by {moves.rms:.2g}"
        )
    elif shown.any() and (hidden := np.flatnonzero(~shown & (golden > given[shown].min() + 2 * noise))).size:
        at = int(hidden[np.argmax(golden[hidden])])
        problem = f"token {at} is not shown, though its log-probability {golden[at]:.6g} is among the highest"
    elif 0 <= token < golden.size and token != best:
        near_tie = bool(golden[best] - golden[token] <= 2 * noise)
        if shown[token] and shown[best]:  # what it shows is right, so it must choose the most likely of these
            near_tie &= bool(given[best] - given[token] <= 2 * floor)
        gap = golden[best] - golden[token]
        problem = "" if near_tie else f"writes token {token} for {best}, which is {gap:.2g} nats more likely"
    return TextPosition(t, (best, token), near_tie, int(shown.sum()), worst, problem)


def _allowed(golden: np.ndarray, floor: float, moves: Moves | None) -> np.ndarray:
    """How much each log-probability of a row may be off, nats, float64 [vocab]."""
    if moves is None:
        return np.full(golden.shape, floor)
    return np.maximum(floor, np.minimum(moves.largest, moves.doubt * -np.expm1(golden)))
