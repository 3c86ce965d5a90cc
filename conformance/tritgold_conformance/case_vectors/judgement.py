"""Verdicts on cases, and their summary: counts, suspects, and rules such as "fails if the number is 33 or more"."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from tritgold_conformance.case_vectors.case import Status
from tritgold_conformance.comparing.compare import MISSING, Comparison

OVERFLOW = "int16-wraps"  # an engine that multiplies must have run a case for this fault
BLOCKS = (2, 4, 8, 16, 32, 64, 128, 256)
FEWEST = 4  # smallest series for a rule; at least two of its cases must fail and one pass


@dataclass(frozen=True)
class Verdict:
    """One case. what: why it failed or was not assessed. comparisons: of its arrays. flags: of the case."""

    case: str
    status: Status
    what: str = ""
    comparisons: list[Comparison] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Judgement:
    """All verdicts in the order of the folder. unknown: folders of answers that do not belong to a group."""

    verdicts: list[Verdict]
    unknown: list[str] = field(default_factory=list)

    def count(self, status: Status) -> int:
        """How many cases have this status."""
        return sum(v.status == status for v in self.verdicts)

    @property
    def suspects(self) -> dict[str, int]:
        """Fault -> number of failed cases that test for it; first those without a passed case, then the most frequent.

        With a fault, every case that tests for it fails: a passed case is evidence against it, at least for its
        inputs. A case without an answer is not evidence for any fault.
        """
        wrong = [v for v in self.verdicts if v.status == "failed" and not v.what.endswith(MISSING)]
        counts = Counter(flag for v in wrong for flag in v.flags)
        passed = Counter(flag for v in self.verdicts if v.status == "passed" for flag in v.flags)
        return dict(sorted(counts.items(), key=lambda item: (passed[item[0]], -item[1])))

    def passed_for(self, fault: str) -> int:
        """Number of passed cases that test for a fault."""
        return sum(v.status == "passed" and fault in v.flags for v in self.verdicts)

    @property
    def rules(self) -> dict[str, str]:
        """Series of cases that fail by a rule, and the rule."""
        by_status = {s: [v.case for v in self.verdicts if v.status == s] for s in ("failed", "passed")}
        return rules(by_status["failed"], by_status["passed"])

    @property
    def without_overflow(self) -> bool:
        """Whether products were answered but no case with a sum beyond int16: then overflows stay unnoticed."""
        there_for = {v.status for v in self.verdicts if OVERFLOW in v.flags}
        return there_for == {"not assessed"}

    @property
    def exit_code(self) -> int:
        """0: all assessed cases passed; 1: a case failed; 5: nothing was assessed, or no sum beyond int16."""
        if self.count("failed"):
            return 1
        return 0 if self.count("passed") and not self.without_overflow else 5


def rules(failed: Iterable[str], passed: Iterable[str]) -> dict[str, str]:
    """Series of cases whose names differ in their last number -> the rule by which some of them fail.

    A rule must hold for every case of the series. Between a number that passes and one that fails nothing is known, and
    the rule says so. If several rules hold, the first of: a least number, a largest number, not a multiple of a block.

    >>> rules(["g/tokens-33", "g/tokens-64"], ["g/tokens-1", "g/tokens-17"])
    {'g/tokens-*': 'fails if the number is 33 or more; the limit may be any from 18 on'}
    >>> rules(["g/tokens-33", "g/tokens-64"], ["g/tokens-1", "g/tokens-32"])
    {'g/tokens-*': 'fails if the number is 33 or more'}
    """
    wrong, right = _series(failed), _series(passed)
    found = {}
    for name in wrong:
        bad, good = wrong[name], right.get(name, set())
        if len(bad) < 2 or not good or len(bad | good) < FEWEST:
            continue
        for said, holds in _candidates(bad):
            if all(map(holds, bad)) and not any(map(holds, good)):
                found[name] = f"fails if the number is {said}{_between(said, bad, good)}"
                break
    return found


def _series(names: Iterable[str]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for name in names:
        if match := re.fullmatch(r"(.*\D)([0-9]{1,9})", name):
            found.setdefault(f"{match[1]}*", set()).add(int(match[2]))
    return found


def _between(said: str, bad: set[int], good: set[int]) -> str:
    """The possible range of the limit, if no case with a number next to it has passed."""
    below, above = max((n for n in good if n < min(bad)), default=0), min((n for n in good if n > max(bad)), default=0)
    if said.endswith("or more") and below < min(bad) - 1:
        return f"; the limit may be any from {below + 1} on"
    return f"; the limit may be any up to {above - 1}" if said.endswith("or less") and above > max(bad) + 1 else ""


def _candidates(bad: set[int]) -> Iterator[tuple[str, Callable[[int], bool]]]:
    least, most = min(bad), max(bad)
    yield f"{least} or more", lambda n: n >= least
    yield f"{most} or less", lambda n: n <= most
    for block in BLOCKS:
        yield f"not a multiple of {block}", lambda n, block=block: n % block != 0  # type: ignore[misc]
        yield f"more than {block} and not a multiple of it", lambda n, block=block: n > block and n % block != 0  # type: ignore[misc]
