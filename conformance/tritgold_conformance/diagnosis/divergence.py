"""Where the first divergence lies, and its class: the rule behind the failing elements, where there is one."""

import numpy as np

from tritgold.layers.arithmetic import Array
from tritgold.trace_names import TraceName, by_token
from tritgold_conformance.comparing.compare import Comparison, Tolerance, incomparable
from tritgold_conformance.diagnosis.replay import operation_of
from tritgold_conformance.faults.fault import Mutant
from tritgold_conformance.results.diagnosis import Divergence


def divergence(
    level: str, base: Mutant, comparison: Comparison, golden: Array, engine: Array, tolerance: Tolerance | None
) -> Divergence:
    """The divergence at one output. golden: what was right there. tolerance: None where only floats were compared."""
    plain = comparison.name.partition(" [")[0]
    known = operation_of(base).get(plain)
    failed = failing_elements(golden, engine, tolerance)
    position = channel = None
    if failed is not None and failed.any():
        position, channel = (int(i) for i in np.argwhere(by_token(plain, failed))[0])
    return Divergence(
        name=comparison.name,
        level=level,
        operation=known[0].name if known else plain,
        layer=TraceName.of(plain).layer,
        position=position,
        channel=channel,
        comparison=comparison,
        what=_class(comparison, golden, engine, failed),
    )


def failing_elements(golden: Array, engine: Array, tolerance: Tolerance | None) -> np.ndarray | None:
    """Which elements are wrong, bool of their shape; None where they cannot be compared by element."""
    theirs = np.asarray(engine)
    if theirs.shape != golden.shape or theirs.dtype.kind not in "iuf":
        return None
    if incomparable(golden, theirs):
        return ~np.isfinite(theirs.astype(np.float64)) | (golden.astype(np.float64) != theirs)
    if tolerance is not None:
        return tolerance.excess(golden, theirs) > 1
    size = np.abs(golden.astype(np.float64)).max(initial=1e-30)
    return np.abs(theirs.astype(np.float64) - golden) > 1e-5 * size


def _class(comparison: Comparison, golden: Array, engine: Array, failed: np.ndarray | None) -> str:
    said = [comparison.what] if comparison.what else []
    if failed is None or not failed.any():
        return "; ".join(said)
    plain = comparison.name.partition(" [")[0]
    if golden.dtype.kind == "i":
        whole = np.asarray(engine, np.float64)
        said.append("integers, with zero tolerance" if (whole == np.rint(whole)).all() else "integers that are none")
    if not np.isfinite(np.asarray(engine, np.float64)).all():
        said.append("non-finite")
    if rule := row_rule(by_token(plain, failed)):
        said.append(rule)
    return "; ".join(said)


def row_rule(failed: np.ndarray) -> str:
    """Which tokens fail, bool [tokens, elements], as a rule where there is one.

    >>> row_rule(np.arange(40)[:, None] >= 32)
    'only positions from 32 on, in a pass of 40'
    >>> row_rule(np.arange(40)[:, None] > 0)
    'only positions > 0'
    """
    rows = failed.reshape(len(failed), -1).any(axis=1)
    if len(rows) < 2 or rows.all() or not rows.any():
        return ""
    first = int(np.argmax(rows))
    if rows[first:].all():
        return "only positions > 0" if first == 1 else f"only positions from {first} on, in a pass of {len(rows)}"
    if rows.sum() == 1:
        return f"only position {first}"
    return f"positions {', '.join(map(str, np.flatnonzero(rows)[:8]))}{' ...' if rows.sum() > 8 else ''}"
