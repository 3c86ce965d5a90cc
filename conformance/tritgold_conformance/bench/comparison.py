"""Compares a report with an earlier one: how much faster each common row has become, and how sure that is."""

from pathlib import Path
from typing import NamedTuple

import msgspec

from tritgold.errors import FormatError
from tritgold_conformance.bench.results import SCHEMA, Report, Result
from tritgold_conformance.bench.throughput import shown
from tritgold_conformance.bench.timing import Timing


class Compared(NamedTuple):
    """ratio: old median by new median; above 1 the new report is faster. low, high: the least and the largest ratio of
    values in the intervals of the two medians.
    """

    row: str
    engine: str
    threads: int
    case: str
    old: float
    new: float
    ratio: float
    low: float
    high: float

    @property
    def said(self) -> str:
        """Faster, slower, or not shown: 1 lies between ``low`` and ``high``."""
        return "faster" if self.low > 1 else "slower" if self.high < 1 else "no difference shown"


def read_report(path: Path) -> Report:
    """A report of ``tritgold bench --json``. Raises FormatError ``bench-report`` for anything else."""
    try:
        report = msgspec.json.decode(path.read_bytes(), type=Report)
    except (OSError, msgspec.DecodeError) as error:
        hint = "give a file that tritgold bench --json has written"
        raise FormatError("is not a report", kind="bench-report", file=path, got=str(error), hint=hint) from error
    if report.schema != SCHEMA:
        hint = "measure again with this version, or compare with the version that wrote it"
        raise FormatError(
            "is a report of another version",
            kind="bench-report",
            file=path,
            got=report.schema,
            expected=SCHEMA,
            hint=hint,
        )
    return report


def compared(old: Report, new: Report) -> list[Compared]:
    """Rows that both have measured, in the order of the new one."""
    before = {_key(result): result.timing for result in old.results if result.timing is not None}
    found = []
    for result in new.results:
        was, now = before.get(_key(result)), result.timing
        if was is None or now is None:
            continue
        (was_low, was_high), (now_low, now_high) = _interval(was), _interval(now)
        times = was.median, now.median, was.median / now.median, was_low / now_high, was_high / now_low
        found.append(Compared(result.row, result.engine, result.threads, shown(result.case), *times))
    return found


def differences(old: Report, new: Report) -> list[str]:
    """What differs besides the code, in words."""
    facts = {
        "shape": (old.shape, new.shape),
        "processor": (old.machine.get("processor"), new.machine.get("processor")),
        "cores": (old.machine.get("cores"), new.machine.get("cores")),
        "jax": tuple(report.machine.get("packages", {}).get("jax") for report in (old, new)),
    }
    return [f"{name}: {was} before, {now} now" for name, (was, now) in facts.items() if was != now]


def _key(result: Result) -> tuple[str, str, int, str]:
    return result.row, result.engine, result.threads, shown(result.case)


def _interval(timing: Timing) -> tuple[float, float]:
    """Of the median; in older reports, which do not have it, from the least sample to the p95."""
    if timing.low is None or timing.high is None:
        return timing.least, timing.p95
    return timing.low, timing.high
