"""What the pages state about the code is what the code says."""

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from component_tree import with_tree

from tritgold.checkpoint import open_checkpoint
from tritgold.golden import embedded_model
from tritgold.trace_names import TRACE_NAMES
from tritgold_conformance.golden.run import GoldenRun

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


def described(cell: str, sizes: dict[str, int]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """``x float32 [tokens, hidden]; ...`` -> role -> dtype, shape."""
    found = {}
    for role, dtype, shape in re.findall(r"(\w+) (\w+) \[([^\]]*)\]", cell):
        found[role] = dtype, tuple(math.prod(sizes[f] for f in axis.strip().split("*")) for axis in shape.split(","))
    return found


def test_the_table_of_operations_is_what_operations_read_and_write() -> None:
    page = (ROOT / "docs" / "judging.md").read_text().partition("\n## Operations")[2]
    rows = {c[1].strip(): (c[3], c[4]) for c in (line.split("|") for line in page.splitlines()) if len(c) == 6}
    with embedded_model("seeded") as path:
        golden = GoldenRun.of(open_checkpoint(path), [1, 2, 3])
    seen = set()
    for operation, inputs in golden.operations():
        c = golden.checkpoint.config
        width = next(iter(inputs.values())).shape[-1]
        out = golden.trace[next(iter(operation.writes.values()))].shape[-1]
        sizes = {**c.as_dict(), "tokens": 3, "width": width, "in": width, "out": out}
        reads, writes = rows[operation.kind]
        assert described(reads, sizes) == {r: (str(a.dtype), a.shape) for r, a in inputs.items()}, operation.name
        outputs = {role: golden.trace[name] for role, name in operation.writes.items()}
        assert described(writes, sizes) == {r: (str(a.dtype), a.shape) for r, a in outputs.items()}, operation.name
        assert operation.name.split(".")[-1] in page
        seen.add(operation.kind)
    assert seen == rows.keys() - {"kind", "---"}


def test_the_example_engine_conforms() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tritgold_conformance",
            "check",
            "--engine",
            "minimal_engine:MinimalEngine",
            "--tokens",
            "8",
            "--one-text",
        ],
        cwd=ROOT / "docs" / "examples",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "minimal conforms" in done.stdout


@pytest.mark.parametrize("component", ["reference", "accelerated", "conformance"])
def test_the_tree_of_each_component_names_every_file_and_no_other(component: str) -> None:
    shown = set(re.findall(r"\b\w+\.py\b", (ROOT / component / "README.md").read_text().split("```text")[1]))
    there = {path.name for path in (ROOT / component).rglob("*.py")} - {"__init__.py"}
    assert shown == there


def test_the_tree_of_conformance_says_what_its_files_say() -> None:
    page = (ROOT / "conformance" / "README.md").read_text("utf-8")
    assert with_tree(page) == page, "python docs/_make/component_tree.py"
    assert with_tree(page.replace("ask.py", "asks.py")) != page.replace("ask.py", "asks.py")


def test_every_link_between_pages_leads_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *ROOT.glob("*/*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
