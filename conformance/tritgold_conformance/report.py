"""Report: the verdict as data. Every number in it was measured in this run; what was not measured is null.

The structures are msgspec's, so the JSON schema is made from them (``tritgold check --schema``) and cannot drift.
"""

from typing import Any, Literal

import msgspec

from tritgold_conformance.activation_statistics import Statistics
from tritgold_conformance.compare import Comparison
from tritgold_conformance.logits import LogitsVerdict
from tritgold_conformance.speed import Speed
from tritgold_conformance.text import TextVerdict
from tritgold_conformance.ties import BrokenTie

SCHEMA = "tritgold.report/1"
LEVELS = ("files", "operations", "vectors", "statistics", "trace", "logits", "continued", "steps", "text")
Status = Literal["passed", "failed", "not assessed"]
Verdict = Literal["conforms", "does not conform", "nothing was checked"]
EXIT_CODES: dict[Verdict, int] = {"conforms": 0, "does not conform": 1, "nothing was checked": 5}


class Level(msgspec.Struct, kw_only=True):
    """One level of the judgement. compared: arrays or positions; note: what to say beside the status."""

    status: Status
    compared: int = 0
    failed: int = 0
    not_assessed: int = 0
    note: str = ""


class Side(msgspec.Struct, kw_only=True):
    """One of the two that are compared."""

    name: str
    versions: dict[str, str]
    speed: Speed | None = None


class Report(msgspec.Struct, kw_only=True):
    """What ``tritgold check --json`` prints.

    levels: ``files`` (packed bytes), ``operations`` (on golden inputs), ``vectors`` (on telling inputs), ``statistics``
    (of activations) and ``trace`` (free-running), ``logits`` (one prefill), ``continued`` (a prompt in pieces, then
    steps), ``steps`` (token by token), ``text`` (next tokens).
    first_divergence: the first failing comparison in execution order. ties: broken ties of the trace.
    noise: largest float noise of the trace, relative to the token. reproduce: a command to paste.
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
    ties: list[BrokenTie]
    noise: float | None
    logits: list[LogitsVerdict]
    text: TextVerdict | None
    statistics: dict[str, dict[str, Statistics]]
    reproduce: str

    @property
    def exit_code(self) -> int:
        """0 conforms, 1 does not, 5 nothing was checked."""
        return EXIT_CODES[self.verdict]


def to_json(report: Report) -> bytes:
    """The report as one JSON object."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1)


def json_schema() -> dict[str, Any]:
    """The JSON schema of a report."""
    return msgspec.json.schema(Report)
