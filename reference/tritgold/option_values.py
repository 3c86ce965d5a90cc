"""Which values count as numbers in options, the same for every rule, scheme and sampler.

Python accepts True as 1 and 4.0 as 4, and compares integers that are too large for a float; here such values are
refused.
"""

import math
from numbers import Real

MOST = (1 << 31) - 1  # the limit of counts and sizes: products with a few dimensions still fit into int64


def real_number(value: object) -> float:
    """The value as a float; NaN, which is outside every range, for text, None, bool and integers beyond float64.

    >>> real_number(3), real_number(True), real_number("3"), real_number(10**400)
    (3.0, nan, nan, nan)
    """
    if not isinstance(value, Real) or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def is_count(value: object, least: int = 0, most: int = MOST) -> bool:
    """Whether the value is an int (not a bool, not a float such as 4.0) from ``least`` to ``most``.

    >>> [is_count(value, 1) for value in (1, 0, True, 1.0, 2**31)]
    [True, False, False, False, False]
    """
    return type(value) is int and least <= value <= most
