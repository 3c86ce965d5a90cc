"""How much the golden model's outputs change if rounding ties break at random: the bound for logits alone.

A model of 2B parameters has about 900 codes per position near a tie; a search cannot find which of them an engine
broke. But the effect of breaking them on the logits can be measured. An engine that gives only logits may differ by
a multiple of that: this is weaker than following ties, and the report says so, with the number.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from tritgold.counter_random import random_bits
from tritgold.layers.arithmetic import Arithmetic
from tritgold.model import forward
from tritgold.trace import Trace
from tritgold_conformance.comparing.free_running import noise_by_token
from tritgold_conformance.comparing.ties import TIE, distance_from_tie, other_codes
from tritgold_conformance.golden.run import GoldenRun

RUNS = 2
POLICY_RUNS, POLICY_FACTOR = 8, 3.0  # if roundings of a declared precision may break too
# Every second code within the largest noise that was measured (tests/peers/survey.py): more than an engine breaks.
REACH = 2.5e-4
FACTOR = 2.0


def allowed_by_spread(golden: GoldenRun) -> float:
    """``factor`` x the largest relative root mean square by which broken ties change a position's logits."""
    return measured_spread(golden)[0]


def measured_spread(golden: GoldenRun) -> tuple[float, float]:
    """``allowed_by_spread``, and ``factor`` x the largest change of one logit, relative to the row's root mean square.

    The second is needed because a single wrong one of 100,000 logits hardly changes the root mean square. Costs
    ``runs`` golden passes. The coins are a hash of run, position and channel: the same model gives the same numbers.
    """
    worst = largest = 0.0
    for moved in moved_logits(golden, REACH):
        worst = max(worst, float(relative_rms(golden.logits, moved).max()))
        largest = max(largest, float(relative_largest(golden.logits, moved).max()))
    return factor(golden) * worst, factor(golden) * largest


@lru_cache(maxsize=4)
def moved_logits(golden: GoldenRun, reach: float) -> list[np.ndarray]:
    """The golden logits [tokens, vocab] of each run with ties broken at random; kept of the newest golden runs."""
    c = golden.checkpoint
    return [
        forward(golden.tokens, c.weights, c.config, arithmetic=moved_otherwise(golden, run, reach))
        for run in runs(golden)
    ]


def runs(golden: GoldenRun) -> range:
    """The runs of the golden model, each with other broken ties, over which the largest change is measured."""
    return range(RUNS if golden.policy.followed else POLICY_RUNS)


def factor(golden: GoldenRun) -> float:
    """The factor on the measured change; larger for a policy, because eight runs do not show all its roundings."""
    return FACTOR if golden.policy.followed else POLICY_FACTOR


def moved_otherwise(golden: GoldenRun, run: int, reach: float | None = None) -> Arithmetic:
    """The golden arithmetic with ties broken at random, and its policy's roundings as well. reach: see ``Coin``."""
    arithmetic = golden.arithmetic
    if golden.policy.quantised:
        arithmetic = replace(arithmetic, quantize=Coin(run, arithmetic, reach))
    return golden.policy.perturbed(arithmetic, run)


@dataclass(frozen=True)
class Moves:
    """FACTOR x the largest changes of log-probabilities by broken ties, nats.

    largest: of one log-probability. doubt: of one, divided by 1 - p: a nearly certain token hardly changes. rms: the
    root mean square at a position.
    """

    largest: float
    doubt: float
    rms: float


def log_probability_moves(golden: GoldenRun, shown: np.ndarray) -> Moves:
    """The effect of breaking every second near tie on the log-probabilities in ``shown``, bool [tokens, vocab].

    golden: a run whose ``logits`` are log-probabilities. Costs RUNS golden passes.
    """
    largest = doubt = rms = 0.0
    unsure = np.maximum(-np.expm1(golden.logits.astype(np.float64)), np.finfo(np.float32).eps)
    for moved in moved_logits(golden, REACH):
        by: np.ndarray = np.where(shown, np.abs(moved.astype(np.float64) - golden.logits), 0.0)
        largest, doubt = max(largest, float(np.max(by))), max(doubt, float(np.max(by / unsure)))
        rms = max(rms, float(np.sqrt((by * by).sum(axis=1) / np.maximum(shown.sum(axis=1), 1)).max()))
    times = factor(golden)
    return Moves(times * largest, times * doubt, times * rms)


@lru_cache(maxsize=1)
def trace_spread(golden: GoldenRun) -> dict[str, float]:
    """FACTOR x the largest change of a token by broken ties, relative to its largest value, for each array; by name.

    Every second tie within TIE breaks: all that a trace without codes may hide. RUNS golden passes.
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
    """Root mean square of the difference divided by that of the golden row, float64 [tokens]."""
    difference = other.astype(np.float64) - golden
    return np.sqrt((difference * difference).mean(axis=1)) / _size(golden)


def relative_largest(golden: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Largest |difference| divided by the root mean square of the golden row, float64 [tokens]."""
    return np.abs(other.astype(np.float64) - golden).max(axis=1) / _size(golden)


def _size(golden: np.ndarray) -> np.ndarray:
    g = golden.astype(np.float64)
    return np.maximum(np.sqrt((g * g).mean(axis=1)), np.finfo(np.float32).tiny)


class Coin:
    """The quantiser of an arithmetic with every second code near a tie moved to the other side.

    Two consecutive runs use opposite coins: a single tie is broken in one run of each pair. Those of other pairs are
    independent: two ties, whose effects may cancel, are not always broken together.
    reach: largest distance from a tie for a code to be moved, REACH by default.
    """

    def __init__(self, run: int, arithmetic: Arithmetic, reach: float | None = None) -> None:
        self._calls, self._seed, self._side, self._quantize = 0, run // 2, run % 2, arithmetic.quantize
        self._reach = REACH if reach is None else reach

    def __call__(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Codes int8 [tokens, in] and scale, as from the golden quantiser."""
        codes, scale = self._quantize(x)
        self._calls += 1
        others = other_codes(x, scale, codes)
        near = distance_from_tie(x, scale, codes, others) <= self._reach
        rows, channels = np.nonzero(near)
        places = (np.uint64(self._calls) << np.uint64(48)) + (rows.astype(np.uint64) << np.uint64(24))
        lots = random_bits(self._seed, places + channels.astype(np.uint64)) >> np.uint64(40)
        turned = lots % np.uint64(2) == self._side
        codes[rows[turned], channels[turned]] = np.clip(others[rows[turned], channels[turned]], -128, 127)
        return codes, scale
