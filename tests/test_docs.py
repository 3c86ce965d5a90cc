"""What the pages state about the code is what the code says."""

import re
from pathlib import Path

import pytest

from tritgold.trace_names import TRACE_NAMES

ROOT = Path(__file__).parents[1]


def row(*cells: str) -> str:
    return "|" + "|".join(f" {text} " if text else " " for text in cells) + "|"


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def test_the_table_of_trace_names_is_the_table_in_the_code() -> None:
    page = (ROOT / "docs" / "traces.md").read_text().splitlines()
    shown = [line for line in page if line.startswith(("| `layers.", "| `embedding`", "| `final_norm`", "| `logits`"))]
    expected = [row(code(name), code(c.llama_cpp), code(c.hf), c.note) for name, c in TRACE_NAMES.items()]
    assert shown == expected


@pytest.mark.parametrize("component", ["reference", "accelerated", "conformance"])
def test_the_tree_of_each_component_names_every_file_and_no_other(component: str) -> None:
    shown = set(re.findall(r"\b\w+\.py\b", (ROOT / component / "README.md").read_text().split("```text")[1]))
    there = {path.name for path in (ROOT / component).rglob("*.py")} - {"__init__.py"}
    assert shown == there


def test_every_link_between_pages_leads_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *ROOT.glob("*/*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
