"""Markdown, for a comment on a pull request or the summary of a CI job."""

from tritgold_conformance.rendering.escaping import fenced, markdown, number
from tritgold_conformance.rendering.wording import (
    MARKS,
    details,
    diagnosis_lines,
    other_mode,
    speeds,
    verdict_words,
    versions,
)
from tritgold_conformance.results.cases import Case, by_rule, command, failures
from tritgold_conformance.results.coverage import coverage_line
from tritgold_conformance.results.report import Problem, Report, Xfail

_SHOWN = 10  # rules of failures that are shown


def to_markdown(report: Report) -> str:
    """The verdict, the levels, each failure with its command, the diagnosis, the speed."""
    if report.problem is not None:
        return "\n\n".join(_not_judged(report, report.problem)) + "\n"
    of = f"model {markdown(report.model)} ({markdown(report.model_hash[:12])}), {len(report.tokens)} tokens"
    parts = [
        f"## tritgold: {markdown(report.engine.name)} {verdict_words(report)}",
        f"Mode {markdown(report.mode)}, {of}.",
        *([] if report.coverage is None else [f"Covered: {markdown(coverage_line(report.coverage))}."]),
        *([f"**{markdown(other_mode(report))}**"] if report.matches else []),
        f"Engine: {versions(report.engine, markdown)}. Golden: {versions(report.reference, markdown)}.",
        _levels(report),
        *_failures(report),
        *_diagnosis(report),
        *([] if report.xfail is None else _xfail(report.xfail)),
        *_speed(report),
        "The whole judgement again:",
        fenced(report.repeat),
    ]
    return "\n\n".join(parts) + "\n"


def _not_judged(report: Report, problem: Problem) -> list[str]:
    return [
        f"## tritgold: {markdown(report.engine.name)} {report.verdict}",
        f"Model {markdown(report.model)}. {markdown(problem.message)} ({markdown(problem.kind)})",
        "There is no verdict. To run it again:",
        fenced(report.repeat),
    ]


def _table(heads: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [heads, ["---"] * len(heads), *rows])


def _levels(report: Report) -> str:
    rows = [
        [name, f"{MARKS[v.status]} {v.status}", str(v.compared), str(v.failed), str(v.not_assessed), markdown(v.note)]
        for name, v in report.levels.items()
    ]
    return _table(["level", "status", "compared", "failed", "not assessed", "measured"], rows)


def _failures(report: Report) -> list[str]:
    failed = failures(report)
    if not failed:
        return []
    parts = [f"### Failures: {len(failed)}"]
    groups = by_rule(failed)
    for rule, same in groups[:_SHOWN]:
        parts += [_failure(rule, same[0]), fenced(command(report, same[0]))]
    if len(groups) > _SHOWN:
        parts.append("And, shown by the other reports: " + markdown("; ".join(rule for rule, _ in groups[_SHOWN:])))
    return parts


def _failure(rule: str, case: Case) -> str:
    return f"**{markdown(rule)}**: " + "; ".join(markdown(line) for line in details(case))


def _diagnosis(report: Report) -> list[str]:
    if report.diagnosis is None:
        return []
    lines = [f"- {markdown(line)}" for line in diagnosis_lines(report.diagnosis)]
    return [f"### Diagnosis: {report.diagnosis.verdict}", "\n".join(lines)] if lines else []


def _xfail(xfail: Xfail) -> list[str]:
    rows = [
        [str(e.line), markdown(e.pattern), e.state + (" (stale)" if e.stale else ""), markdown(e.reason)]
        for e in xfail.entries
    ]
    stale = f", {len(xfail.stale)} stale" if xfail.stale else ""
    heads = ["line", "entry", "now", "reason"]
    return [f"### Known failures: {len(rows)}{stale}", f"From {markdown(xfail.file)}.", _table(heads, rows)]


def _speed(report: Report) -> list[str]:
    measured = speeds(report)
    if not measured:
        return []
    rows = [[markdown(side), number(s.prefill, 4), number(s.decode, 4)] for side, s in measured]
    return ["### Tokens a second", _table(["", f"prefill of {measured[0][1].tokens}", "decode"], rows)]
