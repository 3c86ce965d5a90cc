"""A report on a terminal: rich tables for people. Programs should read the JSON."""

import re

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tritgold.trace_names import TraceName
from tritgold_conformance.comparing.compare import Comparison, place
from tritgold_conformance.comparing.free_running import FreeRunning
from tritgold_conformance.contract.clock import RUNS
from tritgold_conformance.rendering import diagnosis
from tritgold_conformance.rendering.escaping import COMMAND, line, table, terminal
from tritgold_conformance.rendering.wording import other_mode, verdict_words, versions
from tritgold_conformance.results.coverage import coverage_line
from tritgold_conformance.results.levels import LEVELS
from tritgold_conformance.results.report import Problem, Report, Xfail

_VERDICTS = {"known failures only": "fails only where its xfail file lists it"}
_STYLES = {"passed": "green", "failed": "bold red", "known failures": "magenta", "not assessed": "yellow"}
CLOCKS = {"engine": " (its own claim)", "program": " (in its own process)"}
_SHOWN_TIES = 10
_SHOWN_STATISTICS = ("attn_mix", "attn_residual", "ffn_act", "ffn_residual")


def render(report: Report, console: Console) -> None:
    """Print the verdict table, the first divergence, activation statistics and tokens/s."""
    if report.problem is not None:
        _not_judged(report, report.problem, console)
        return
    c = {key: terminal(str(value)) for key, value in report.config.items()}
    console.print(
        f"[bold]{terminal(report.engine.name)}[/] ({versions(report.engine, terminal)}) against "
        f"[bold]{terminal(report.reference.name)}[/], mode {terminal(report.mode)}"
    )
    model = f"{terminal(report.model)} ({terminal(report.model_hash[:12])})"
    console.print(
        f"model {model}: {c['layers']} layers, hidden {c['hidden']}, {c['heads']}/{c['kv_heads']} heads, "
        f"vocabulary {c['vocab']}; {len(report.tokens)} tokens\n"
    )
    console.print(_levels(report))
    if report.first_divergence is not None:
        _divergence(report.first_divergence, console)
        for group in failing_groups([c.name for c in report.operations if not c.passed]):
            console.print(f"  failing: {terminal(group)}")
    if report.statistics:
        console.print("\nActivations, root mean square, engine / golden:")
        console.print(_statistics(report))
    if report.engine.speed is not None:
        console.print(f"\nTokens per second, prefill of {report.engine.speed.tokens}, medians of {RUNS}:")
        console.print(_speed(report))
    if report.xfail is not None:
        _xfail(report.xfail, console)
    style = {"conforms": "bold green", "known failures only": "bold magenta"}.get(report.verdict, "bold red")
    said = f"{terminal(report.engine.name)}{': ' if report.verdict == 'nothing was checked' else ' '}"
    said += verdict_words(report, _VERDICTS)
    console.print(f"\n[{style}]{said}.[/]", soft_wrap=True)
    if report.coverage is not None:
        console.print(f"Covered: {coverage_line(report.coverage)}.", soft_wrap=True, highlight=False)
    if report.matches:
        console.print(f"[bold]{terminal(other_mode(report))}[/]", soft_wrap=True)
    if report.exit_code:
        console.print(f"To see this alone: [bold]{terminal(report.reproduce, COMMAND)}[/]", soft_wrap=True)
    if report.diagnosis is not None:
        console.print("\nDiagnosis (tritgold diagnose says more)")
        diagnosis.render(report.diagnosis, console)


def _not_judged(report: Report, problem: Problem, console: Console) -> None:
    said = f"{report.engine.name} {report.verdict}: {problem.message}"
    console.print(f"[bold red]{terminal(said, COMMAND)}[/]", soft_wrap=True)
    console.print(f"To run it again: [bold]{terminal(report.repeat, COMMAND)}[/]", soft_wrap=True)


def _xfail(xfail: Xfail, console: Console) -> None:
    fails = sum(entry.state == "fails" for entry in xfail.entries)
    console.print(f"\nKnown failures, {terminal(xfail.file)}: {fails} of {len(xfail.entries)} entries fail as listed")
    for entry in xfail.stale:
        console.print(f"  [bold red]stale[/], line {entry.line}: {terminal(entry.pattern)} {entry.state}; remove it")
    for entry in xfail.entries:
        if entry.state == "not assessed":
            console.print(f"  line {entry.line}: {terminal(entry.pattern)} was [yellow]not assessed[/]")


def _levels(report: Report) -> Table:
    rows: list[list[str | Text]] = []
    for name, v in report.levels.items():
        counts = [str(count) for count in (v.compared, v.failed, v.not_assessed)]
        rows.append([LEVELS[name], Text(v.status, _STYLES[v.status]), *counts, line(v.note)])
    return table(("level", "status", "compared>", "failed>", "not assessed>", "measured"), rows)


def _divergence(first: Comparison, console: Console, heading: str = "First divergence") -> None:
    console.print(f"\n[bold red]{heading}: {terminal(first.name)}[/]: {terminal(first.what)}")
    if first.worst and first.engine is not None and first.golden is not None:
        where = terminal(place(first.name, first.worst))
        console.print(f"  worst at {where}: engine {first.engine:.9g}, golden {first.golden:.9g}")
    console.print(f"  allowed: {terminal(first.why)}")


def _statistics(report: Report) -> Table:
    numbers = (re.match(r"layers\.(\d{1,9})\.", name) for name in report.statistics)
    rows = []
    for layer in sorted({int(found[1]) for found in numbers if found}):
        cells = [_pair(report, f"layers.{layer}.{what}", "rms", ".4g") for what in _SHOWN_STATISTICS]
        rows.append([str(layer), *cells, _pair(report, f"layers.{layer}.ffn_act", "zeros", ".1%")])
    return table(("layer>", *(f"{what}>" for what in _SHOWN_STATISTICS), "zeros in ffn_act>"), rows)


def _pair(report: Report, name: str, moment: str, form: str) -> str:
    """A moment as text: engine / golden."""
    if (pair := report.statistics.get(name)) is None:
        return "-"
    values = [(getattr(side, moment), side.finite) for side in (pair["engine"], pair["golden"])]
    return " / ".join(f"{v:{form}}" if v is not None else "-" if finite == 1 else "non-finite" for v, finite in values)


def _speed(report: Report) -> Table:
    rows = []
    for side in (report.engine, report.reference):
        if side.speed is not None:
            rates = (side.speed.prefill, side.speed.decode)
            name = f"{line(side.name)}{CLOCKS.get(side.speed.clock, '')}"
            rows.append([name, *("-" if rate is None else f"{rate:,.1f}" for rate in rates)])
    return table(("", "prefill>", "decode>"), rows)


def render_comparison(outcome: FreeRunning, verdict: str, console: Console) -> None:
    """Print the outcome of ``tritgold compare``."""
    console.print(f"{len(outcome.compared)} arrays compared, {len(outcome.missing)} missing or not reached")
    for tie in outcome.ties[:_SHOWN_TIES]:
        where = f"position {tie.position}, channel {tie.channel}"
        console.print(f"  broken tie: {tie.name}, {where}: x * s lies {tie.from_tie:.2g} from a tie")
    if len(outcome.ties) > _SHOWN_TIES:
        console.print(f"  and {len(outcome.ties) - _SHOWN_TIES} more")
    if outcome.blind.any():
        blind = ", ".join(str(p) for p in outcome.blind.nonzero()[0])
        console.print(f"not judged to the end, after a broken tie: positions {blind} (--model follows ties)")
    if outcome.divergence is not None:
        _divergence(outcome.divergence, console)
    elif outcome.compared:
        console.print(f"float noise at most {outcome.worst:.1e} of the token's largest value")
    style = {"agree": "bold green", "diverge": "bold red"}.get(verdict, "bold yellow")
    console.print(Text(f"\nThe traces {verdict}." if verdict in ("agree", "diverge") else f"\n{verdict}.", style=style))


def render_comparisons(outcomes: list[Comparison | str], console: Console) -> None:
    """Print the comparisons of one operation."""
    for outcome in outcomes:
        if isinstance(outcome, str):
            console.print(f"{outcome}: [yellow]not assessed[/]: the engine does not give it")
        elif not outcome.passed:
            _divergence(outcome, console, "Fails")
        else:
            off = "" if outcome.excess is None else f", at most {outcome.excess:.2g} of what is allowed"
            console.print(f"{outcome.name}: [green]{outcome.outcome}[/], {outcome.compared} compared{off}")


def failing_groups(names: list[str]) -> list[str]:
    """Names of outputs; the same output in several layers is one line.

    >>> failing_groups(["layers.0.q.out", "layers.1.q.out", "logits"])
    ['q.out (layers 0, 1)', 'logits']
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        at = TraceName.of(name)
        groups.setdefault(at.in_every_layer, []).append("" if at.layer is None else str(at.layer))
    return [what + (f" (layers {', '.join(layers)})" if layers[0] else "") for what, layers in groups.items()]
