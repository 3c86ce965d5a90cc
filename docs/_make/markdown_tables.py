"""What the tables of the pages are made with: the reports of docs/data, rows as Markdown, figures of two digits."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1]
MADE = "<!-- Made by docs/_make/lookup_pages.py (make lookup): a change by hand is lost, and fails a test before. -->"


def data(name: str) -> dict[str, Any]:
    """A report of docs/data."""
    report: dict[str, Any] = json.loads((FOLDER / "data" / f"{name}.json").read_text(encoding="utf-8"))
    return report


def measured(name: str, command: str, made: Callable[[dict[str, Any]], str]) -> str:
    """What ``made`` makes of a report of docs/data; where there is none, which command measures it."""
    if not (FOLDER / "data" / f"{name}.json").exists():
        return f"*Not measured yet: `{command}`.*"
    return made(data(name))


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Rows as Markdown."""
    head = list(head)
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in (head, ["---"] * len(head), *rows))


def figure(value: float) -> str:
    """Two significant digits.

    >>> figure(0.0366428), figure(0.0), figure(1.04)
    ('0.037', '0', '1')
    """
    return f"{value:.2g}" if value >= 1e-4 or value == 0 else f"{value:.1e}"
