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
from tritgold_conformance.comparing.error_map import ErrorMap
from tritgold_conformance.comparing.logits import LogitsVerdict
from tritgold_conformance.comparing.next_tokens import TextVerdict
from tritgold_conformance.comparing.ties import BrokenTie
from tritgold_conformance.contract.clock import Speed
from tritgold_conformance.results.diagnosis import Diagnosis
from tritgold_conformance.results.levels import LEVELS

SCHEMA = "tritgold.report/3"
Status = Literal["passed", "failed", "known failures", "not assessed"]
Verdict = Literal["conforms", "known failures only", "does not conform", "nothing was checked", "could not be judged"]
EXIT_CODES: dict[Verdict, int] = {
    "conforms": 0, "known failures only": 0, "does not conform": 1, "nothing was checked": 5, "could not be judged": 3,
}  # fmt: skip
UNKNOWN = "not known"  # of a model or an engine that could not be loaded
_LARGEST = 1 << 28  # bytes of a report that is read again: ten times that of 100 layers


class Level(msgspec.Struct, kw_only=True):
    """One level of the judgement.

    status: ``known failures`` where everything that fails is in the engine's xfail file. compared: arrays or
    positions. known: failing cases that the xfail file lists. absent: names of outputs that were not assessed. note:
    what to say beside the status.
    """

    status: Status
    compared: int = 0
    failed: int = 0
    known: int = 0
    not_assessed: int = 0
    absent: list[str] = []
    note: str = ""


class Side(msgspec.Struct, kw_only=True):
    """One of the two that are compared."""

    name: str
    versions: dict[str, str]
    speed: Speed | None = None


class FreeRun(msgspec.Struct, kw_only=True):
    """The trace. compared: names, in execution order, up to the divergence. errors: of all of it, also behind that."""

    compared: list[str]
    divergence: Comparison | None
    errors: ErrorMap


class Expected(msgspec.Struct, kw_only=True):
    """An entry of an xfail file: what it names, why it fails, and how many of the cases it names do what.

    state: ``fails`` where one of them does. ``passes`` (all that could be tried passed) and ``names nothing`` are
    stale.
    """

    pattern: str
    reason: str
    line: int
    failing: int
    passing: int
    not_assessed: int

    @property
    def state(self) -> Literal["fails", "passes", "not assessed", "names nothing"]:
        """What became of it."""
        if self.failing:
            return "fails"
        if self.passing:
            return "passes"
        return "not assessed" if self.not_assessed else "names nothing"

    @property
    def stale(self) -> bool:
        """It should be taken out of the file."""
        return self.state in ("passes", "names nothing")


class Xfail(msgspec.Struct, kw_only=True):
    """An xfail file, tried. strict: a stale entry makes the exit code 1."""

    file: str
    strict: bool
    entries: list[Expected]

    @property
    def stale(self) -> list[Expected]:
        """Entries that name nothing, or nothing that fails."""
        return [entry for entry in self.entries if entry.stale]


class Problem(msgspec.Struct, kw_only=True):
    """Why an engine could not be judged. kind: a short stable word, as in ``tritgold.errors``."""

    kind: str
    message: str


class Report(msgspec.Struct, kw_only=True):
    """What ``tritgold check --json`` prints.

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


def with_speeds(report: Report, engine: Speed | None, reference: Speed | None) -> Report:
    """The report with tokens/s of its two sides."""
    sides = {"engine": (report.engine, engine), "reference": (report.reference, reference)}
    timed = {name: msgspec.structs.replace(side, speed=speed) for name, (side, speed) in sides.items()}
    return msgspec.structs.replace(report, **timed)


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
        hint = "tritgold check --json, or --report FILE.json, makes one anew"
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
    return FormatError(f"is no report of tritgold check: {printable(why)}", kind="report-malformed", file=path)


def json_schema() -> dict[str, Any]:
    """The JSON schema of a report."""
    return msgspec.json.schema(Report)
