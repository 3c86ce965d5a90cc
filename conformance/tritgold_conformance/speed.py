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
ENOUGH = 15.0  # seconds: a run that takes longer is not repeated


@dataclass(frozen=True)
class Speed:
    """tokens/s, medians of up to RUNS; decode is None for an engine without ``step``. tokens: length of the input."""

    prefill: float | None
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
        engine.reset()
        engine.step(tokens[0])

    reading = len(tokens) / _median(prefill, engine.reset) if engine.has("prefill") else None
    writing = steps / _median(decode, begin) if engine.has("step") and steps > 0 else None
    return Speed(reading, writing, len(tokens))


def _median(timed: Callable[[], None], before: Callable[[], None]) -> float:
    """Median seconds of RUNS calls, after one that is not counted (compilation, first touch of memory).

    An engine that needs more than ENOUGH for one call is timed once.
    """
    seconds: list[float] = []
    for _ in range(RUNS + 1):
        before()
        start = time.perf_counter()
        timed()
        seconds.append(time.perf_counter() - start)
        if seconds[1:] and seconds[-1] > ENOUGH:
            break
    return statistics.median(seconds[1:])
