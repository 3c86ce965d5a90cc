"""Checks the floating-point environment: the golden run needs rounding to nearest, ties to even.

A library may change the processor's rounding mode, or its treatment of subnormal numbers, for its whole process.
A few sums show this.
"""

import numpy as np

from tritgold.errors import EngineError

_TINY = np.array([1], np.uint32).view(np.float32)  # the smallest subnormal number, by its bits


def require_default_floats() -> None:
    """Raises EngineError, kind ``float-environment``, if this process rounds differently or flushes to zero."""
    one, half = np.array([1.0, -1.0, 1.0 + 2.0**-52]), np.array([2.0**-53, -(2.0**-53), 2.0**-53])
    if (one + half).tolist() != [1.0, -1.0, 1.0 + 2.0**-51] or np.rint(np.array([0.5, 1.5, -2.5])).tolist() != [
        0,
        2,
        -2,
    ]:
        _refuse("the rounding mode is not to nearest, ties to even")
    if not (_TINY * np.float32(2.0**60))[0]:
        _refuse("subnormal inputs are taken for zero (denormals-are-zero)")
    if not (np.array([2.0**-126], np.float32) * np.float32(0.5)).view(np.uint32)[0]:
        _refuse("subnormal results become zero (flush-to-zero)")


def _refuse(message: str) -> None:
    hint = "a library in this process has changed it, and the golden model would be wrong: run without that library"
    raise EngineError(message, kind="float-environment", thing="the judge's process", hint=hint)
