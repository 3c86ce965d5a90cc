"""The benchmark's report on a terminal: rich tables of at most 110 columns. What machines read is the JSON."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tritgold_conformance.bench.results import Engine, Profile, Report, Result, Tuned

_TIMES = "median p95 p99 ms"
_NUMBERS = (_TIMES, "a second", "GMAC/s", "MB", "of roof", "ratio", "scaling")


def render(report: Report, console: Console) -> None:
    """Machine, engines, bandwidth, choices, rows, profiles."""
    m = report.machine
    console.print(
        f"[bold]{escape(report.shape)}[/] on {escape(str(m['processor']))}, {m['cores']} cores, {report.date}"
    )
    if report.config:
        c = report.config
        console.print(
            f"{c['layers']} layers, hidden {c['hidden']}, ffn {c['inter']}, {c['heads']}/{c['kv_heads']} heads of "
            f"{c['head_dim']}, vocabulary {c['vocab']}"
        )
    for engine in report.engines:
        _engine(engine, console)
    for roof in report.bandwidth:
        ways = ", ".join(f"{name} {speed / 1e9:.1f}" for name, speed in roof.ways.items())
        console.print(
            f"read bandwidth, {_threads(roof.threads)}: {roof.best / 1e9:.1f} GB/s ({ways}; measured {roof.samples} x)"
        )
    if report.tuned:
        console.print("\n[bold]Fastest way to multiply[/], used by the engine; others by how much slower they are")
        console.print(_tuned(report.tuned))
    for threads in dict.fromkeys(result.threads for result in report.results if result.timing is not None):
        console.print(f"\n[bold]{_threads(threads)}[/]")
        console.print(_results([r for r in report.results if r.threads == threads and r.timing is not None]))
    if any(result.ratio is not None for result in report.results):
        console.print("ratio: how many times faster the engine is than this peer; median over rounds that timed both")
    for result in report.results:
        if result.status != "measured":
            what = f"{result.row} {_case(result)}".strip()
            console.print(
                f"[yellow]{escape(what)}[/], {_threads(result.threads)}: {result.status}: {escape(result.why)}"
            )
    for profile in report.profiles:
        title = f"A decode step behind {profile.context} positions, {_threads(profile.threads)}"
        console.print(f"\n[bold]{title}[/]; each operation alone, all its calls together")
        console.print(_profile(profile))
        share = profile.overhead / profile.step
        console.print(
            f"sum {1e3 * profile.total:.3f} ms, whole step {1e3 * profile.step:.3f} ms, "
            f"overhead {1e3 * profile.overhead:.3f} ms ({share:.0%})"
        )
        speed = profile.roof or float("inf")
        faster = [part.name for part in profile.parts if part.moved > speed * part.seconds]
        if faster:
            console.print(
                f"[yellow]faster than the roof[/] of these rounds, {speed / 1e9:.1f} GB/s: "
                f"{escape(', '.join(faster))}; from a cache, or the roof was measured low and every share is too high"
            )


def _engine(engine: Engine, console: Console) -> None:
    style = {True: "green", False: "bold red", None: "yellow"}[engine.passed]
    said = ", ".join(f"{name} {value}" for name, value in {**engine.versions, **engine.options}.items())
    facts = [
        *([] if engine.load is None else [f"load {engine.load:.2f} s"]),
        *([] if engine.cold is None else [f"first token cold {engine.cold:.2f} s"]),
        *([] if engine.warm is None else [f"warm {engine.warm:.2f} s"]),
        *([] if engine.peak_memory is None else [f"peak {engine.peak_memory / 1e6:,.0f} MB"]),
        *([] if engine.packed_bytes is None else [f"packed weights {engine.packed_bytes / 1e6:,.0f} MB"]),
    ]
    console.print(f"[bold]{escape(engine.name)}[/], {_threads(engine.threads)} ({escape(said)})")
    console.print(f"  [{style}]{escape(engine.judged)}[/]")
    if facts:
        console.print(f"  {', '.join(facts)}")


def _results(results: list[Result]) -> Table:
    """A column stands where some row has it; times in milliseconds."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
    rows = [(result, _cells(result)) for result in results]
    used = [name for name in _NUMBERS if any(cells.get(name) for _, cells in rows)]
    for name in ("row", "engine", "case"):
        table.add_column(name, no_wrap=name != "case", overflow="fold")
    for name in used:
        table.add_column(name, justify="right", no_wrap=True)
    for result, cells in rows:
        numbers = [cells.get(name, "") for name in used]
        table.add_row(result.row, escape(result.engine), escape(_case(result)), *numbers)
    return table


def _cells(result: Result) -> dict[str, str]:
    t, found = result.timing, {}
    if t is None:
        return {}
    found = {_TIMES: " ".join(_short(1e3 * seconds) for seconds in (t.median, t.p95, t.p99))}
    if result.per_second is not None:
        found["a second"] = _short(result.per_second)
    if result.gmacs is not None:
        found["GMAC/s"] = _short(result.gmacs)
    if result.moved is not None:
        found["MB"] = _short(result.moved / 1e6)
    if result.share is not None:
        found["of roof"] = f"{result.share:.0%}"
    if result.ratio is not None:
        found["ratio"] = f"{result.ratio:.2f}"
    if result.scaling is not None:
        found["scaling"] = f"{result.scaling:.2f}"
    return found


def _profile(profile: Profile) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
    table.add_column("operation")
    for name in ("calls", "ms", "of the step", "MB", "GB/s"):
        table.add_column(name, justify="right")
    for part in profile.parts:
        speed = f"{part.moved / part.seconds / 1e9:.1f}" if part.moved else ""
        moved = f"{part.moved / 1e6:,.1f}" if part.moved else ""
        share = f"{part.seconds / profile.step:.1%}"
        table.add_row(part.name, str(part.calls), f"{1e3 * part.seconds:.3f}", share, moved, speed)
    return table


def _tuned(choices: list[Tuned]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
    table.add_column("matrix")
    for name in ("threads", "tokens", "ms"):
        table.add_column(name, justify="right")
    for name in ("fastest", "others"):
        table.add_column(name)
    for one in choices:
        best = one.seconds[one.formulation]
        others = ", ".join(f"{name} x{_short(s / best)}" for name, s in one.seconds.items() if name != one.formulation)
        numbers = (str(one.threads), str(one.tokens), _short(1e3 * best))
        table.add_row(f"{one.out}x{one.in_}", *numbers, one.formulation, others)
    return table


def _case(result: Result) -> str:
    shown = {name: value for name, value in result.case.items() if name != "steps"}
    return ", ".join(f"{value}" if name in ("way", "matrix") else f"{name} {value}" for name, value in shown.items())


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _short(value: float) -> str:
    """Three digits.

    >>> _short(1234.5), _short(12.345), _short(0.012345)
    ('1,230', '12.3', '0.0123')
    """
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"
