"""Report: the verdict as data. Every number in it was measured in this run; what was not measured is null.

The structures are msgspec's, so the JSON schema is made from them (``tritgold check --schema``) and cannot drift.
Version 3 renames levels (files, vectors, text are packed_bytes, edge_cases, next_tokens) and has those of behaviours.
"""

from pathlib import Path
from typing import Any, Literal

import msgspec

from tritgold.errors import FormatError
from tritgold.formats.untrusted_text import printable, read_text
from tritgold.trace import versions
from tritgold_conformance.comparing.activation_statistics import Statistics
from tritgold_conformance.comparing.compare import Comparison
from tritgold_conformance.comparing.logits import LogitsVerdict
from tritgold_conformance.comparing.next_tokens import TextVerdict
from tritgold_conformance.comparing.ties import BrokenTie
from tritgold_conformance.contract.clock import Speed
from tritgold_conformance.results.coverage import Coverage
from tritgold_conformance.results.diagnosis import Diagnosis
from tritgold_conformance.results.levels import LEVELS
from tritgold_conformance.results.parts import Expected as Expected
from tritgold_conformance.results.parts import FreeRun as FreeRun
from tritgold_conformance.results.parts import Level as Level
from tritgold_conformance.results.parts import Problem as Problem
from tritgold_conformance.results.parts import Side as Side
from tritgold_conformance.results.parts import Status as Status
from tritgold_conformance.results.parts import Xfail as Xfail

SCHEMA = "tritgold.report/3"
Verdict = Literal["conforms", "known failures only", "does not conform", "nothing was checked", "could not be judged"]
EXIT_CODES: dict[Verdict, int] = {
    "conforms": 0, "known failures only": 0, "does not conform": 1, "nothing was checked": 5, "could not be judged": 3,
}  # fmt: skip
UNKNOWN = "not known"  # of a model or an engine that could not be loaded
_LARGEST = 1 << 28  # bytes of a report that is read again: ten times that of 100 layers


class Report(msgspec.Struct, kw_only=True):
    """What ``tritgold check --json`` prints.

    coverage: what was covered and what not; None only where it could not be judged.
    levels: by the names of ``results.levels.LEVELS``, from the surest to the widest.
    first_divergence: the first failing comparison in execution order. free_run, ties, noise: of the trace; noise is
    the largest, relative to the token. diagnosis: where it was asked for, and failed. xfail: where a file was given.
    repeat: the command that makes this report again; reproduce: the one that shows the first divergence.
    matches: another mode by which all its logits and its text pass, where they fail by ``mode``; else empty.
    in_process: the engine's class ran in the judge's own process (--in-process), where it can change the judge.
    problem: where it could not be judged, and there alone: then no level is assessed, and what nobody knows is empty.
    """

    schema: str = SCHEMA
    verdict: Verdict
    engine: Side
    reference: Side
    mode: str
    model: str
    model_hash: str
    config: dict[str, Any]
    tokens: list[int]
    machine: dict[str, str]
    levels: dict[str, Level]
    first_divergence: Comparison | None
    operations: list[Comparison]
    not_assessed: list[str]
    free_run: FreeRun | None
    ties: list[BrokenTie]
    noise: float | None
    logits: list[LogitsVerdict]
    text: TextVerdict | None
    statistics: dict[str, dict[str, Statistics]]
    repeat: str
    reproduce: str
    diagnosis: Diagnosis | None = None
    xfail: Xfail | None = None
    problem: Problem | None = None
    matches: str = ""
    in_process: bool = False
    coverage: Coverage | None = None

    @property
    def exit_code(self) -> int:
        """0 conforms or fails as its xfail file says, 1 does not or a strict file is stale, 3 and 5 no verdict."""
        if self.xfail is not None and self.xfail.strict and self.xfail.stale and EXIT_CODES[self.verdict] == 0:
            return 1
        return EXIT_CODES[self.verdict]


def not_judged(problem: Problem, engine: str, model: str, mode: str | None, tokens: list[int], repeat: str) -> Report:
    """The report of an engine that could not be judged: nothing in it is assessed, and nothing looks like a pass.

    engine: as it was asked for. mode: None where nobody named one.
    """
    return Report(
        verdict="could not be judged",
        engine=Side(name=engine, versions={}),
        reference=Side(name="reference", versions={}),
        mode=mode or UNKNOWN,
        model=model,
        model_hash=UNKNOWN,
        config={},
        tokens=tokens,
        machine=versions(),
        levels={name: Level(status="not assessed", note="could not be judged") for name in LEVELS},
        first_divergence=None,
        operations=[],
        not_assessed=[],
        free_run=None,
        ties=[],
        noise=None,
        logits=[],
        text=None,
        statistics={},
        repeat=repeat,
        reproduce=repeat,
        problem=problem,
    )


def with_speeds(
    report: Report, engine: Speed | None, reference: Speed | None, timed: Level, verdict: Verdict
) -> Report:
    """The report with tokens/s of its two sides, where the calls that were timed are right. timed: their level."""
    report = msgspec.structs.replace(report, levels={**report.levels, "timed": timed}, verdict=verdict)
    if report.coverage is not None:
        now = msgspec.structs.replace(report.coverage, timed=timed.status != "not assessed")
        report = msgspec.structs.replace(report, coverage=now)
    if verdict != "conforms":
        return report
    sides = {"engine": (report.engine, engine), "reference": (report.reference, reference)}
    both = {name: msgspec.structs.replace(side, speed=speed) for name, (side, speed) in sides.items()}
    return msgspec.structs.replace(report, **both)


def to_json(report: Report) -> bytes:
    """The report as one JSON object."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1)


def read_report(path: Path) -> Report:
    """A report that was saved. Raises FormatError for anything else, and for a report of another version."""
    try:
        raw = msgspec.json.decode(read_text(path, _LARGEST))
    except (ValueError, RecursionError) as error:
        raise _no_report(path, str(error)) from None
    schema = raw.get("schema") if isinstance(raw, dict) else None
    if schema != SCHEMA:
        hint = "tritgold check --json, or --report FILE.json, makes one again"
        got, kind = printable(repr(schema)), "report-version"
        raise FormatError("no report of this version", kind=kind, file=path, got=got, expected=SCHEMA, hint=hint)
    try:
        _finite_again(raw.get("diagnosis"))
        return _whole(msgspec.convert(raw, Report, str_keys=True))
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise _no_report(path, str(error)) from None


def _whole(report: Report) -> Report:
    """The same report. Raises ValueError for a part that is not there although its place is."""
    if tuple(report.levels) != tuple(LEVELS):
        raise ValueError(f"its levels are {', '.join(report.levels)}")
    if (report.problem is not None) != (report.verdict == "could not be judged"):
        raise ValueError(f"its verdict is {report.verdict}, and its problem says otherwise")
    if report.problem is not None and any(level.status != "not assessed" for level in report.levels.values()):
        raise ValueError("a level is assessed of what could not be judged")
    if report.problem is not None:
        return report
    if report.coverage is None:
        raise ValueError("it has a verdict and no coverage")
    if missing := {"layers", "hidden", "heads", "kv_heads", "vocab"} - report.config.keys():
        raise ValueError(f"config lacks {', '.join(sorted(missing))}")
    for name, pair in report.statistics.items():
        if pair.keys() != {"golden", "engine"}:
            raise ValueError(f"statistics of {name} are not of golden and engine")
    if report.free_run is not None:
        columns = len(report.free_run.errors.positions)
        if any(len(errors) != columns for errors in report.free_run.errors.outputs.values()):
            raise ValueError(f"an output has not one error for each of {columns} positions")
    return report


def _finite_again(diagnosis: Any) -> None:
    """Infinite distances, which JSON has not, were written as null."""
    for fault in (diagnosis or {}).get("faults", []):
        fault.update({name: float("inf") for name in ("distance", "golden") if fault.get(name, 0) is None})
        if fault.get("next_best"):
            fault["next_best"] = [float("inf") if part is None else part for part in fault["next_best"]]


def _no_report(path: Path, why: str) -> FormatError:
    return FormatError(f"is not a report of tritgold check: {printable(why)}", kind="report-malformed", file=path)


def json_schema() -> dict[str, Any]:
    """The JSON schema of a report."""
    return msgspec.json.schema(Report)
