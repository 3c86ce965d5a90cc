"""What the pages state about the code is what the code says."""

from pathlib import Path

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
