"""Tables of the pages are those of docs/data, and what the pages name exists."""

import re
from pathlib import Path

import msgspec
import pytest
from scripts import script

from tritgold.decode.diffusion_options import Defect
from tritgold.decode.diffusion_presets import PRESETS
from tritgold.decode.server_defects import ServerDefect
from tritgold.kv_cache.kv_scheme import SCHEMES
from tritgold.sparsity.rules import SPARSITY_RULES
from tritgold_conformance.bench.results import SCHEMA, Report
from tritgold_conformance.commands.server_config import KEYS

ROOT = Path(__file__).parents[1]


tables = script("docs/_make/measured_tables.py")


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", tables.PAGES)
def test_tables_are_what_was_measured(name: str) -> None:
    assert tables.filled(page(name)) == page(name), "run make plots"


def test_each_table_stands_in_a_page_once() -> None:
    shown = [found for name in tables.PAGES for found in re.findall(r"<!-- table ([a-z0-9-]+) -->", page(name))]
    assert sorted(shown) == sorted(tables.TABLES)
    stale = page("kv-cache.md").replace("| `q8_0` | 8.5 |", "| `q8_0` | 8.4 |")
    assert tables.filled(stale) == page("kv-cache.md") != stale, "a wrong figure is seen"


REPORTS = sorted((ROOT / "docs/data").glob("bench-*.json"))


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_a_report_of_docs_is_one_of_the_benchmark(path: Path) -> None:
    report = msgspec.json.decode(path.read_bytes(), type=Report)
    assert report.schema == SCHEMA
    assert re.search(rf"--json docs/data/{path.name}$", report.command), "the command that makes it again"


@pytest.mark.parametrize(
    ("name", "things"),
    [
        ("kv-cache.md", SCHEMES),
        ("sparsity.md", SPARSITY_RULES),
        ("decoding.md", (*PRESETS, *Defect, *ServerDefect, *(key.split(".")[-1] for key in KEYS))),
    ],
)
def test_a_page_names_everything(name: str, things: tuple[str, ...]) -> None:
    assert [thing for thing in things if f"`{thing}`" not in page(name)] == []


def test_no_report_names_a_folder_of_the_machine_that_made_it() -> None:
    found = [
        file.name
        for file in (ROOT / "docs/data").rglob("*.json")
        if re.search(r"[\"=:](/root|/home|/Users|/tmp|/work|/mnt)/", file.read_text(encoding="utf-8"))
    ]
    assert not found
