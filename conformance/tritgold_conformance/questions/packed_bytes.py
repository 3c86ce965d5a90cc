"""Packed bytes that an engine must read, and bytes that it must refuse.

Every format with random trits and a scale that is not 1, blocks with different scales, rows that do not fill a byte,
and bytes that must be refused: a code that is not a trit, a scale that is not finite, and a matrix cut in half. A
format that the engine does not read is not assessed.
"""

from functools import lru_cache

import numpy as np

from tritgold_conformance.faults.packing import FORMATS
from tritgold_conformance.faults.witnesses import FileCase, file_cases

# Format -> (distance in bytes from the end to its last scale, dtype of the scale).
_SCALES = {"i2_s": (32, "<f4"), "i2_s-64": (32, "<f4"), "tq1_0": (2, "<f2"), "tq2_0": (2, "<f2")}


@lru_cache(maxsize=1)
def cases() -> tuple[FileCase, ...]:
    """First the cases that are known to show faults, then variants of their bytes."""
    known = file_cases()
    whole = known[: len(FORMATS)]
    hf = next(c for c in whole if c.format == "hf")
    rows, columns = hf.shape
    partly = FileCase("hf", hf.data, (rows - 2, columns), "rows that are no multiple of 4")
    short = [FileCase(c.format, c.data[: len(c.data) // 2], c.shape, "the second half is missing") for c in whole]
    return (*known, *short, partly, *(_with_scale(c, np.nan) for c in whole if c.format in _SCALES))


def _with_scale(case: FileCase, value: float) -> FileCase:
    """The same case with ``value`` as its last scale."""
    before, dtype = _SCALES[case.format]
    scale, at = np.array(value, dtype).tobytes(), len(case.data) - before
    data = case.data[:at] + scale + case.data[at + len(scale) :]
    return FileCase(case.format, data, case.shape, f"a scale of {value}, which must be refused")
