"""Whether an engine differs from the base engine at all, by sessions that go far beyond what the judge asks.

A fault that none of these shows is either no fault or one that no input can show; a right engine that one of these
shows would be none. No judge takes part.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from base_engine import Engine
from registry import Entry

NOISE = 2e-4  # of the largest logit of a position: beyond what a broken rounding tie does in most, below every fault
LENGTHS = (1, 2, 3, 4, 7, 8, 16, 17, 19, 23, 24, 29, 31, 32, 33, 42, 63, 64, 65, 100, 127, 128, 129, 161, 255, 257, 400)

Session = Callable[[Engine], Iterator[np.ndarray]]


def text(engine: Engine, seed: int, count: int) -> list[int]:
    """BOS, then random ids with runs and repeats."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, engine.vocab, count + 15)
    ids[0] = engine.config["bos_token_id"]
    ids[9:12], ids[14] = ids[8], ids[12]
    return ids[:count].tolist()


def prefills(engine: Engine) -> Iterator[np.ndarray]:
    for seed, count in enumerate(LENGTHS):
        engine.reset()
        yield engine.prefill(text(engine, seed, count))[-1]


def whole(engine: Engine) -> Iterator[np.ndarray]:
    for count in (engine.context, 40):
        engine.reset()
        yield from engine.prefill(text(engine, 98, count))[::7]


def vocabulary(engine: Engine) -> Iterator[np.ndarray]:
    for first in range(0, engine.vocab, 100):
        engine.reset()
        yield from engine.prefill(list(range(first, min(first + 100, engine.vocab))))


def steps(engine: Engine) -> Iterator[np.ndarray]:
    engine.reset()
    for token in text(engine, 97, engine.context)[:300]:
        yield engine.step(token)


def pieces(engine: Engine) -> Iterator[np.ndarray]:
    for lengths in ((13, 20, 30), (3, 1, 1, 20), (50, 23, 1), (37, *(1,) * 60)):
        engine.reset()
        ids, at = text(engine, 96, sum(lengths)), 0
        for n in lengths:
            yield engine.prefill(ids[at : at + n])[-1] if n > 1 else np.asarray(engine.step(ids[at])).reshape(-1)
            at += n


def repeats(engine: Engine) -> Iterator[np.ndarray]:
    for seed in (1, 1, 1, 2, 1, 3, 1, 1):
        engine.reset()
        yield np.asarray(engine.prefill([5, 6, 7, 8, 9, 1, 2, 3, *text(engine, seed, 12)]))[-1].copy()


SESSIONS: tuple[Session, ...] = (prefills, pieces, repeats, vocabulary, whole, steps)


def difference(entry: Entry, models: Path, sessions: tuple[Session, ...] = SESSIONS) -> tuple[float, str]:
    """The largest distance of two rows, as a part of the row's largest logit, and the session; inf for NaN or an error.

    It stops at the first session that shows a difference.
    """
    engine, base = entry.engine(str(models / entry.model)), Engine(str(models / entry.model))
    most = 0.0
    for session in sessions:
        try:
            pairs = list(zip(session(engine), session(base), strict=True))
        except (ArithmeticError, IndexError, ValueError, TypeError, NotImplementedError) as error:
            return np.inf, f"{session.__name__}: {type(error).__name__}: {error}"
        for found, right in pairs:
            gap = np.abs(np.asarray(found, np.float64) - right).max() / np.abs(right).max()
            most = max(most, float(gap) if np.isfinite(gap) else np.inf)
        if most > NOISE:
            return most, session.__name__
    return most, ""
