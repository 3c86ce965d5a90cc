"""When many cases fail by a rule, the rule is said, and not forty names: fails iff tokens >= 33."""

import re
from collections.abc import Callable, Iterable, Iterator

BLOCKS = (2, 4, 8, 16, 32, 64, 128, 256)
FEWEST = 4  # cases of a series, with at least two that fail and one that passes, that a rule is made of


def rules(failed: Iterable[str], passed: Iterable[str]) -> dict[str, str]:
    """Series of cases whose names differ in their last number -> the rule by which some of them fail.

    A rule must hold for every case of the series. Where several do, the first of: a least number, a largest one, no
    multiple of a block.

    >>> rules(["g/tokens-33", "g/tokens-64"], ["g/tokens-1", "g/tokens-17"])
    {'g/tokens-*': 'fails iff the number is 33 or more'}
    """
    wrong, right = _series(failed), _series(passed)
    found = {}
    for name in wrong:
        bad, good = wrong[name], right.get(name, set())
        if len(bad) < 2 or not good or len(bad | good) < FEWEST:
            continue
        for said, holds in _candidates(bad):
            if all(map(holds, bad)) and not any(map(holds, good)):
                found[name] = f"fails iff the number is {said}"
                break
    return found


def _series(names: Iterable[str]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for name in names:
        if match := re.fullmatch(r"(.*\D)([0-9]{1,9})", name):
            found.setdefault(f"{match[1]}*", set()).add(int(match[2]))
    return found


def _candidates(bad: set[int]) -> Iterator[tuple[str, Callable[[int], bool]]]:
    least, most = min(bad), max(bad)
    yield f"{least} or more", lambda n: n >= least
    yield f"{most} or less", lambda n: n <= most
    for block in BLOCKS:
        yield f"no multiple of {block}", lambda n, block=block: n % block != 0  # type: ignore[misc]
        yield f"more than {block} and no multiple of it", lambda n, block=block: n > block and n % block != 0  # type: ignore[misc]
