"""docs/scoreboard-cells.md: each case of the scoreboard, with the command that makes it again.

A cell of the table in docs/scoreboard.md leads to its section here: one for each engine, version and format.
"""

import re

from markdown_tables import MADE

from scoreboard.causes import EXPLAINED, Cause, cause_of, causes
from scoreboard.manifest import manifest
from scoreboard.results import EngineReport, Row, file_name
from scoreboard.wording import escaped, named, special

PAGE = "scoreboard-cells.md"
OPENING = """\
Each case of the [scoreboard](scoreboard.md), by engine and format: its verdict, why, what was compared and covered, and
two commands: the one that makes it again, and the one that it gave to the judge. There `MODEL` is the file of the case,
`ENVIRONMENT` the engine's environment and `PROGRAMS` the folder of its program. `seeded`, `seeded-512` and `llama` have
random trits and two layers; `kjv-ar` and `skills-ar` are [embedded](golden-models.md); `fixture/...` are checkpoints of
tests/peers that transformers wrote."""


def cells_page(found: list[EngineReport]) -> str:
    """The page of these reports."""
    listed, variables = causes(), {engine.name: engine.install.variable for engine in manifest()}
    parts = ["# The scoreboard, case by case", MADE, OPENING]
    for report in found:
        if report.rows:
            parts += [f"## {named(report)}", _intro(report)]
            for name in dict.fromkeys(row.case.format for row in report.rows):
                rows = [row for row in report.rows if row.case.format == name]
                lines = [_line(report, row, listed, variables.get(report.engine, "")) for row in rows]
                parts += [f"### {heading(report, name)}", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def heading(report: EngineReport, name: str) -> str:
    """Of an engine's cases in one format."""
    return f"{named(report)}: {name}"


def link(report: EngineReport, name: str) -> str:
    """Where the cases of an engine in one format are.

    >>> given = {"languages": [], "source": "", "date": "", "machine": {}}
    >>> link(EngineReport(engine="@a/b.c", version="1.0rc2", **given), "i2_s")
    'scoreboard-cells.md#abc-10rc2-i2_s'
    """
    return f"{PAGE}#{anchor(heading(report, name))}"


def anchor(title: str) -> str:
    """The anchor that code hosts and the site give to a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def again(report: EngineReport, row: Row, variable: str) -> str:
    """The command that makes the row again. variable: names the program that the user has built; "" for none."""
    words = f"{report.engine} --version {report.version} --format {row.case.format} --model {row.case.model}"
    return f'{f"{variable}=/path/to/it " if variable else ""}make scoreboard ENGINE="{words}"'


def _intro(report: EngineReport) -> str:
    said = ", ".join(f"{name} {version}" for name, version in sorted(report.said.items()))
    reported = f" It reports: {escaped(said)}." if said else ""
    where = f"[report](data/scoreboard/{file_name(report.engine, report.version)})"
    return f"{', '.join(report.languages)}; [source]({_source(report)}); judged on {report.date}; {where}.{reported}"


def _source(report: EngineReport) -> str:
    return report.source if "://" in report.source else report.source.removeprefix("docs/")


def _line(report: EngineReport, row: Row, listed: list[Cause], variable: str) -> str:
    case = row.case
    architecture = f" as `{case.architecture}`" if case.architecture else ""
    mode = f"mode `{case.mode}`" + (f", policy `{case.policy}`" if case.policy else "")
    what = ", ".join([f"`{case.model}`{architecture}", *special(row), mode])
    compared = ", ".join(f"{name} {count}" for name, count in row.levels.items())
    more = [
        *_because(row, cause_of(report, row, listed)),
        *[f"Compared: {compared}" + (f"; broken ties followed: {row.ties}" if row.ties else "")] * bool(compared),
        *[f"Covered: {row.coverage}"] * bool(row.coverage),
        f"Again: `{again(report, row, variable)}`",
        *[f"The judge: `{row.command}`"] * bool(row.command),
    ]
    return f"- {what}: **{row.status}**. " + " ".join(f"{one.rstrip('.')}." for one in more)


def _because(row: Row, cause: Cause | None) -> list[str]:
    """The cause, the fault that was named, and the words of the judge or of the engine."""
    if row.status == "conforms":
        return []
    found = [] if cause is None else [cause.says[0].upper() + cause.says[1:]]
    if cause is not None and cause.finding:
        found[0] += f" ([finding](findings/{cause.finding}.md))"
    if row.faults:
        found.append("Named: " + ", ".join(f"[`{name}`](faults/{name}.md)" for name in row.faults))
    elif row.status not in EXPLAINED or not row.evidence:
        found.append(f"It says: {escaped(row.why)}")
    if row.evidence:
        found.append(f"The judge says: {escaped(row.evidence)}")
    return found
