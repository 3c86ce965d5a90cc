"""How far the golden model is from itself when rounding ties break at random: what logits alone can be held to.

A model of 2B parameters has some 900 codes a position within reach of a tie; which of them an engine broke cannot be
searched for. What can be measured is how far breaking them moves the logits. An engine that gives nothing but logits
is held to a multiple of that: weaker than following ties, and the report says so and by how much.
"""

from collections import deque
from dataclasses import dataclass, replace

import numpy as np

from tritgold.layers.arithmetic import Arithmetic
from tritgold.model import forward
from tritgold.trace import Trace
from tritgold_conformance.comparing.free_running import noise_by_token
from tritgold_conformance.comparing.ties import TIE, distance_from_tie, other_codes
from tritgold_conformance.golden.run import GoldenRun

RUNS = 2
POLICY_RUNS, POLICY_FACTOR = 8, 3.0  # where roundings of a declared precision break as well
# Every second code within the largest noise that was measured (tests/peers/survey.py): more than an engine breaks.
REACH = 2.5e-4
FACTOR = 2.0


def allowed_by_spread(golden: GoldenRun) -> float:
    """``factor`` x the largest root mean square by which broken ties move a position's logits, relative to these."""
    return measured_spread(golden)[0]


def measured_spread(golden: GoldenRun) -> tuple[float, float]:
    """The same, and FACTOR x the largest by which they move a single logit, relative to the same size.

    Of 100,000 logits one may be anything, and their root mean square still be small. Costs RUNS golden passes. The
    coins are a hash of run, position and channel: the same model gives the same figures.
    """
    for logits, known in _SPREADS:
        if logits is golden.logits:
            return known
    worst = largest = 0.0
    c = golden.checkpoint
    for run in runs(golden):
        moved = forward(golden.tokens, c.weights, c.config, arithmetic=moved_otherwise(golden, run))
        worst = max(worst, float(relative_rms(golden.logits, moved).max()))
        largest = max(largest, float(relative_largest(golden.logits, moved).max()))
    _SPREADS.append((golden.logits, (factor(golden) * worst, factor(golden) * largest)))
    return _SPREADS[-1][1]


_SPREADS: deque[tuple[np.ndarray, tuple[float, float]]] = deque(maxlen=4)  # of the newest golden logits


def runs(golden: GoldenRun) -> range:
    """How often the golden model is moved to learn how far it may be moved."""
    return range(RUNS if golden.policy.followed else POLICY_RUNS)


def factor(golden: GoldenRun) -> float:
    """How many times as far an engine may be: of a policy's roundings more break than eight runs show."""
    return FACTOR if golden.policy.followed else POLICY_FACTOR


def moved_otherwise(golden: GoldenRun, run: int, reach: float | None = None) -> Arithmetic:
    """The golden arithmetic with ties broken at random, and its policy's roundings as well. reach: see ``Coin``."""
    arithmetic = golden.arithmetic
    if golden.policy.quantised:
        arithmetic = replace(arithmetic, quantize=Coin(run, arithmetic, reach))
    return golden.policy.perturbed(arithmetic, run)


@dataclass(frozen=True)
class Moves:
    """FACTOR x the largest by which broken ties move log-probabilities, nats.

    largest: one of them. doubt: one of them, over 1 - p: what is all but certain hardly moves. rms: the root mean
    square of those of a position.
    """

    largest: float
    doubt: float
    rms: float


def log_probability_moves(golden: GoldenRun, shown: np.ndarray) -> Moves:
    """What every second tie near enough does to the log-probabilities shown, bool [tokens, vocab]. RUNS golden passes.

    golden: a run whose ``logits`` are log-probabilities.
    """
    largest = doubt = rms = 0.0
    c = golden.checkpoint
    unsure = np.maximum(-np.expm1(golden.logits.astype(np.float64)), np.finfo(np.float32).eps)
    for run in runs(golden):
        moved = forward(golden.tokens, c.weights, c.config, arithmetic=moved_otherwise(golden, run))
        by: np.ndarray = np.where(shown, np.abs(moved.astype(np.float64) - golden.logits), 0.0)
        largest, doubt = max(largest, float(np.max(by))), max(doubt, float(np.max(by / unsure)))
        rms = max(rms, float(np.sqrt((by * by).sum(axis=1) / np.maximum(shown.sum(axis=1), 1)).max()))
    times = factor(golden)
    return Moves(times * largest, times * doubt, times * rms)


def trace_spread(golden: GoldenRun) -> dict[str, float]:
    """FACTOR x the largest by which broken ties move a token of each array, relative to its largest value; by name.

    Ties within TIE of which every second one breaks: all that a trace without codes may hide. RUNS golden passes.
    """
    worst = dict.fromkeys(golden.trace.arrays, 0.0)
    c = golden.checkpoint
    for run in runs(golden):
        moved = Trace()
        forward(golden.tokens, c.weights, c.config, trace=moved, arithmetic=moved_otherwise(golden, run, TIE))
        for name, array in moved.arrays.items():
            worst[name] = max(
                worst[name], factor(golden) * float(noise_by_token(name, golden.trace[name], array).max())
            )
    return worst


def relative_rms(golden: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Root mean square of the difference over that of the golden row, float64 [tokens]."""
    difference = other.astype(np.float64) - golden
    return np.sqrt((difference * difference).mean(axis=1)) / _size(golden)


def relative_largest(golden: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Largest |difference| over the root mean square of the golden row, float64 [tokens]."""
    return np.abs(other.astype(np.float64) - golden).max(axis=1) / _size(golden)


def _size(golden: np.ndarray) -> np.ndarray:
    g = golden.astype(np.float64)
    return np.maximum(np.sqrt((g * g).mean(axis=1)), np.finfo(np.float32).tiny)


class Coin:
    """The quantiser of an arithmetic, in which every second code near a tie goes to the other side.

    Two runs that follow one another throw opposite coins: a tie is broken in one of each pair, if it is the only one.
    reach: how far from a tie a code may be turned, REACH if not said.
    """

    def __init__(self, run: int, arithmetic: Arithmetic, reach: float | None = None) -> None:
        self._calls, self._side, self._quantize = 1000 * (run // 2), run % 2, arithmetic.quantize
        self._reach = REACH if reach is None else reach

    def __call__(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Codes int8 [tokens, in] and scale, as the golden quantiser's."""
        codes, scale = self._quantize(x)
        self._calls += 1
        others = other_codes(x, scale, codes)
        near = distance_from_tie(x, scale, codes, others) <= self._reach
        rows, channels = np.nonzero(near)
        lots = (rows * 2_654_435_761 + channels * 40_503 + self._calls * 69_069) >> 7
        turned = lots % 2 == self._side
        codes[rows[turned], channels[turned]] = np.clip(others[rows[turned], channels[turned]], -128, 127)
        return codes, scale
