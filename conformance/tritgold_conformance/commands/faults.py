"""tritgold faults: lists the library of known faults; tritgold faults show: explains one of them."""

import textwrap
from typing import Any

import click

from tritgold_conformance.commands import printing
from tritgold_conformance.faults import FAULTS, fault
from tritgold_conformance.faults.fault import AREAS, INVISIBLE, Fault


@click.group(invoke_without_command=True)
@click.option("--area", help="Only one area: packing, scale, activation ...")
@printing.json_option
@click.pass_context
def faults(ctx: click.Context, area: str | None, as_json: bool) -> None:
    """List the known faults of engines.

    Each is a small change of the golden model; `tritgold diagnose` tries them all. `tritgold faults show NAME` tells
    what a fault looks like, where it was seen, and which inputs cannot show it.
    """
    if ctx.invoked_subcommand is not None:
        return

    if area is not None and area not in AREAS:
        raise click.BadParameter(f"{area!r} is not one of {', '.join(AREAS)}", param_hint="--area")
    listed = [fault for fault in FAULTS.values() if area in (None, fault.area)]
    if as_json:
        printing.print_json({"schema": "tritgold.faults/1", "faults": [as_dict(fault) for fault in listed]})
        return
    width = max(len(fault.name) for fault in listed)
    for name in AREAS:
        if of_area := [fault for fault in listed if fault.area == name]:
            click.echo(f"{name} ({len(of_area)})")
            for fault in of_area:
                click.echo(f"  {fault.name:{width}}  {fault.summary}")
    click.echo(f"\n{len(listed)} faults. One of them: tritgold faults show {listed[0].name}")


@faults.command("show")
@click.argument("name")
@printing.json_option
def show(name: str, as_json: bool) -> None:
    """Explain one fault: what it looks like, where it was seen, what shows it and what cannot."""
    with printing.errors(as_json):
        found = fault(name)
    if as_json:
        printing.print_json({"schema": "tritgold.fault/1", **as_dict(found)})
        return
    fields = as_dict(found)
    click.echo(f"{found.name} ({found.area})")
    for title, text in (
        ("wrong", found.summary),
        ("looks like", found.looks_like),
        ("seen in", ", ".join(found.seen_in) or "no public report known"),
        ("shown by", fields["reproduce"]),
        ("invisible on", "; ".join(fields["invisible_on"].values()) or "nothing that is known"),
    ):
        click.echo(textwrap.fill(text, 110, initial_indent=f"  {title:13}", subsequent_indent=" " * 15))


def as_dict(fault: Fault) -> dict[str, Any]:
    """A fault as JSON values."""
    w = fault.shown_by
    return {
        "name": fault.name,
        "area": fault.area,
        "summary": fault.summary,
        "looks_like": fault.looks_like,
        "seen_in": list(fault.seen_in),
        "shown_by": {"level": w.level, "model": w.model, "tokens": w.tokens},
        "reproduce": f"level {w.level}, model {w.model}, {w.tokens} tokens",
        "invisible_on": {key: INVISIBLE[key] for key in fault.invisible_on},
    }
