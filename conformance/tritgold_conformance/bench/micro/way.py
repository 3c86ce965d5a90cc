"""One way to do a small operation, which is checked and timed."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np


class Way(NamedTuple):
    """name, why: for the report. run: does the work and returns the result. wrong: what is wrong with a result, in
    words; empty if nothing is. by: the engine. moved: bytes that it has to read. units: of work in one run, below 1 if
    it does only a part; seconds are of one unit.
    """

    name: str
    why: str
    run: Callable[[], Any]
    wrong: Callable[[Any], str]
    by: str = "numpy"
    moved: int | None = None
    units: float = 1


def of_xla(forms: Sequence[Any], wrong: Callable[[Any], str]) -> list[Way]:
    """Ways of the adapter ``engines.xla_micro``, all checked by ``wrong``."""
    return [Way(form.name, form.why, form.run, wrong, "xla", form.moved) for form in forms]


def equal(expected: np.ndarray, read: Callable[[Any], Any] = lambda found: found) -> Callable[[Any], str]:
    """All numbers are equal. read: result -> the array to compare."""

    def wrong(found: Any) -> str:
        got = np.asarray(read(found))
        if got.shape != expected.shape:
            return f"{list(got.shape)}, expected {list(expected.shape)}"
        differ = int((got != expected).sum())  # NaN is never equal
        return f"{differ} of {expected.size} differ from the golden ones" if differ else ""

    return wrong


def near(expected: np.ndarray, share: float, why: str) -> Callable[[Any], str]:
    """Off by at most ``share`` of the largest magnitude. why: the reason for this bound."""

    def wrong(found: Any) -> str:
        got = np.asarray(found).reshape(expected.shape) if np.size(found) == expected.size else np.asarray(found)
        if got.shape != expected.shape:
            return f"{list(got.shape)}, expected {list(expected.shape)}"
        off = float(np.abs(got - expected).max() / np.abs(expected).max())
        return "" if off <= share else f"off by {off:.2g} of the largest, allowed {share:.2g}: {why}"

    return wrong


def same(expected: object) -> Callable[[Any], str]:
    """Equal Python objects."""
    return lambda found: "" if found == expected else f"gives {found!r:.60}, expected {expected!r:.60}"
