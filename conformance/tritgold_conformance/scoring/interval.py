"""The interval of a share."""

from math import sqrt

Z = 1.959964  # 95 % of the normal distribution


def wilson(right: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share of which ``right`` in ``of`` were seen (Wilson 1927). ``of`` 0: (0, 1).

    >>> [round(end, 3) for end in wilson(98, 100)], wilson(0, 0)
    ([0.93, 0.994], (0.0, 1.0))
    """
    if of == 0:
        return 0.0, 1.0
    share, more = right / of, Z * Z / of
    middle = (share + more / 2) / (1 + more)
    half = Z / (1 + more) * sqrt(share * (1 - share) / of + more / (4 * of))
    return max(0.0, middle - half), min(1.0, middle + half)
