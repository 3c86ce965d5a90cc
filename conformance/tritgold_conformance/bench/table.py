"""The benchmark's report on a terminal: rich tables of at most 110 columns. What machines read is the JSON."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tritgold_conformance.bench.comparison import Compared
from tritgold_conformance.bench.results import Engine, Profile, Report, Result, Tuned


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
        _print_profile(profile, console)


def _print_profile(profile: Profile, console: Console) -> None:
    title = f"A decode step at context {profile.context}, {_threads(profile.threads)}"
    console.print(f"\n[bold]{title}[/]; each operation alone, all its calls together")
    console.print(_profile(profile))
    console.print(
        f"sum {1e3 * profile.total:.3f} ms, whole step {1e3 * profile.step:.3f} ms, "
        f"overhead {1e3 * profile.overhead:.3f} ms ({profile.overhead / profile.step:.0%})"
    )
    speed = profile.roof or float("inf")
    if faster := [part.name for part in profile.parts if part.bytes_moved > speed * part.seconds]:
        console.print(
            f"[yellow]faster than the roof[/] of these rounds, {speed / 1e9:.1f} GB/s: "
            f"{escape(', '.join(faster))}; from a cache, or the roof was measured low and every share is too high"
        )


def _engine(engine: Engine, console: Console) -> None:
    style = {True: "green", False: "bold red", None: "yellow"}[engine.passed]
    versions = ", ".join(f"{name} {value}" for name, value in {**engine.versions, **engine.options}.items())
    measured = (
        ("load {:.2f} s", engine.load),
        ("first token cold {:.2f} s", engine.cold),
        ("warm {:.2f} s", engine.warm),
        ("peak {:,.0f} MB", engine.peak_memory and engine.peak_memory / 1e6),
        ("after a warm start {:,.0f} MB", engine.warm_memory and engine.warm_memory / 1e6),
        ("packed weights {:,.0f} MB", engine.packed_bytes and engine.packed_bytes / 1e6),
    )
    facts = [text.format(value) for text, value in measured if value is not None]
    console.print(f"[bold]{escape(engine.name)}[/], {_threads(engine.threads)} ({escape(versions)})")
    console.print(f"  [{style}]{escape(engine.judged)}[/]")
    if facts:
        console.print(f"  {', '.join(facts)}")


def _table(words: tuple[str, ...], numbers: tuple[str, ...]) -> Table:
    """Columns of words, then of numbers."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
    for name in words:
        table.add_column(name, no_wrap=name in ("row", "engine"), overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _results(results: list[Result]) -> Table:
    """A column of numbers is shown if some row has it; times in milliseconds."""
    rows = [(result, _numbers(result)) for result in results]
    used = tuple(name for name in rows[0][1] if any(numbers[name] for _, numbers in rows))
    table = _table(("row", "engine", "case"), used)
    for result, numbers in rows:
        table.add_row(result.row, escape(result.engine), escape(_case(result)), *(numbers[name] for name in used))
    return table


def _numbers(r: Result) -> dict[str, str]:
    """By column; empty if the row has none."""
    times = (r.timing.p50, r.timing.p95, r.timing.p99, r.timing.least) if r.timing else ()
    return {
        "p50 p95 p99 min ms": " ".join(_short(1e3 * seconds) for seconds in times),
        "a second": "" if r.per_second is None else _short(r.per_second),
        "GMAC/s": "" if r.gmacs is None else _short(r.gmacs),
        "MB": "" if r.bytes_moved is None else _short(r.bytes_moved / 1e6),
        "of roof": "" if r.roofline_fraction is None else f"{r.roofline_fraction:.0%}",
        "ratio": "" if r.ratio is None else f"{r.ratio:.2f}",
        "scaling": "" if r.scaling is None else f"{r.scaling:.2f}",
    }


def render_comparison(rows: list[Compared], different: list[str], console: Console) -> None:
    """Rows compared with an earlier report."""
    console.print("\n[bold]Against the earlier report[/]; ratio above 1: faster now; in brackets its interval")
    for text in different:
        console.print(f"[yellow]not the same[/]: {escape(text)}")
    if not rows:
        console.print("the two reports have no row in common")
        return
    table = _table(("row", "engine", "case"), ("threads", "before ms", "now ms", "ratio", ""))
    for one in rows:
        style = {"faster": "green", "slower": "red"}.get(one.said, "default")
        ratio = f"{one.ratio:.2f} [{one.low:.2f}, {one.high:.2f}]"
        table.add_row(one.row, escape(one.engine), escape(one.case), str(one.threads), _short(1e3 * one.old),
                      _short(1e3 * one.new), escape(ratio), f"[{style}]{one.said}[/]")  # fmt: skip
    console.print(table)


def _profile(profile: Profile) -> Table:
    table = _table(("operation",), ("calls", "ms", "of the step", "MB", "GB/s"))
    for part in profile.parts:
        size, speed = part.bytes_moved, part.bytes_moved / part.seconds
        bytes_ = (f"{size / 1e6:,.1f}", f"{speed / 1e9:.1f}") if size else ("", "")
        step = f"{part.seconds / profile.step:.1%}"
        table.add_row(part.name, str(part.calls), f"{1e3 * part.seconds:.3f}", step, *bytes_)
    return table


def _tuned(choices: list[Tuned]) -> Table:
    table = _table(("matrix",), ("threads", "tokens", "ms"))
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
    return ", ".join(
        f"{value}" if name in ("way", "matrix", "until") else f"{name} {value}" for name, value in shown.items()
    )


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _short(value: float) -> str:
    """Three digits.

    >>> _short(1234.5), _short(12.345), _short(0.012345)
    ('1,230', '12.3', '0.0123')
    """
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"
