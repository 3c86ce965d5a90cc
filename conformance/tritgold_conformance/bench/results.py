"""The benchmark's report as data. Every number in it was measured in this run; what was not measured is null.

msgspec's structures, so the JSON schema is made from them (``tritgold bench --schema``) and cannot drift.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from tritgold_conformance.bench.timing import Timing

SCHEMA = "tritgold.bench/2"
Status = Literal["measured", "not passed", "not offered", "failed"]


class Engine(msgspec.Struct, kw_only=True):
    """One engine in one process.

    options: of both the judged and the timed engine. flags: environment variables that its speed depends on. judged:
    the verdict and how it was reached, or that a peer is not judged. load: seconds from the file to an engine that can
    read tokens. cold, warm: seconds of the first token with an empty cache folder, and with what the cold start left
    there. peak_memory: bytes (VmHWM); warm_memory: the same of a warm start, which maps packed weights.
    packed_bytes, head_bytes, kv_bytes: of ternary weights, of the head, of one position in the KV cache.
    """

    name: str
    threads: int
    options: dict[str, str]
    versions: dict[str, str] = {}
    flags: dict[str, str] = {}
    passed: bool | None
    judged: str
    load: float | None = None
    cold: float | None = None
    warm: float | None = None
    peak_memory: int | None = None
    warm_memory: int | None = None
    packed_bytes: int | None = None
    head_bytes: int | None = None
    kv_bytes: int | None = None


class Result(msgspec.Struct, kw_only=True):
    """One row of the table.

    case: what exactly was measured. unit: what ``timing`` times. why: the reason, if the status is not ``measured``.
    first: seconds of the first call, compilation included. macs: multiply-accumulates of ternary weights and head in
    one unit. bytes_moved: that one unit has to read; roofline_fraction: the share of the read bandwidth that this is:
    the median over rounds, each with its own bandwidth. ratio: in a peer's row, how many times faster the benchmark's
    engine is, the median over rounds that measured both; above 1 the engine is faster. per_second of the row ``serve``:
    tokens of all clients together, the median over rounds; its ratio is of these, or of the first token.
    scaling: how many times faster than the same row with one thread. A time of llama.cpp is a round's mean.
    """

    row: str
    engine: str
    threads: int
    case: dict[str, int | str]
    status: Status
    why: str = ""
    unit: str = "token"
    units: int = 1
    timing: Timing | None = None
    first: float | None = None
    per_second: float | None = None
    gmacs: float | None = None
    bytes_moved: int | None = None
    roofline_fraction: float | None = None
    ratio: float | None = None
    scaling: float | None = None


class Bandwidth(msgspec.Struct, kw_only=True):
    """Read bandwidth, bytes a second. size: of the buffer, bytes. ways: the median of each way to read; best: the
    median of the fastest way of each sample. samples: how often it was measured: once, and in each round of a row
    whose bytes are known.
    """

    threads: int
    size: int
    best: float
    ways: dict[str, float]
    samples: int = 1


class Part(msgspec.Struct, kw_only=True):
    """One operation of a decode step. calls: in a step; seconds: of all of them; bytes_moved: of weights and cache."""

    name: str
    calls: int
    seconds: float
    bytes_moved: int


class Profile(msgspec.Struct, kw_only=True):
    """A decode step in parts. total: seconds of all parts. step: seconds of the whole step. overhead: step - total.
    roof: the read bandwidth in these rounds, bytes a second.
    """

    threads: int
    context: int
    parts: list[Part]
    total: float
    step: float
    overhead: float
    roof: float | None = None


class Tuned(msgspec.Struct, kw_only=True):
    """What --tune chose for a matrix [out, in_] and a number of tokens. seconds: of one product, by formulation."""

    threads: int
    out: int
    in_: int
    tokens: int
    formulation: str
    seconds: dict[str, float]


class Report(msgspec.Struct, kw_only=True):
    """What ``tritgold bench --json`` writes. complete: false if it was stopped; it then holds what was measured."""

    schema: str = SCHEMA
    date: str
    shape: str
    model: str
    config: dict[str, Any]
    command: str
    machine: dict[str, Any]
    engines: list[Engine]
    bandwidth: list[Bandwidth]
    results: list[Result]
    profiles: list[Profile]
    tuned: list[Tuned] = []
    complete: bool = True

    @property
    def exit_code(self) -> int:
        """1 if an engine has not passed the judge or a measurement failed, 5 if nothing was measured, else 0."""
        wrong = any(result.status in ("not passed", "failed") for result in self.results)
        if wrong or any(engine.passed is False for engine in self.engines):
            return 1
        return 0 if self.profiles or self.tuned or any(r.status == "measured" for r in self.results) else 5


@dataclass
class BenchResults:
    """What has been measured so far; a run that is stopped keeps it."""

    engines: list[Engine] = field(default_factory=list)
    bandwidth: list[Bandwidth] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    profiles: list[Profile] = field(default_factory=list)
    tuned: list[Tuned] = field(default_factory=list)


def to_json(report: Report) -> bytes:
    """One JSON object, indented."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1)


def json_schema() -> dict[str, Any]:
    """The JSON schema of a report."""
    return msgspec.json.schema(Report)
