"""The files level: packed bytes, read by the engine itself. Exact, for trit x scale has one float32 value.

Every format with random trits and a scale that is not 1, blocks with scales of their own, and bytes that must be
refused: a code that is no trit, and a matrix that was cut in half. A format that the engine does not read is not
assessed.
"""

from collections.abc import Iterator

import numpy as np

from tritgold.errors import EngineError, PackingError, TritgoldError
from tritgold_conformance.comparing.compare import Comparison, Exact, compare, refused
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.faults.packing import FORMATS
from tritgold_conformance.faults.witnesses import FileCase, file_cases

EXACT = Exact("trit x scale has one float32 value")
REFUSED = "bytes that hold no such matrix must be refused, by any exception"


def cases() -> list[FileCase]:
    """Those of the faults' witnesses, and the same bytes cut in half: more than padding is missing."""
    whole = file_cases()
    short = [
        FileCase(c.format, c.data[: len(c.data) // 2], c.shape, "the second half is missing")
        for c in whole[: len(FORMATS)]
    ]
    return [*whole, *short]


def judge_files(engine: EngineUnderTest) -> Iterator[Comparison | str]:
    """Yields a Comparison for each case, named ``format [why]``, or its name: not assessed.

    An exception on bytes that are right is a failure of that case; the others are still judged.
    """
    for case in cases():
        name = f"{case.format} [{case.why}]"
        right = _right(case)
        try:
            given = engine.unpack(case.format, case.data, case.shape)
        except TritgoldError as error:
            if isinstance(error, EngineError) and error.kind != "engine-failed":
                raise  # late, or of another form: nothing can be judged
            shown = np.zeros(1) if right is None else right
            yield Comparison(name, "equal", 1, why=REFUSED) if right is None else refused(name, shown, error.message)
            continue
        if given is None:
            yield name
        elif right is None:
            yield Comparison(name, "fails", compared=1, what="was read as if it were whole", why=REFUSED)
        else:
            yield compare(name, right, given, EXACT)


def _right(case: FileCase) -> np.ndarray | None:
    """float32 [out, in]; None where the bytes must be refused."""
    try:
        return FORMATS[case.format].unpack(case.data, case.shape).dense()
    except PackingError:
        return None
