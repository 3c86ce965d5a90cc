"""Tolerances as data, and back: readers of the files in any language can apply the same as ``compare``."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tritgold_conformance.case_vectors.case import Allowed
from tritgold_conformance.comparing.compare import FLUSHED, Bound, Exact, Outcome, Tolerance, Ulp

_STEPS = 256  # limits are rounded up to 8 bits, because their last bits depend on the NumPy version


@dataclass(frozen=True)
class OfRow:
    """At most ``fraction`` of the largest magnitude of the expected row (the last axis)."""

    fraction: float
    why: str

    def excess(self, golden: np.ndarray, engine: np.ndarray) -> np.ndarray:
        """|difference| / allowed."""
        wide = golden.astype(np.float64)
        limit = self.fraction * np.abs(wide).max(axis=-1, keepdims=True)
        return np.abs(engine.astype(np.float64) - wide) / np.maximum(limit, FLUSHED)

    @property
    def within(self) -> Outcome:
        """The outcome for rounding."""
        return "within"


def as_data(tolerance: Tolerance, name: str, shape: tuple[int, ...]) -> tuple[Allowed, np.ndarray | None]:
    """The tolerance of an array of this name and shape, and its limits, float32, or None."""
    match tolerance:
        case Exact():
            return Allowed(kind="exact", why=tolerance.why), None
        case Ulp():
            return Allowed(kind="ulp", why=tolerance.why, ulp=float(tolerance.n)), None
        case OfRow():
            return Allowed(kind="row", why=tolerance.why, fraction=tolerance.fraction), None
        case Bound():
            limit = rounded_up(np.broadcast_to(tolerance.limit, shape))
            return Allowed(kind="bound", why=tolerance.why, limit=f"limit/{name}"), limit
    raise TypeError(f"{tolerance} has no form as data")


def from_data(allowed: Allowed, arrays: Mapping[str, np.ndarray]) -> Tolerance:
    """The inverse; arrays: those of expected.safetensors. Raises KeyError if the limit is missing."""
    match allowed.kind:
        case "exact":
            return Exact(allowed.why)
        case "ulp":
            return Ulp(allowed.ulp or 0.0, allowed.why)
        case "row":
            return OfRow(allowed.fraction or 0.0, allowed.why)
        case "bound":
            return Bound(arrays[allowed.limit or ""].astype(np.float64), allowed.why)


def rounded_up(limit: np.ndarray) -> np.ndarray:
    """float32, at most 1/128 larger. A value that has 8 bits apart from noise does not change.

    >>> rounded_up(np.array([0.0, 1.0, 1.001])).tolist()
    [0.0, 1.0, 1.0078125]
    """
    fraction, exponent = np.frexp(np.asarray(limit, np.float64))
    return np.ldexp(np.ceil(fraction * _STEPS * (1 - 1e-9)) / _STEPS, exponent).astype(np.float32)
