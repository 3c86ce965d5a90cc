"""The tables of docs/peers-judged.md, from the report that ``make judged-peers`` records."""

import re
from typing import Any

from markdown_tables import data, figure, table

WAYS = {"server": "llama.cpp's server", "transformers": "transformers", "llama.cpp": "llama.cpp"}


def judged() -> str:
    """Verdicts, level by level."""
    head = ("engine", "model", "mode", "verdict", "levels", "largest difference", "ties followed", "tokens/s")
    return table(head, (_verdict(row) for row in data("peers-judged")["rows"]))


def explained() -> str:
    """What is nearest to the output of those that differ."""
    head = ("engine", "model", "mode", "explained by", "positions that fit", "without it", "next best", "with it")
    rows = []
    for row in data("peers-judged")["rows"]:
        if (why := row["explained"]) is not None:
            with_it = "conforms" if why["conforms_with_it"] else "float16 ties break"
            following = f"`{_name(why['next'])}`: {why['next_positions']}"
            by = f"{_kind(why['by'])} `{_name(why['by'])}`"
            rows.append((*_who(row), by, f"{why['positions']} of 40", why["without"], following, with_it))
    return table(head, rows)


def _who(row: dict[str, Any]) -> tuple[str, str, str]:
    options = ", default cache" if row["options"] else ""
    silu = ", `silu` in its config" if row["silu"] else ""
    silu += f", head in {row['head'].upper()}" if row.get("head") else ""
    return WAYS[row["engine"]] + options, row["model"] + silu, f"`{row['mode'].partition('/')[0]}`"


def _verdict(row: dict[str, Any]) -> tuple[object, ...]:
    levels = [f"{name} {of['compared']}" for name, of in row["levels"].items()]
    notes = " ".join(of["note"] for of in row["levels"].values())
    differences = [float(a or b) for a, b in re.findall(r"(\d\S*) of the largest logit|shown within (\S*\d)", notes)]
    ties = max([int(found) for found in re.findall(r"ties followed: (\d+)", notes)], default=0)
    right = row["verdict"] == "conforms"
    speed = "-" if row["speed"] is None else f"{row['speed']['prefill']:,.0f}, {row['speed']['decode']:,.0f}"
    largest = figure(max(differences)) if right and differences else "-"
    return (*_who(row), row["verdict"], ", ".join(levels), largest, ties if right else "-", speed)


def _kind(by: str) -> str:
    return by.rpartition(" ")[0]


def _name(by: str) -> str:
    return by.rpartition(" ")[2]
