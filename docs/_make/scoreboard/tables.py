"""The tables of docs/scoreboard.md, from the reports of docs/data/scoreboard and the manifest alone."""

from collections.abc import Callable
from pathlib import Path

from markdown_tables import FOLDER, table

from scoreboard.cells import link
from scoreboard.manifest import EngineEntry, manifest
from scoreboard.results import EngineReport, Row, Status, file_name, read
from scoreboard.wording import escaped, named

REPORTS = FOLDER / "data" / "scoreboard"
MARKS: dict[Status, str] = {
    "conforms": "yes",
    "does not conform": "**no**",
    "refuses the file": "refused",
    "could not be judged": "not judged",
    "crashes": "crash",
    "too slow": "too slow",
    "too much memory": "memory",
    "too much output": "output",
    "nothing was checked": "nothing",
}


def reports(folder: Path = REPORTS) -> list[EngineReport]:
    """In the order of the manifest, of its versions too; those that it does not have come last."""
    order = {(e.name, v): (n, m) for n, e in enumerate(manifest()) for m, v in enumerate(e.versions or ["none"])}
    found = [read(path) for path in sorted(folder.glob("*.json"))]
    return sorted(found, key=lambda one: (order.get((one.engine, one.version), (99, 0)), one.engine, one.version))


def counted(found: list[EngineReport] | None = None) -> str:
    """How much was judged, as a sentence."""
    judged = _judged(found)
    rows = [row for report in judged for row in report.rows]
    languages = sorted({name for report in judged for name in report.languages})
    verdicts = {status: sum(row.status == status for row in rows) for status in MARKS}
    shown = ", ".join(f"{count} *{status}*" for status, count in verdicts.items() if count)
    formats = len({row.case.format for row in rows})
    engines = len({report.engine for report in judged})
    return (
        f"{len(judged)} versions of {engines} engines in {', '.join(languages)}; {formats} formats; "
        f"{len(rows)} cases: {shown}."
    )


def matrix(found: list[EngineReport] | None = None) -> str:
    """Engine by format. Without a verdict: "-" for a format that the engine opens, else nothing."""
    judged, opens = _judged(found), {engine.name: engine.opens for engine in manifest()}
    formats = sorted({row.case.format for report in judged for row in report.rows})
    lines = []
    for report in judged:
        cells = (_cell(report, name) or ("-" if name in opens.get(report.engine, ()) else "") for name in formats)
        lines.append((f"[{report.engine} {report.version}](data/scoreboard/{_file(report)})", *cells))
    return table(("engine", *(f"`{name}`" for name in formats)), lines)


def speeds(found: list[EngineReport] | None = None) -> str:
    """Tokens/s of the engine, of the JAX engine and of the golden model in the same run."""
    lines = []
    for report in _judged(found):
        for row in report.rows:
            if (speed := row.speed) is not None:
                pairs = (
                    (speed.prefill, speed.decode),
                    (speed.jax_prefill, speed.jax_decode),
                    (speed.golden_prefill, speed.golden_decode),
                )
                figures = (", ".join(map(_rate, pair)) for pair in pairs)
                lines.append((named(report), f"`{row.case.format}`", speed.clock, *figures))
    return table(("engine", "format", "clock", "engine", "JAX engine", "golden model"), lines)


def exams(found: list[EngineReport] | None = None) -> str:
    """Right answers beside those of the golden model; why there are none, of engines that have a reason."""
    reasons, lines = {engine.name: engine.no_exam for engine in manifest()}, list[tuple[object, ...]]()
    for report in _judged(found):
        rows = [row for row in report.rows if row.exam is not None]
        for row in rows:
            assert row.exam is not None
            cell = f"[{row.status}]({link(report, row.case.format)})"
            lines.append((named(report), f"`{row.case.format}`", cell, row.exam.right, row.exam.golden, row.exam.of))
        if not rows and (reason := reasons.get(report.engine)):
            lines.append((named(report), "-", "-", f"not asked: {reason}", "-", "-"))
    return table(("engine", "format", "verdict", "right", "right, golden model", "questions"), lines)


def absent(found: list[EngineReport] | None = None, engines: list[EngineEntry] | None = None) -> str:
    """Engines and versions that were not judged, and why: those of reports without rows, and those without a report."""
    found, engines = reports() if found is None else found, manifest() if engines is None else engines
    lines = [
        (report.engine, report.version, ", ".join(report.languages), escaped(report.unavailable))
        for report in found
        if not report.rows
    ]
    there = {(report.engine, report.version) for report in found}
    for engine in engines:
        for version in engine.versions:
            if (engine.name, version) not in there:
                why = engine.unavailable or f"not yet; make scoreboard ENGINE={engine.name} does it"
                lines.append((engine.name, version, ", ".join(engine.languages), escaped(why)))
    return table(("engine", "version", "in", "why"), lines)


def gaps(engines: list[EngineEntry] | None = None) -> str:
    """What of an engine was not asked, or in which special way."""
    listed = manifest() if engines is None else engines
    lines = []
    for engine in listed:
        lines += [f"- {engine.name}: {gap}." for gap in engine.gaps]
        lines += [f"- {engine.name}, not asked in `{name}`: {why}." for name, why in engine.not_asked.items()]
    return "\n".join(lines)


def _judged(found: list[EngineReport] | None) -> list[EngineReport]:
    return [report for report in (reports() if found is None else found) if report.rows]


def _file(report: EngineReport) -> str:
    return file_name(report.engine, report.version)


def _cell(report: EngineReport, name: str) -> str:
    """The marks of a format's cases, as a link to them; nothing if there are none."""
    marks = dict.fromkeys(_mark(row) for row in report.rows if row.case.format == name)
    return f"[{', '.join(marks)}]({link(report, name)})" if marks else ""


def _mark(row: Row) -> str:
    case = row.case
    given = ["`silu`" if case.silu else "", f"`{case.policy}`" if case.policy else "", escaped(case.note)]
    shown = [one for one in given if one]
    return MARKS[row.status] + (f" ({', '.join(shown)})" if shown else "")


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


TABLES: dict[str, Callable[[], str]] = {
    "scoreboard-counted": counted,
    "scoreboard-matrix": matrix,
    "scoreboard-speed": speeds,
    "scoreboard-exams": exams,
    "scoreboard-absent": absent,
    "scoreboard-gaps": gaps,
}
