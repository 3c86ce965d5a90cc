"""Trits from a float master weight (online checkpoints): the engine's own absmean, in NumPy, once at loading.

    a = max(mean|W|, 1e-5);  s = 1 / a;  trit = clamp(half_even(W * s), -1, 1);  scale = 1 / s

Source: arXiv 2402.17764, equations 1-3. Implemented independently of the golden model, so that their agreement is a
test.
"""

import math

import numpy as np

from tritgold.errors import NonFiniteError
from tritgold.ternary import DenseMatrix, TernaryRows

_FLOOR = np.float32(1e-5)
_ELEMENTS = 1 << 20  # of a slice of rows: 8 MB of float64 for a matrix of any size


def absmean(master: DenseMatrix) -> TernaryRows:
    """The scale, and the trits of any rows. Every operation except the mean is a single float32 operation.

    The mean: each row is summed in float64, the sums of the rows are added exactly, the mean is rounded once to
    float32. A zero matrix gives zeros and the scale 1e-5. Raises NonFiniteError for infinity or NaN.
    """
    rows, columns = master.shape
    slices = _slices(slice(0, rows), columns)
    total = math.fsum(s for part in slices for s in np.abs(master.rows(part)).sum(axis=1, dtype=np.float64))
    if not math.isfinite(total):
        raise NonFiniteError("the master weights are not finite", kind="weight-non-finite", got=total)
    inverse = np.float32(1) / max(np.float32(total / (rows * columns)), _FLOOR)

    def trits(asked: slice) -> np.ndarray:
        made = np.empty((asked.stop - asked.start, columns), np.int8)
        for part in _slices(asked, columns):
            here = slice(part.start - asked.start, part.stop - asked.start)
            made[here] = np.clip(np.rint(master.rows(part) * inverse), -1, 1)
        return made

    return TernaryRows(np.asarray(np.float32(1) / inverse), trits)


def _slices(rows: slice, columns: int) -> list[slice]:
    step = max(1, _ELEMENTS // columns)
    return [slice(row, min(row + step, rows.stop)) for row in range(rows.start, rows.stop, step)]
