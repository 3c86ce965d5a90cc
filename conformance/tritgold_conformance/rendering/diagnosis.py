"""Prints a diagnosis on a terminal."""

from rich.console import Console
from rich.table import Table

from tritgold_conformance.rendering.escaping import table, terminal
from tritgold_conformance.rendering.wording import IN_PROCESS, candidate, distances, extent, where
from tritgold_conformance.results.diagnosis import Diagnosis, Divergence, Named

_LISTED = 12  # fault names on one line


def render(found: Diagnosis, console: Console) -> None:
    """Print the first divergence, the faults with their distances, the verdict, and what could not be seen."""
    levels = terminal(", ".join(found.levels)) or "none"
    how = f"; {IN_PROCESS}" if found.in_process else ""
    console.print(f"[bold]{terminal(found.engine)}[/] on {terminal(found.model)}; levels: {levels}{how}")
    if found.first_divergence is not None:
        _divergence(found.first_divergence, "First divergence", console)
    for number, fault in enumerate(found.faults, start=1):
        _named(number, fault, console)
    for divergence in found.unexplained:
        console.print("\n[bold red]None of the known faults[/] explains:")
        _divergence(divergence, "  divergence", console)
    if found.unexplained and found.ranking:
        console.print(_ranking(found))
    if not found.faults and not found.unexplained:
        said = found.nothing if found.clean else f"{found.verdict.capitalize()}."
        style = "yellow" if found.fails or not found.levels else "green"
        console.print(f"\n[{style}]{terminal(said)}[/]", soft_wrap=True)
    if found.could_not_see is not None:
        _names("Known faults that this run could not have shown", found.could_not_see, console)
    if found.no_place:
        _names("Known faults that this model has no place for", found.no_place, console)


def _divergence(d: Divergence, heading: str, console: Console) -> None:
    console.print(f"{heading}: [bold]{terminal(d.name)}[/] ({terminal(d.level)}; {where(d)})")
    if said := extent(d):
        console.print(f"  {terminal(said)}")
    if d.comparison.golden is not None and d.comparison.engine is not None:
        console.print(f"  worst: engine {d.comparison.engine:.9g}, golden {d.comparison.golden:.9g}")


def _named(number: int, fault: Named, console: Console) -> None:
    console.print(f"\n{number}. [bold red]{terminal(fault.fault)}[/]: {terminal(fault.summary)}")
    line = terminal(distances(fault))
    console.print(f"   {line[0].upper()}{line[1:]}.", soft_wrap=True)
    if fault.same:
        console.print(f"   On this input the same as: {terminal(', '.join(fault.same))}", soft_wrap=True)
    console.print(f"   tritgold faults show {terminal(fault.fault)}")


def _ranking(found: Diagnosis) -> Table:
    rows = [(r.fault, candidate(r)) for r in found.ranking[:5]]
    return table(("fault", "distance>"), rows, "nearest candidates, none of which explains it")


def _names(title: str, names: list[str], console: Console) -> None:
    console.print(f"\n{title}: {len(names)}")
    for first in range(0, len(names), _LISTED):
        console.print(f"  {terminal(', '.join(names[first : first + _LISTED]))}", soft_wrap=True)
