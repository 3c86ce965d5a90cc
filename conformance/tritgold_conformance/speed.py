"""Tokens per second of an engine, prefill and decode: median of a few runs after a warm-up.

Only engines that have passed are timed (a fast wrong answer has no speed), and the reference is timed in the
same process a moment apart, so that the ratio means something on a noisy machine.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from tritgold_conformance.engine import Candidate

RUNS = 3


@dataclass(frozen=True)
class Speed:
    """tokens/s, medians of RUNS; decode is None for an engine without ``step``. tokens: length of the input."""

    prefill: float
    decode: float | None
    tokens: int


def measure_speed(engine: Candidate, tokens: list[int], steps: int = 16) -> Speed:
    """Time ``prefill`` over the tokens and ``steps`` single steps behind a prompt of one token."""
    steps = min(steps, len(tokens) - 1)

    def prefill() -> None:
        engine.prefill(tokens)

    def decode() -> None:
        for token in tokens[1 : 1 + steps]:
            engine.step(token)

    def begin() -> None:
        engine.prefill(tokens[:1])

    rate = None
    if engine.has("step") and steps > 0:
        rate = steps / _median(decode, before=begin)
    return Speed(len(tokens) / _median(prefill), rate, len(tokens))


def _median(timed: Callable[[], None], before: Callable[[], None] = lambda: None) -> float:
    """Median seconds of RUNS calls, after one that is not counted (compilation, first touch of memory)."""
    seconds = []
    for _ in range(RUNS + 1):
        before()
        start = time.perf_counter()
        timed()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])
