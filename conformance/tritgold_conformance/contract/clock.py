"""Tokens per second of an engine, prefill and decode: the median of a few runs after a warm-up.

Only engines that have passed are timed (the speed of a wrong answer means nothing). The reference is timed in the
same process shortly after, so that the ratio is meaningful on a noisy machine.

The clocks: ``judge``, around calls of a class or answers of a server; ``program``, by tritgold's own program around
calls of a peer or class; ``engine``, the engine's own report (``answer.json``), unchecked. None of them includes the
start of a program or the loading of a model.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tritgold_conformance.contract.engine_under_test import EngineUnderTest

RUNS = 3
TIMED_STEPS = 16
ENOUGH = 15.0  # seconds: a slower run is not repeated


@dataclass(frozen=True)
class Speed:
    """tokens/s; None if not measured. tokens: length of the input. clock: ``judge``, ``program`` or ``engine``."""

    prefill: float | None
    decode: float | None
    tokens: int
    clock: str = "judge"


def measure_speed(engine: EngineUnderTest, tokens: list[int], steps: int = TIMED_STEPS) -> Speed | None:
    """The speed alone, see ``measure``."""
    return measure(engine, tokens, steps)[0]


def measure(
    engine: EngineUnderTest, tokens: list[int], steps: int = TIMED_STEPS
) -> tuple[Speed | None, dict[str, np.ndarray]]:
    """Time ``prefill`` over the tokens and ``steps`` single steps after a prompt of one token.

    An engine with ``timed`` False is asked for its ``seconds``; None if it gives none. Also returns the logits of the
    timed calls, ``prefill`` and ``step`` -> float32 [rows of all runs, vocab], so that they can be judged.
    """
    if not engine.timed:
        said = engine.seconds(tokens)
        if not said:
            return None, {}
        prefill, step = said.get("prefill"), said.get("step")
        speed = Speed(prefill and len(tokens) / prefill, step and 1 / step, len(tokens), engine.clock)
        return speed, engine.timed_rows()
    steps = min(steps, len(tokens) - 1)
    given: dict[str, list[np.ndarray | None]] = {"prefill": [], "step": []}

    def prefill_all() -> None:
        given["prefill"].append(engine.prefill(tokens))

    def decode() -> None:
        given["step"].extend([engine.step(token) for token in tokens[1 : 1 + steps]])

    def begin() -> None:
        engine.reset()
        engine.step(tokens[0])

    reading = len(tokens) / median_seconds(prefill_all, engine.reset) if engine.has("prefill") else None
    writing = steps / median_seconds(decode, begin) if engine.has("step") and steps > 0 else None
    # None is a fast answer, but has no speed.
    kept = {call: [rows for rows in all_ if rows is not None] for call, all_ in given.items()}
    whole = {call: len(rows) == len(given[call]) for call, rows in kept.items()}
    reading, writing = (reading if whole["prefill"] else None), (writing if whole["step"] else None)
    rows = {call: np.vstack(found).astype(np.float32) for call, found in kept.items() if found and whole[call]}
    return (None if reading is None and writing is None else Speed(reading, writing, len(tokens))), rows


def median_seconds(timed: Callable[[], None], before: Callable[[], None] = lambda: None) -> float:
    """Median seconds of RUNS calls, after one call that is not counted (compilation, first touch of memory).

    If one counted call needs more than ENOUGH seconds, it is not repeated.
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
