"""Packed bytes that an engine is given to read, and bytes that it must refuse.

Every format with random trits and a scale that is not 1, blocks with scales of their own, and bytes that must be
refused: a code that is not a trit, and a matrix that was cut in half. A format that the engine does not read is not
assessed.
"""

from tritgold_conformance.faults.packing import FORMATS
from tritgold_conformance.faults.witnesses import FileCase, file_cases


def cases() -> list[FileCase]:
    """Those of the faults' witnesses, and the same bytes cut in half: more than padding is missing."""
    whole = file_cases()
    short = [
        FileCase(c.format, c.data[: len(c.data) // 2], c.shape, "the second half is missing")
        for c in whole[: len(FORMATS)]
    ]
    return [*whole, *short]
