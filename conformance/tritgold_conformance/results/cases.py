"""A report as a list of cases: the units that JUnit counts, xfail files name, and a command can repeat alone."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from tritgold.trace_names import TraceName
from tritgold_conformance.comparing.compare import Comparison
from tritgold_conformance.results.coverage import ranges
from tritgold_conformance.results.levels import BY_OUTPUT
from tritgold_conformance.results.report import Level, Report, Status


@dataclass(frozen=True)
class Case:
    """One verdict. name: the output, with its vector's label; empty if the whole level is one case.

    status: ``known failures`` if it fails and the xfail file lists it, with the ``reason`` given there. message: why
    it fails or was not assessed.
    """

    level: str
    name: str
    status: Status
    message: str = ""
    reason: str = ""
    comparison: Comparison | None = None

    @property
    def id(self) -> str:
        """Its name in an xfail file: ``logits``, ``operations:layers.0.q.out``."""
        return f"{self.level}:{self.name}" if self.name else self.level

    @property
    def failing(self) -> bool:
        """Whether it fails, known or not."""
        return self.status in ("failed", "known failures")


def cases(report: Report) -> list[Case]:
    """Every case, level by level; in a level first the judged ones in execution order, then those not assessed.

    Levels of BY_OUTPUT have one case for each output; every other level is one case.
    """
    return [_known(case, report) for name, level in report.levels.items() for case in _of_level(name, level, report)]


def failures(report: Report) -> list[Case]:
    """The cases that fail and are in no xfail file."""
    return [case for case in cases(report) if case.status == "failed"]


def command(report: Report, case: Case) -> str:
    """The command that shows the case: the operation alone, or the same judgement again."""
    if case.level != "operations" or not case.name:
        return report.repeat
    before, ids, after = report.repeat.rpartition(" --ids ")  # --ids, the longest option, stays last
    return f"{before} --only {shlex.quote(case.name)}{ids}{after}"


def by_rule(failing: list[Case]) -> list[tuple[str, list[Case]]]:
    """Cases grouped by level and name without the layer: ("operations: q.out (layers 0-1)", cases)."""
    groups: dict[tuple[str, str], list[Case]] = {}
    for case in failing:
        groups.setdefault((case.level, TraceName.of(case.name).in_every_layer), []).append(case)
    named = []
    for (level, what), same in groups.items():
        numbers = (TraceName.of(case.name).layer for case in same)
        layers = ranges([number for number in numbers if number is not None])
        rule = f"{level}: {what}" if what else level
        named.append((f"{rule} (layer{'s' if len(same) > 1 else ''} {layers})" if layers else rule, same))
    return named


def _of_level(name: str, level: Level, report: Report) -> Iterator[Case]:
    if name in BY_OUTPUT:
        yield from _outputs(name, report)
        yield from (Case(name, absent, "not assessed", _why_absent(name, absent, report)) for absent in level.absent)
        if not level.compared and not level.absent:
            yield Case(name, "", level.status, level.note)
        return
    status: Status = "failed" if level.status == "known failures" else level.status
    yield Case(name, "", status, "" if status == "passed" else level.note)


def _outputs(level: str, report: Report) -> Iterator[Case]:
    if level != "trace":
        judged = [c for c in report.operations if c.name.endswith("]") == (level == "edge_cases")]
    elif report.free_run is not None:
        wrong = report.free_run.divergence
        passed = (Comparison(name, "within", 0) for name in report.free_run.compared)
        judged = [wrong if wrong is not None and wrong.name == c.name else c for c in passed]
    else:
        judged = []
    for comparison in judged:
        if comparison.passed:
            yield Case(level, comparison.name, "passed")
        else:
            yield Case(level, comparison.name, "failed", comparison.what, comparison=comparison)


def _why_absent(level: str, name: str, report: Report) -> str:
    run = report.free_run
    if level != "trace" or run is None or name not in run.errors.outputs:
        return "the engine does not give it"
    if run.divergence is not None:
        return f"after the first divergence, {run.divergence.name}"
    return "after a broken tie that cannot be told from a bug"


def _known(case: Case, report: Report) -> Case:
    if case.status != "failed" or report.xfail is None:
        return case
    for entry in report.xfail.entries:
        if matches(entry.pattern, case.id):
            return Case(case.level, case.name, "known failures", case.message, entry.reason, case.comparison)
    return case


def matches(pattern: str, case: str) -> bool:
    """Whether an entry of an xfail file names a case.

    A level names all its cases; any other entry is compared with the whole id, where ``*`` is any text. No other
    character is special, because the names of vectors contain brackets.

    >>> matches("operations:layers.*.q.out", "operations:layers.11.q.out"), matches("logits", "logits")
    (True, True)
    >>> matches("operations", "operations:embedding"), matches("operations:q.out", "operations:layers.0.q.out")
    (True, False)
    >>> matches("trace:*.0.q*t", "trace:layers.0.q.out"), matches("trace:*.q.*.q.*", "trace:layers.0.q.out")
    (True, False)
    """
    level, colon, _ = pattern.partition(":")
    if not colon:
        return case.partition(":")[0] == level
    first, *rest = pattern.split("*")
    if not rest:
        return case == pattern
    *middle, last = rest
    if not case.startswith(first) or not case.endswith(last) or len(case) < len(first) + len(last):
        return False
    at, end = len(first), len(case) - len(last)
    for piece in middle:  # the earliest match leaves the most room for the next
        at = case.find(piece, at, end) + len(piece)
        if at < len(piece):
            return False
    return True
