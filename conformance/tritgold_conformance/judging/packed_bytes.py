"""Level packed_bytes: does the engine read packed bytes as they are? Exact: trit x scale has one float32 value."""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from tritgold.errors import PackingError
from tritgold_conformance.comparing.compare import Comparison, Exact, compare, refused
from tritgold_conformance.faults.packing import FORMATS
from tritgold_conformance.faults.witnesses import FileCase
from tritgold_conformance.questions.evidence import Raised, Unpacked
from tritgold_conformance.questions.packed_bytes import cases

EXACT = Exact("trit x scale has one float32 value")
REFUSED = "bytes that hold no such matrix must be refused, by any exception"


def judge_packed_bytes(answers: Sequence[Unpacked]) -> Iterator[Comparison | str]:
    """Yields a Comparison for each case, named ``format [why]``, or its name: not assessed.

    An exception on bytes that are right is a failure of that case; the others are still judged.
    """
    for case, given in zip(cases(), answers, strict=True):
        name, right = f"{case.format} [{case.why}]", _right(case)
        if isinstance(given, Raised):
            raised = given.message
            yield Comparison(name, "equal", 1, why=REFUSED) if right is None else refused(name, right, raised)
        elif given is None:
            yield name
        elif right is None:
            yield Comparison(name, "fails", compared=1, what="was read as if it were whole", why=REFUSED)
        else:
            yield compare(name, right, given, EXACT)


@lru_cache(maxsize=64)
def _right(case: FileCase) -> np.ndarray | None:
    """float32 [out, in]; None where the bytes must be refused."""
    try:
        return FORMATS[case.format].unpack(case.data, case.shape, warn=False).dense()
    except PackingError:
        return None
