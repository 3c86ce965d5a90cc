"""What the pages state about the code is what the code says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from component_tree import with_tree

ROOT = Path(__file__).parents[1]


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
