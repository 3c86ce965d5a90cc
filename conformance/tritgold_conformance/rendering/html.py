"""One HTML page with everything in it: no script, no font, no picture, nothing fetched. In light, dark and print."""

from collections.abc import Iterable, Sequence
from importlib.resources import files

from tritgold_conformance.comparing.activation_statistics import MOMENTS
from tritgold_conformance.rendering.error_maps import layer_map, operations_map, position_map
from tritgold_conformance.rendering.escaping import command_text, escaped, name, number
from tritgold_conformance.rendering.figures import logits_charts, speed_chart, statistics_charts
from tritgold_conformance.rendering.wording import MARKS, counted, details, diagnosis_lines, other_mode
from tritgold_conformance.results.cases import Case, by_rule, cases, command, failures
from tritgold_conformance.results.levels import LEVELS
from tritgold_conformance.results.report import Report, Side, Status

_OPEN, _MOST = 8, 100  # rules of failures that are shown at once, and at all
_CLASSES: dict[Status, str] = {
    "passed": "good", "failed": "bad", "known failures": "known", "not assessed": "none",
}  # fmt: skip
_VERDICTS = {"conforms": ("good", "✓"), "known failures only": ("known", "≈"), "does not conform": ("bad", "✗")}
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def to_html(report: Report) -> str:
    """The page. The same report gives the same bytes."""
    engine = escaped(name(report.engine.name))
    if report.problem is not None:
        why = f"<p>{escaped(report.problem.message)} ({escaped(name(report.problem.kind))})</p><p>The same again:</p>"
        return _page(report, engine, _section("Why", why + _command(report.repeat)))
    maps = [operations_map(report) or _absent(report, "operations"), layer_map(report) or _absent(report, "trace")]
    activations = statistics_charts(report) or _absent(report, "trace", "statistics")
    sections = (
        _section("Levels", _levels(report)),
        _section("Failures", _failures(report)),
        _section("Diagnosis", _diagnosis(report)),
        _section("Known failures", _xfail(report)),
        _section("Where the error is", f'<div class="maps">{"".join(maps)}</div>{position_map(report)}'),
        _section("Activations, engine against golden", activations),
        _section("Logits", logits_charts(report) or _absent(report, "logits")),
        _section("Text", _text(report)),
        _section("Tokens a second", speed_chart(report) or _not_timed(report)),
        _section("About this run", _about(report)),
    )
    return _page(report, engine, "".join(sections))


def _page(report: Report, engine: str, body: str) -> str:
    style = files("tritgold_conformance.rendering").joinpath("style.css").read_text("utf-8")
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{engine} {report.verdict}</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="robots" content="noindex">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"><style>{style}</style></head>'
        f"<body>{_head(report, engine)}{body}</body></html>\n"
    )


def _section(title: str, content: str) -> str:
    """Left out where there is nothing to say."""
    return f"<section><h2>{title}</h2>{content}</section>\n" if content else ""


def _head(report: Report, engine: str) -> str:
    kind, sign = _VERDICTS.get(report.verdict, ("none", "-"))
    c = report.config
    size = f": {c.get('layers')} layers, hidden {c.get('hidden')}, vocabulary {c.get('vocab')}" if c else ""
    facts = [
        ("model", f"{name(report.model)} ({name(report.model_hash[:12])}){size}"),
        ("arithmetic", name(report.mode)),
        ("input", f"{len(report.tokens)} tokens"),
        ("engine", _versions(report.engine)),
        ("golden model", _versions(report.reference)),
    ]
    stale = report.xfail is not None and report.xfail.strict and bool(report.xfail.stale)
    absent = [key for key, level in counted(report).items() if level.status == "not assessed"]
    more = f' <span class="none">not assessed: {escaped(", ".join(absent))}</span>' if absent else ""
    more += ' <span class="bad">the xfail file is stale</span>' if stale else ""
    more += f' <span class="bad">{escaped(name(other_mode(report)))}</span>' if report.matches else ""
    return (
        f'<header><p class="soft">tritgold: an engine judged against the golden model</p><h1>{engine}</h1>'
        f'<p><span class="verdict {kind}">{sign} {report.verdict}</span>{more}</p>{_facts(facts)}</header>\n'
    )


def _facts(facts: Iterable[tuple[str, str]]) -> str:
    return "<dl>" + "".join(f"<dt>{escaped(name(k))}</dt><dd>{escaped(v)}</dd>" for k, v in facts) + "</dl>"


def _versions(side: Side) -> str:
    return ", ".join(f"{name(key)} {name(version)}" for key, version in side.versions.items()) or "no versions given"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int], label: str) -> str:
    """Cells are HTML already. numbers: columns of figures."""

    def row(tag: str, contents: Sequence[str], more: str = "") -> str:
        kinds = (' class="n"' if column in numbers else "" for column in range(len(contents)))
        cells = (f"<{tag}{more}{kind}>{text}</{tag}>" for kind, text in zip(kinds, contents, strict=True))
        return f"<tr>{''.join(cells)}</tr>"

    head, body = row("th", heads, ' scope="col"'), "".join(row("td", contents) for contents in rows)
    table = f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll" tabindex="0" role="group" aria-label="{escaped(label)}">{table}</div>'


def _levels(report: Report) -> str:
    rows = []
    for key, level in report.levels.items():
        what = f'<strong>{escaped(key)}</strong><br><span class="sub">{escaped(LEVELS.get(key, ""))}</span>'
        status = f'<span class="status {_CLASSES[level.status]}">{MARKS[level.status]} {level.status}</span>'
        counts = [str(level.compared), str(level.failed), str(level.not_assessed)]
        rows.append([what, status, *counts, f'<div class="w">{escaped(level.note)}</div>'])
    return _table(["level", "status", "compared", "failed", "not assessed", "measured"], rows, (2, 3, 4), "levels")


def _failures(report: Report) -> str:
    failed = failures(report)
    if not failed:
        return ""
    groups = by_rule(failed)
    shown = [_failure(report, rule, same) for rule, same in groups[:_MOST]]
    many = "1 case fails" if len(failed) == 1 else f"{len(failed)} cases fail"
    parts = [f"<p>{many}. Mend the first; what follows may be wrong because of it.</p>", *shown[:_OPEN]]
    if len(groups) > _OPEN:
        left = f", and {len(groups) - _MOST} that the JSON report holds" if len(groups) > _MOST else ""
        parts.append(_details(f"{len(shown) - _OPEN} more{left}", "".join(shown[_OPEN:])))
    return "".join(parts)


def _failure(report: Report, rule: str, same: list[Case]) -> str:
    """The first of those that fail by one rule; the others below it."""
    first, *others = same
    where = f'<p class="soft">{escaped(first.id)}</p>' if others else ""
    said = where + "".join(f"<p>{escaped(line)}</p>" for line in details(first))
    more = (f"<p>{escaped(c.id)}: {escaped(c.message)}</p>{_command(command(report, c))}" for c in others[:_MOST])
    shown = _details(f"the other {len(others)}", "".join(more))
    return f'<div class="fail"><h3>{escaped(rule)}</h3>{said}{_command(command(report, first))}{shown}</div>'


def _command(text: str) -> str:
    return f'<pre tabindex="0"><code>{escaped(command_text(text), 100_000)}</code></pre>'


def _diagnosis(report: Report) -> str:
    if report.diagnosis is None:
        return ""
    items = _list(diagnosis_lines(report.diagnosis))
    shown = [_command(f"tritgold faults show {fault.fault}") for fault in report.diagnosis.faults]
    faults = ", ".join(fault.fault for fault in report.diagnosis.faults)
    headline = escaped(report.diagnosis.verdict + (f": {faults}" if faults else ""))
    return f"<p><strong>{headline[:1].upper()}{headline[1:]}</strong></p>{items}{''.join(shown)}"


def _xfail(report: Report) -> str:
    if report.xfail is None:
        return ""
    rows = []
    for e in report.xfail.entries:
        kind, stale = "bad" if e.stale else "known" if e.failing else "none", " (stale)" if e.stale else ""
        state = f'<span class="{kind}">{e.state}{stale}</span>'
        rows.append([str(e.line), f"<code>{escaped(e.pattern)}</code>", state, str(e.failing), escaped(e.reason)])
    stale = f" {len(report.xfail.stale)} stale: take them out." if report.xfail.stale else ""
    heads = ["line", "entry", "now", "cases that fail", "reason"]
    return f"<p>From {escaped(report.xfail.file)}.{stale}</p>" + _table(heads, rows, (0, 3), "known failures")


def _absent(report: Report, *levels: str) -> str:
    notes = {key: report.levels[key].note for key in levels if key in report.levels}
    why = "; ".join(f"{key}: {note or 'the engine gives nothing'}" for key, note in notes.items())
    return f'<p class="none">- Not assessed. {escaped(why)}.</p>'


def _not_timed(report: Report) -> str:
    why = "only an engine that conforms is timed"
    if report.verdict == "conforms":
        why = "it was not asked for, or the engine has nothing to time"
    return f'<p class="none">- Not measured: {why}.</p>'


def _text(report: Report) -> str:
    if report.text is None:
        return ""
    failing = [p for p in report.text.positions if p.problem]
    rows = ([str(p.position), str(p.token[1]), str(p.token[0]), escaped(p.problem)] for p in failing[:50])
    table = _table(["position", "token", "golden", "problem"], rows, (0, 1, 2), "positions") if failing else ""
    return f"<p>{escaped(report.text.note)}</p>{table}"


def _about(report: Report) -> str:
    absent = [case for case in cases(report) if case.status == "not assessed" and case.name]
    facts = [*report.machine.items(), *((key, _plain(value)) for key, value in report.config.items())]
    parts = (
        "<p>The same judgement again:</p>",
        _command(report.repeat),
        _details("Machine and model", _facts((key, name(value)) for key, value in facts)),
        _details(f"Activation statistics, {len(report.statistics)} arrays", _statistics(report)),
        _details(f"Broken ties that were followed: {len(report.ties)}", _ties(report)),
        _details(f"Not assessed: {len(absent)}", _list(f"{case.id}: {case.message}" for case in absent)),
        _details("Tokens of the input", f"<p>{', '.join(map(str, report.tokens))}</p>"),
    )
    return "".join(parts)


def _plain(value: object) -> str:
    """A list is the same whether it was read from JSON or not."""
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _details(summary: str, content: str) -> str:
    return f"<details><summary>{escaped(summary)}</summary>{content}</details>" if content else ""


def _list(items: Iterable[str]) -> str:
    listed = "".join(f"<li>{escaped(item)}</li>" for item in items)
    return f"<ul>{listed}</ul>" if listed else ""


def _statistics(report: Report) -> str:
    rows = []
    for key, pair in report.statistics.items():
        if {"golden", "engine"} <= pair.keys():
            g, e = pair["golden"], pair["engine"]
            both = ((getattr(e, m), getattr(g, m)) for m in MOMENTS[:-1])
            zeros = " / ".join("-" if side.zeros is None else f"{side.zeros:.1%}" for side in (e, g))
            rows.append([escaped(key), *(f"{number(a, 4)} / {number(b, 4)}" for a, b in both), zeros])
    return _table(["engine / golden", *MOMENTS], rows, range(1, 7), "activation statistics") if rows else ""


def _ties(report: Report) -> str:
    if not report.ties:
        return ""
    rows = ([escaped(t.name), str(t.position), str(t.channel), number(t.from_tie, 2)] for t in report.ties[:100])
    return _table(["codes", "position", "channel", "from the tie"], rows, (1, 2, 3), "broken ties")
