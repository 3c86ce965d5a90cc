"""The parts of a report: a level, a side, the free run, an xfail file, a problem."""

from typing import Literal

import msgspec

from tritgold_conformance.comparing.compare import Comparison
from tritgold_conformance.comparing.error_map import ErrorMap
from tritgold_conformance.contract.clock import Speed

Status = Literal["passed", "failed", "known failures", "not assessed"]


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
    """The trace. compared: names, in execution order, up to the divergence. errors: of all of it, also after that."""

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
