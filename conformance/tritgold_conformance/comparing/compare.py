"""Comparators: golden array, engine's array and a tolerance in; one Comparison out. Each fails closed.

NaN or infinity on either side, another shape, an empty array or a wrong dtype is a failure before any
tolerance is applied. A tolerance states the reason for its width; exact needs no reason.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol

import numpy as np

from tritgold.trace_names import token_axis
from tritgold_conformance.comparing.classify import classify

Outcome = Literal["equal", "within", "ties", "fails"]


# Float32's smallest normal number: engines may flush smaller values to zero (XLA and most SIMD code do).
FLUSHED = 2.0**-126
MISSING = "nothing was returned"


class Tolerance(Protocol):
    """How far an engine's value may be from the golden one."""

    @property
    def why(self) -> str:
        """The reason for the width of the tolerance."""

    @property
    def within(self) -> Outcome:
        """The outcome for an allowed difference."""

    def excess(self, golden: np.ndarray, engine: np.ndarray) -> np.ndarray:
        """|difference| / allowed, elementwise; above 1 fails. Both arrays are finite and of one shape."""


@dataclass(frozen=True)
class Exact:
    """Equal or wrong: the integer tier."""

    why: str = "integers: any order of summation gives the same"
    within: ClassVar[Outcome] = "equal"

    def excess(self, golden: np.ndarray, engine: np.ndarray) -> np.ndarray:
        """0 where equal, infinity elsewhere."""
        return np.where(golden == engine, 0.0, np.inf)


@dataclass(frozen=True)
class Ulp:
    """At most ``n`` units in the last place of the golden float32."""

    n: float
    why: str
    within: ClassVar[Outcome] = "within"

    def excess(self, golden: np.ndarray, engine: np.ndarray) -> np.ndarray:
        """Difference in units of the golden value's spacing, divided by n."""
        spacing = np.spacing(np.abs(golden.astype(np.float32))).astype(np.float64)
        return np.abs(_f64(engine) - _f64(golden)) / np.maximum(self.n * spacing, FLUSHED)


@dataclass(frozen=True)
class Bound:
    """At most ``limit``, an array that broadcasts to the values: an error bound derived from the inputs.

    Where the limit is 0 only equality passes, except for a flushed subnormal.
    """

    limit: np.ndarray
    why: str
    within: ClassVar[Outcome] = "within"

    def excess(self, golden: np.ndarray, engine: np.ndarray) -> np.ndarray:
        """|difference| / limit."""
        return np.abs(_f64(engine) - _f64(golden)) / np.maximum(self.limit, FLUSHED)


@dataclass(frozen=True)
class TieAwareCodes:
    """int8 codes may differ by one if x * s is within ``distance`` of a rounding tie; otherwise they must be equal.

    scaled: float64 x * s, of the shape of the codes. distance: in code units.
    """

    scaled: np.ndarray
    distance: float
    why: str
    within: ClassVar[Outcome] = "ties"

    def excess(self, golden: np.ndarray, engine: np.ndarray) -> np.ndarray:
        """0 if equal; if off by one, distance to the tie divided by the allowed distance; otherwise infinity."""
        off = np.abs(_f64(engine) - _f64(golden))  # int64 would overflow for -2**63
        # The tie between these two codes, not the nearest one: golden 2 at 2.4999999 may be 3, but not 1.
        from_tie = np.abs(self.scaled - (golden.astype(np.float64) + engine) / 2)
        return np.where(off == 0, 0.0, np.where(off == 1, from_tie / self.distance, np.inf))


@dataclass(frozen=True)
class Comparison:
    """The outcome for one array.

    compared, differing: number of elements. max_abs: largest |difference|. excess: the worst |difference| / allowed;
    None if it is infinite (integers) or nothing could be compared. worst: index of the worst element, with both values.
    what: the class of a failure, as text; empty if it passes.
    """

    name: str
    outcome: Outcome
    compared: int
    differing: int = 0
    max_abs: float | None = None
    excess: float | None = None
    worst: list[int] = field(default_factory=list)
    golden: float | None = None
    engine: float | None = None
    what: str = ""
    why: str = ""

    @property
    def passed(self) -> bool:
        """Equal, within the tolerance, or different only at ties."""
        return self.outcome != "fails"


def compare(name: str, golden: np.ndarray, engine: object, tolerance: Tolerance) -> Comparison:
    """Compare an engine's array with the golden one.

    engine: the engine's result of any type; anything but a numeric array of the golden shape fails.
    """
    golden = np.asarray(golden)
    problem = incomparable(golden, engine)
    if problem:
        return refused(name, golden, problem)
    candidate = np.asarray(engine)
    excess = tolerance.excess(golden, candidate)
    difference = np.abs(_f64(candidate) - _f64(golden))
    differing = int(np.count_nonzero(difference))
    worst = np.unravel_index(int(np.argmax(excess)), golden.shape)
    passed = bool(excess.max() <= 1.0)
    outcome: Outcome = ("equal" if differing == 0 else tolerance.within) if passed else "fails"
    return Comparison(
        name,
        outcome,
        compared=int(golden.size),
        differing=differing,
        max_abs=float(difference.max()),
        excess=float(excess.max()) if np.isfinite(excess.max()) else None,
        worst=[int(i) for i in worst],
        golden=float(golden[worst]),
        engine=float(candidate[worst]),
        what="" if passed else classify(golden, candidate, excess > 1.0),
        why=tolerance.why,
    )


def place(name: str, worst: list[int]) -> str:
    """The index of an element as text, with names for the axes if there are three, which are easily confused.

    >>> place("layers.0.probs [scores of 200]", [3, 5, 2]), place("logits", [5, 2])
    ('head 3, position 5, key 2', '[5, 2]')
    """
    if token_axis(name) == 1 and len(worst) == 3:
        return ", ".join(f"{axis} {at}" for axis, at in zip(("head", "position", "key"), worst, strict=True))
    return str(worst)


def refused(name: str, golden: np.ndarray, problem: str) -> Comparison:
    """The failing Comparison of two values that cannot be compared."""
    return Comparison(name, "fails", compared=int(golden.size), what=problem, why="it must be comparable at all")


def incomparable(golden: np.ndarray, engine: object) -> str:
    """Why the two cannot be compared: missing, empty, another shape, not numeric, not finite; empty if they can."""
    if engine is None:
        return MISSING
    try:
        candidate = np.asarray(engine)
    except ValueError:
        return "rows of several lengths"
    if golden.size == 0:
        return "nothing to compare: the golden array is empty"
    if candidate.shape != golden.shape:
        return f"shape {list(candidate.shape)}, expected {list(golden.shape)}"
    if candidate.dtype.kind not in "iuf" and candidate.dtype.name != "bfloat16":
        return f"dtype {candidate.dtype} is not numeric"
    if golden.dtype.kind == "i" and candidate.dtype.kind not in "iu":
        return f"dtype {candidate.dtype}, expected an integer type like {golden.dtype}"
    for side, array in (("golden", golden), ("engine's", candidate)):
        bad = ~(np.abs(_f64(array)) <= np.finfo(np.float32).max)  # values beyond float32 are infinity for every engine
        if bad.any():
            first = np.argwhere(bad)[0].tolist()
            return f"non-finite: {int(bad.sum())} of {bad.size} {side} values, first {array[tuple(first)]} at {first}"
    return ""


def _f64(array: np.ndarray) -> np.ndarray:
    return np.asarray(array, dtype=np.float64)
