"""What was found of one version of an engine, as data: one file of docs/data/scoreboard."""

from pathlib import Path
from typing import Literal

import msgspec

from scoreboard.manifest import Case
from tritgold.errors import FormatError

SCHEMA = "tritgold.scoreboard/1"
Status = Literal[
    "conforms", "does not conform", "refuses the file", "could not be judged", "crashes", "too slow", "too much memory",
    "too much output", "nothing was checked",
]  # fmt: skip


class Exam(msgspec.Struct, kw_only=True):
    """Answers to the questions of ``tritgold eval``: how many are right, and of the golden model, of how many."""

    right: int
    golden: int
    of: int


class Speed(msgspec.Struct, kw_only=True):
    """Tokens/s in one run: of the engine (clock: whose), of the JAX engine and of the golden model; null: no figure."""

    clock: str
    prefill: float | None
    decode: float | None
    golden_prefill: float | None
    golden_decode: float | None
    jax_prefill: float | None = None
    jax_decode: float | None = None


class Row(msgspec.Struct, kw_only=True):
    """One case.

    why: if it conforms, empty; else the fault that was named, the mode that it follows, the first divergence, or what
    the engine said. evidence: of what does not conform, the judge's words. faults: named ones. levels: those judged,
    with the number of comparisons. coverage: the judge's line. mib: most resident memory of all processes, the judge's
    too. exit_code: of the judge; null if it was ended. command: makes the row again.
    """

    case: Case
    status: Status
    why: str = ""
    evidence: str = ""
    faults: list[str] = []
    levels: dict[str, int] = {}
    ties: int = 0
    coverage: str = ""
    speed: Speed | None = None
    exam: Exam | None = None
    seconds: float
    mib: float
    exit_code: int | None
    command: str


class EngineReport(msgspec.Struct, kw_only=True):
    """A report. unavailable: why there are no rows. said: the versions that the engine reported about itself."""

    schema: str = SCHEMA
    engine: str
    version: str
    languages: list[str]
    source: str
    date: str
    machine: dict[str, str]
    said: dict[str, str] = {}
    unavailable: str = ""
    rows: list[Row] = []


def file_name(engine: str, version: str) -> str:
    """The file of a report.

    >>> file_name("@wllama/wllama", "3.13.0")
    'wllama-wllama-3.13.0.json'
    """
    return f"{engine.lstrip('@').replace('/', '-')}-{version}.json"


def read(path: Path) -> EngineReport:
    """A report. Raises FormatError for anything else."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=EngineReport)
    except (OSError, msgspec.DecodeError) as error:
        raise FormatError(f"is not a report of the scoreboard: {error}", kind="report", file=path) from None
    if found.schema != SCHEMA:
        raise FormatError("is of another version", kind="report", file=path, got=found.schema, expected=SCHEMA)
    return found


def write(report: EngineReport, folder: Path) -> Path:
    """Write the report to the file of its engine and version; those of other versions stay."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file_name(report.engine, report.version)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    return path
