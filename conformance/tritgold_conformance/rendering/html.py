"""One self-contained HTML page: no script, no font, no image, no download. For light and dark screens and for print.

The page is ``page.html.jinja``; this module computes its values. jinja2 escapes every value that is not trusted markup.
"""

from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from tritgold_conformance.comparing.activation_statistics import MOMENTS
from tritgold_conformance.rendering.error_maps import layer_map, operations_map, position_map
from tritgold_conformance.rendering.escaping import COMMAND, clean, escaped, name, number
from tritgold_conformance.rendering.figures import SIDES, logits_charts, speed_chart, statistics_charts
from tritgold_conformance.rendering.wording import (
    IN_PROCESS,
    MARKS,
    counted,
    details,
    diagnosis_lines,
    other_mode,
    versions,
)
from tritgold_conformance.results.cases import by_rule, cases, command, failures
from tritgold_conformance.results.coverage import coverage_line
from tritgold_conformance.results.levels import LEVELS
from tritgold_conformance.results.report import Report, Status

_OPEN, _MOST = 8, 100  # rules of failures that are open at first, and that are shown in all
_CLASSES: dict[Status, str] = {
    "passed": "good", "failed": "bad", "known failures": "known", "not assessed": "none",
}  # fmt: skip
_VERDICTS = {"conforms": ("good", "✓"), "known failures only": ("known", "≈"), "does not conform": ("bad", "✗")}


def to_html(report: Report) -> str:
    """The page. The same report gives the same bytes."""
    shown = {"report": report, "verdict": _VERDICTS.get(report.verdict, ("none", "-")), "head": _head(report)}
    absent = [key for key, level in counted(report).items() if level.status == "not assessed"]
    return _template().render(shown, uncounted=absent, **({} if report.problem else _judged(report)))


@cache
def _template() -> Template:
    folder = files("tritgold_conformance.rendering")
    environment = Environment(
        autoescape=True,
        finalize=lambda value: value if isinstance(value, Markup) else clean(value),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"name": name, "whole": lambda text: escaped(text, COMMAND)}
    environment.globals |= {
        "style": Markup(folder.joinpath("style.css").read_text("utf-8")),
        "open": _OPEN,
        "most": _MOST,
        "classes": _CLASSES,
        "marks": MARKS,
        "level_words": LEVELS,
        "moments": MOMENTS,
        "sides": SIDES,
        "command_of": command,
        "details": details,
        "diagnosis_lines": diagnosis_lines,
        "other_mode": other_mode,
        "in_process": IN_PROCESS,
        "why_absent": _why_absent,
    }
    return environment.from_string(folder.joinpath("page.html.jinja").read_text("utf-8"))


def _head(report: Report) -> list[tuple[str, str]]:
    c = report.config
    size = f": {c.get('layers')} layers, hidden {c.get('hidden')}, vocabulary {c.get('vocab')}" if c else ""
    return [
        ("model", f"{name(report.model)} ({name(report.model_hash[:12])}){size}"),
        ("arithmetic", name(report.mode)),
        ("input", f"{len(report.tokens)} tokens"),
        ("engine", versions(report.engine, name)),
        ("golden model", versions(report.reference, name)),
        *([] if report.coverage is None else [("covered", coverage_line(report.coverage))]),
    ]


def _judged(report: Report) -> dict[str, Any]:
    """The values that a page needs in addition to the report, if the engine was judged."""
    failed = failures(report)
    absent = [case for case in cases(report) if case.status == "not assessed" and case.name]
    wrong = [] if report.text is None else [p for p in report.text.positions if p.problem]
    config = ((key, ", ".join(map(str, v)) if isinstance(v, list | tuple) else v) for key, v in report.config.items())
    return {
        "failed": len(failed),
        "rules": by_rule(failed),
        "operations_map": operations_map(report),
        "layer_map": layer_map(report),
        "position_map": position_map(report),
        "statistics": statistics_charts(report),
        "logits": logits_charts(report),
        "speed": speed_chart(report),
        "text_rows": [(p.position, p.token[1], p.token[0], p.problem) for p in wrong[:50]],
        "about": [(key, name(value)) for key, value in (*report.machine.items(), *config)],
        "statistics_rows": _statistics(report),
        "tie_rows": [(t.name, t.position, t.channel, number(t.from_tie, 2)) for t in report.ties[:100]],
        "not_assessed": [f"{case.id}: {case.message}" for case in absent],
    }


def _why_absent(report: Report, levels: list[str]) -> str:
    notes = {key: report.levels[key].note for key in levels if key in report.levels}
    return "; ".join(f"{key}: {note or 'the engine gives nothing'}" for key, note in notes.items())


def _statistics(report: Report) -> list[list[str]]:
    """A row for each array: engine / golden for each moment."""
    rows = []
    for key, pair in report.statistics.items():
        if {"golden", "engine"} <= pair.keys():
            g, e = pair["golden"], pair["engine"]
            both = ((getattr(e, m), getattr(g, m)) for m in MOMENTS[:-1])
            zeros = " / ".join("-" if side.zeros is None else f"{side.zeros:.1%}" for side in (e, g))
            rows.append([key, *(f"{number(a, 4)} / {number(b, 4)}" for a, b in both), zeros])
    return rows
