"""Prints the result of ``tritgold inspect`` on a terminal of 80 columns or more."""

from collections.abc import Sequence
from typing import Any

from rich import markup
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from tritgold_conformance.rendering.escaping import shown, table

_BY = {
    "type": "by its type",
    "bytes": "the only one that fits",
    "file": "the file says so",
    "option": "stated by an option",
    "twin": "it agrees with the twin",
}
_SHOWN = 10


def _safe(value: object) -> str:
    """Untrusted text for use in rich markup, with its brackets escaped."""
    return markup.escape(shown(value))


def _say(console: Console, marked: str, soft_wrap: bool = False) -> None:
    """Print markup; emoji codes like ``:bug:`` are not replaced."""
    console.print(Text.from_markup(marked, emoji=False), soft_wrap=soft_wrap)


def render_inspection(facts: dict[str, Any], console: Console) -> None:
    """Print all findings, the verdict last."""
    _say(console, f"[bold]{_safe(str(facts['model']))}[/]: {_safe(facts['container'])}\n")
    rows = [(dtype, str(row["tensors"]), f"{row['bytes']:,}") for dtype, row in facts["types"].items()]
    console.print(table(("type", "tensors>", "bytes>"), rows))
    if facts.get("tensors"):
        console.print()
        _tensors(facts, console)
    if facts["config"] is not None:
        config = ", ".join(f"{key} {value}" for key, value in facts["config"].items())
        _say(console, f"\n[bold]Configuration[/]: architecture {facts['architecture']}, {_safe(config)}")
    if (sizes := facts["tokenizer"]) and sizes["ids"] != sizes["vocab"]:
        which = "have no text" if sizes["ids"] < sizes["vocab"] else "are not the model's"
        ids = f"{sizes['ids']} ids, the model {sizes['vocab']}; those from {min(sizes.values())} on {which}"
        _say(console, f"[bold]Tokenizer[/]: {ids}")
    if facts["weights"] is not None:
        console.print()
        _weights(facts["weights"], console)
    for group in facts["fingerprint"]:
        _group(group, console)
    if facts["twin"] is not None:
        _twin(facts["twin"], console)
    _health(facts["health"], facts["problem"] is not None, console)
    _verdict(facts, console)


def _tensors(facts: dict[str, Any], console: Console) -> None:
    """One line for each tensor, with few columns so that rows fit into 80 characters."""
    looks = {look["stored_as"]: look for look in (facts["weights"] or {}).get("linears") or []}
    rows = []
    for tensor in facts["tensors"]:
        look = looks.get(tensor["name"], {})
        trits = look.get("trits")
        shares = "" if not trits else "/".join(f"{100 * n / max(sum(trits), 1):.1f}" for n in trits)
        scale = look.get("scale")
        shape = " x ".join(map(str, tensor["shape"]))
        rows.append((tensor["name"], tensor["dtype"], shape, shares, "" if scale is None else f"{scale:.6g}"))
    console.print(table(("tensor", "type", "shape", "-1/0/+1 %", "scale>"), rows))


def _weights(weights: dict[str, Any], console: Console) -> None:
    count = weights["ternary"]
    shares = ", ".join(f"{trit}: {n / max(count, 1):.1%}" for trit, n in weights["histogram"].items())
    masters = ", float masters" if weights["masters"] else ""
    text = f"[bold]Ternary weights[/]: {count:,} ({shares}), {weights['bits_per_weight']} bits a weight{masters}"
    if weights["scale_range"] is not None:
        low, high = weights["scale_range"]
        text += f", scales {low:.6g} to {high:.6g}"
    _say(console, text)


def _group(group: dict[str, Any], console: Console) -> None:
    count = f"{group['tensors']} {group['dtype']} {'tensors' if group['tensors'] > 1 else 'tensor'}"
    if group["shape"] is not None:
        count += " of " + " x ".join(map(str, group["shape"]))
    said = {
        "ambiguous": "[bold yellow]ambiguous[/]",
        "nothing fits": "[bold red]no layout fits[/]",
        "certain": f"[green]{_safe(str(group['layout']))}[/], {_BY.get(group['by'], '')}",
    }[group["verdict"]]
    _say(console, f"\n[bold]Layout[/] of {count}: {said}")
    twins = any(h["agreement"] is not None for h in group["hypotheses"])
    columns = ("layout", "verdict", *(["twin>"] if twins else []), "why")
    rows: list[Sequence[str | Text]] = []
    for h in group["hypotheses"]:
        verdict = Text(h["verdict"], style="green" if h["verdict"] == "fits" else "dim")
        agreement = "" if h["agreement"] is None else percent(h["agreement"])
        rows.append((h["layout"], verdict, *([agreement] if twins else []), h["reason"]))
    console.print(table(columns, rows))
    for note in group["notes"]:
        _indented(console, _safe(note))
    if group["contradicted"]:
        _indented(console, f"[bold red]{_safe(group['contradicted'])}[/]")
    if group["advice"]:
        lead = "[bold]What would decide:[/] " if group["verdict"] == "ambiguous" else ""
        _indented(console, lead + _safe(group["advice"]))


def _indented(console: Console, marked: str, by: int = 2) -> None:
    """Print lines that stay indented when they are wrapped."""
    console.print(Padding(Text.from_markup(marked, emoji=False), (0, 0, 0, by), expand=False))


def percent(share: float) -> str:
    """A share in percent; 100 % only if it is exactly 1.

    >>> percent(1.0), percent(0.999999), percent(0.4913)
    ('100 %', '99.99 %', '49.13 %')
    """
    return "100 %" if share == 1 else f"{min(100 * share, 99.99):.2f} %"


def _twin(twin: dict[str, Any], console: Console) -> None:
    verdict = "[green]the same trits and scales[/]" if twin["equal"] else "[bold red]not the same model[/]"
    _say(console, f"\n[bold]Twin[/] {_safe(str(twin['path']))}: {twin['compared']} tensors compared, {verdict}")
    causes: dict[str, list[dict[str, Any]]] = {}
    for difference in twin["differences"]:
        causes.setdefault(difference["looks_like"] or "not a known misreading", []).append(difference)
    for cause, found in causes.items():
        _indented(console, f"{len(found)} {'differs' if len(found) == 1 else 'differ'}: [bold]{_safe(cause)}[/]")
        for d in found[:_SHOWN]:
            if d["first"] is not None:
                where = f"{percent(d['agreement'])} agree, the first that does not at {d['first']}"
                _indented(console, _safe(f"{d['stored_as']}: {where}"), 4)
        if len(found) > _SHOWN:
            _indented(console, f"and {len(found) - _SHOWN} more", 4)
    for fault in twin["scales"][:_SHOWN]:
        where = f"{fault['first']}: {fault['found']:.6g} here, {fault['twin']:.6g} there"
        count = f"{fault['tensors']} {'scale' if fault['tensors'] == 1 else 'scales'}"
        _indented(console, _safe(f"{count} {fault['fault']} ({where})"))
    for side in ("here", "there"):
        if names := twin["missing"][side]:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            _indented(console, _safe(f"missing {side}: {', '.join(names[:3])}{more}"))


def _health(findings: list[dict[str, Any]], refused: bool, console: Console) -> None:
    if not findings:
        about = " about the linear weights; the reason for the refusal is shown below" if refused else ""
        _say(console, f"\n[bold]Health[/]: nothing odd{about}")
        return
    _say(console, "\n[bold]Health[/]:")
    rows = []
    for finding in findings:
        first = f"{finding['first']}: " if finding["first"] else ""
        rows.append((finding["kind"], str(finding["tensors"] or ""), f"{first}{finding['what']}"))
    console.print(table(("finding", "tensors>", "the first"), rows))


def _verdict(facts: dict[str, Any], console: Console) -> None:
    problem = facts["problem"]
    if problem is not None:
        text = f"{problem['error']}: {problem['thing'] or problem['file']}: {problem['message']}"
        if problem["got"] is not None:
            text += f": found {problem['got']}"
        if problem["expected"] is not None:
            text += f", expected {problem['expected']}"
        lines = "\n".join(map(_safe, text.split("\n")))
        _say(console, f"\n[bold red]Not a model tritgold can run.[/] {lines}", soft_wrap=True)
        if problem["hint"]:
            _say(console, _safe(problem["hint"]), soft_wrap=True)
    if facts["exit_code"] == 4:
        _say(console, "\n[bold yellow]Ambiguous: two or more layouts fit, and nothing decides between them.[/]")
    elif problem is None and any(group["verdict"] == "nothing fits" for group in facts["fingerprint"]):
        _say(console, "\n[bold red]It opens as a model, but no layout fits all of its bytes.[/]")
    elif problem is None and facts["exit_code"] == 1:
        _say(console, "\n[bold red]It opens as a model, but not as the model of --twin.[/]")
    elif problem is None:
        _say(console, "\n[bold green]It opens as a model, and its layout is certain.[/]")
