"""From what the judge printed, or what became of it, to a row."""

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from scoreboard.limited import Ended
from scoreboard.manifest import Case
from scoreboard.results import Row, Speed, Status
from tritgold_conformance.results.coverage import Coverage, coverage_line

# What engines say of files that they do not open, in the words of llama.cpp, pytritium, transformers and tritgold.
REFUSED = re.compile(
    r"refuse|gguf_init_from_reader|"
    r"unsupported|not support|unknown (model )?(arch|type|tensor)|failed to load model|error loading model"
    r"|invalid ggml type|missing or mistyped|cannot be made|not implemented|missing tensor|wrong number of tensors",
    re.IGNORECASE,
)
WORDS = 400
STATUS_OF: dict[str, Status] = {"time": "too slow", "memory": "too much memory", "output": "too much output"}


def row_of(case: Case, ended: Ended, command: str) -> tuple[Row, dict[str, str]]:
    """The row of ``tritgold check --json``, and the versions that the engine reported. Never raises for its output."""
    facts: dict[str, Any] = {
        "case": case,
        "seconds": round(ended.seconds, 1),
        "mib": round(ended.mib),
        "exit_code": ended.status,
        "command": command,
    }
    if ended.how != "ended":
        why = f"ended after {ended.seconds:.0f} s, at {ended.mib:.0f} MiB"
        return Row(**facts, status=STATUS_OF[ended.how], why=why), {}
    try:
        report = json.loads(ended.stdout)
        if problem := report.get("problem") or ("kind" in report and report):
            return Row(**facts, **_problem(problem)), {}
        return _judged(report, facts), _versions(report)
    except (ValueError, LookupError, TypeError, AttributeError, msgspec.ValidationError):
        last = without_folders(" ".join(ended.stderr.strip().splitlines()[-2:]))[:WORDS]
        return Row(**facts, status="could not be judged", why=f"the judge printed no report: {last}"), {}


def _problem(problem: Mapping[str, Any]) -> dict[str, Any]:
    """Status and reason of an engine that could not be judged."""
    said = without_folders(" ".join(str(problem.get(name) or "") for name in ("message", "got", "hint"))).strip()
    if len(said) > WORDS:  # how it failed, and the end, where a trace says why
        said = f"{said[: WORDS // 4]} ... {said[-WORDS * 3 // 4 :]}"
    status: Status = "could not be judged"
    if problem.get("kind") == "engine-timeout":
        status = "too slow"
    elif REFUSED.search(said):
        status = "refuses the file"
    elif problem.get("kind") == "engine-crash":
        status = "crashes"
    return {"status": status, "why": said}


def _judged(report: Mapping[str, Any], facts: dict[str, Any]) -> Row:
    faults = [fault["fault"] for fault in (report.get("diagnosis") or {}).get("faults", [])]
    wrong = report["verdict"] != "conforms"
    coverage = report.get("coverage")
    notes = " ".join(of.get("note", "") for of in report["levels"].values())
    ties = [int(found) for found in re.findall(r"ties followed: (\d+)", notes)]
    return Row(
        **facts,
        status=report["verdict"],
        why=_why(report, faults) if wrong else "",
        evidence=_evidence(report) if wrong else "",
        faults=faults,
        levels={name: of["compared"] for name, of in report["levels"].items() if of["status"] != "not assessed"},
        ties=max([*ties, len(report.get("ties") or [])], default=0),
        speed=speeds(report),
        coverage="" if coverage is None else coverage_line(msgspec.convert(coverage, Coverage)),
    )


def speeds(report: Mapping[str, Any]) -> Speed | None:
    """Tokens/s of a report of the judge: of its engine, and of the golden model; None if it measured none."""
    sides = [(report.get(name) or {}).get("speed") or {} for name in ("engine", "reference")]
    if not sides[0]:
        return None
    figures = [_rate(side.get(name)) for side in sides for name in ("prefill", "decode")]
    prefill, decode, golden_prefill, golden_decode = figures
    return Speed(
        clock=sides[0]["clock"],
        prefill=prefill,
        decode=decode,
        golden_prefill=golden_prefill,
        golden_decode=golden_decode,
    )


def _rate(value: float | None) -> float | None:
    """Three digits: a fourth says nothing."""
    return None if value is None else float(f"{value:.3g}")


def _why(report: Mapping[str, Any], faults: list[str]) -> str:
    """The faults that were named; else another mode that it follows; else the first divergence."""
    if faults:
        return ", ".join(faults)
    if report.get("matches"):
        return f"the arithmetic of mode {report['matches']}"
    if (first := report.get("first_divergence")) is not None:
        return f"first divergence: {first.get('name', '')}"
    failing = [name for name, of in report["levels"].items() if of["status"] == "failed"]
    return f"first failing level: {failing[0]}" if failing else "no level was judged"


def _evidence(report: Mapping[str, Any]) -> str:
    """The judge's words of the first thing that fails, and how near the golden model comes with each named fault."""
    failing = [f"{name}: {of['note']}" for name, of in report["levels"].items() if of["status"] == "failed"]
    named = [_nearness(fault) for fault in (report.get("diagnosis") or {}).get("faults", [])]
    return " ".join([*failing[:1], *named])[: 2 * WORDS]


def _nearness(fault: Mapping[str, Any]) -> str:
    if fault.get("tokens_only"):
        same = f", the same as {', '.join(fault['same'])}" if fault["same"] else ""
        return f"{fault['fault']} is named by tokens alone{same}: one token has all of the probability."
    found = f"With {fault['fault']} the golden model is {fault['distance']:.2g} from the engine ({fault['level']}), "
    return found + f"without it {fault['golden']:.2g}."


def _versions(report: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in report["engine"]["versions"].items() if "/" not in str(value)}


def without_folders(text: str) -> str:
    """Paths by their last names: a report says nothing about the machine's folders.

    >>> without_folders("cannot open '/tmp/x/model.gguf': /a/b/c")
    "cannot open 'model.gguf': c"
    >>> without_folders("at it (file:///tmp/x/model.js:3)")
    'at it (model.js:3)'
    """
    return re.sub(r"(?:file://|(?<![\w/:]))/(?:[\w.@+-]+/)+", "", text)
