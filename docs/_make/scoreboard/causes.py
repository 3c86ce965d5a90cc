"""The causes of what does not conform, could not be judged or crashes, as data: ``causes.toml``."""

from pathlib import Path
from typing import Literal

import msgspec

from scoreboard.results import EngineReport, Row, Status
from tritgold.errors import FormatError

FILE = Path(__file__).with_name("causes.toml")
EXPLAINED: tuple[Status, ...] = ("does not conform", "could not be judged", "crashes")


class Cause(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A cause, in one clause, and the page of docs/findings that shows it ("": there is none).

    It applies to rows of these engines, statuses, formats and models (empty: of all), with this named fault ("": of
    any).
    """

    says: str
    finding: str = ""
    fault: str = ""
    engines: list[str] = []
    statuses: list[Status] = msgspec.field(default_factory=lambda: list(EXPLAINED))
    formats: list[str] = []
    models: list[str] = []

    def applies(self, report: EngineReport, row: Row) -> bool:
        """Whether it is the cause of this row."""
        return (
            row.status in self.statuses
            and report.engine in (self.engines or [report.engine])
            and row.case.format in (self.formats or [row.case.format])
            and row.case.model in (self.models or [row.case.model])
            and self.fault in ("", *row.faults)
        )


class Causes(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The file."""

    schema: Literal["tritgold.scoreboard-causes/1"]
    cause: list[Cause]


def causes(file: Path = FILE) -> list[Cause]:
    """All causes, in the order in which they are tried. Raises FormatError for anything else than such a file."""
    try:
        return msgspec.toml.decode(file.read_bytes(), type=Causes).cause
    except (OSError, ValueError) as error:
        raise FormatError(f"is not a list of causes: {error}", kind="manifest", file=file) from None


def cause_of(report: EngineReport, row: Row, listed: list[Cause]) -> Cause | None:
    """The first one that applies; None for a row that none explains."""
    return next((cause for cause in listed if cause.applies(report, row)), None)
