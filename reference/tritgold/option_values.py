"""What counts as a number where somebody sets an option: the one answer for every rule, scheme and sampler.

Python takes True for 1 and 4.0 for 4, and compares integers that no float can hold; here an option is what it looks
like, or it is refused.
"""

import math
from numbers import Real

MOST = (1 << 31) - 1  # of counts and sizes: what an index of a few dimensions can still be multiplied with


def real_number(value: object) -> float:
    """The value as a float; NaN, which no range has, for what is none: text, None, True, integers beyond float64.

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
    """Whether the value is an int, no bool and no float that looks like one, from ``least`` to ``most``.

    >>> [is_count(value, 1) for value in (1, 0, True, 1.0, 2**31)]
    [True, False, False, False, False]
    """
    return type(value) is int and least <= value <= most
