"""Where an engine's activations differ from the golden ones: the error of each output, position by position.

Only errors, no activations: a report of a model with billions of weights has a few hundred kilobytes.
"""

import math
from collections.abc import Mapping

import msgspec
import numpy as np

from tritgold.trace_names import TraceName, by_token

COLUMNS = 64  # at most; for a longer input each column is the maximum over several positions
_MOST = 1e30  # larger errors are reported as this
_CODES = 127.0  # the largest code: errors of codes are relative to it


class ErrorMap(msgspec.Struct, kw_only=True):
    """Errors of a free-running trace, with broken ties followed.

    positions: the first position of each column, ascending from 0. outputs: trace name -> one error for each column,
    the largest |difference| divided by the token's largest golden value, three significant digits; None if it cannot be
    compared (not finite, another shape). Outputs that the engine does not give are missing.
    """

    positions: list[int]
    outputs: dict[str, list[float | None]]


def error_map(golden: Mapping[str, np.ndarray], engine: Mapping[str, object], tokens: int) -> ErrorMap:
    """The errors of every array that both have, in the order of ``golden``.

    >>> golden = {"logits": np.array([[1.0, -4.0], [2.0, 0.0]])}
    >>> error_map(golden, {"logits": np.array([[1.0, -4.0], [2.5, 0.0]])}, tokens=2)
    ErrorMap(positions=[0, 1], outputs={'logits': [0.0, 0.25]})
    """
    width = math.ceil(tokens / COLUMNS)
    starts = list(range(0, tokens, width))
    shown = {name: _columns(name, array, engine[name], starts) for name, array in golden.items() if name in engine}
    return ErrorMap(positions=starts, outputs=shown)


def _columns(name: str, golden: np.ndarray, engine: object, starts: list[int]) -> list[float | None]:
    given = np.asarray(engine)
    if given.shape != golden.shape or (given.dtype.kind not in "iuf" and given.dtype.name != "bfloat16"):
        return [None] * len(starts)
    worst = np.maximum.reduceat(_errors(name, golden, given), starts)
    return [float(f"{error:.2e}") if math.isfinite(error) else None for error in worst.tolist()]


def _errors(name: str, golden: np.ndarray, engine: np.ndarray) -> np.ndarray:
    """float64 [tokens]; infinite if a value is not finite."""
    ours, theirs = (by_token(name, a).astype(np.float64) for a in (golden, engine))
    bad = ~np.isfinite(theirs)
    difference = np.abs(np.where(bad, 0.0, theirs) - ours).max(axis=1)
    size = (
        _CODES
        if TraceName.of(name).role == "codes"
        else np.maximum(np.abs(ours).max(axis=1), np.finfo(np.float32).tiny)
    )
    return np.where(bad.any(axis=1), np.inf, np.minimum(difference, _MOST * size) / size)
