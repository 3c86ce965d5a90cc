"""One way to do a small thing: run, checked, timed."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np


class Way(NamedTuple):
    """name, why: for the report. run: one unit of work, done when it returns; what it gives is given to ``wrong``,
    which says what is wrong with it, empty where nothing is. by: who does it. moved: bytes that it has to read. units:
    of work that one run does; seconds are of one.
    """

    name: str
    why: str
    run: Callable[[], Any]
    wrong: Callable[[Any], str]
    by: str = "numpy"
    moved: int | None = None
    units: int = 1


def of_xla(forms: Sequence[Any], wrong: Callable[[Any], str]) -> list[Way]:
    """Ways of the adapter ``engines.xla_micro``, all judged alike."""
    return [Way(form.name, form.why, form.run, wrong, "xla", form.moved) for form in forms]


def equal(expected: np.ndarray, read: Callable[[Any], Any] = lambda found: found) -> Callable[[Any], str]:
    """Every number the same. read: what of the result is compared."""

    def wrong(found: Any) -> str:
        got = np.asarray(read(found))
        if got.shape != expected.shape:
            return f"{list(got.shape)}, expected {list(expected.shape)}"
        differ = int((got != expected).sum())  # NaN is never equal
        return f"{differ} of {expected.size} differ from the golden ones" if differ else ""

    return wrong


def near(expected: np.ndarray, share: float, why: str) -> Callable[[Any], str]:
    """Off by at most a share of the largest. why: where that comes from."""

    def wrong(found: Any) -> str:
        got = np.asarray(found).reshape(expected.shape) if np.size(found) == expected.size else np.asarray(found)
        if got.shape != expected.shape:
            return f"{list(got.shape)}, expected {list(expected.shape)}"
        off = float(np.abs(got - expected).max() / np.abs(expected).max())
        return "" if off <= share else f"off by {off:.2g} of the largest, allowed {share:.2g}: {why}"

    return wrong


def same(expected: object) -> Callable[[Any], str]:
    """Python objects that are equal."""
    return lambda found: "" if found == expected else f"gives {found!r:.60}, expected {expected!r:.60}"
