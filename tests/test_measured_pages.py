"""Tables and plots of the pages are those of docs/data, and what the pages name exists."""

import importlib.util
import json
import re
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from tritgold.decode.diffusion_options import Defect
from tritgold.decode.diffusion_presets import PRESETS
from tritgold.decode.server_defects import ServerDefect
from tritgold.kv_cache.kv_scheme import SCHEMES
from tritgold.sparsity.rules import SPARSITY_RULES
from tritgold_conformance.bench.results import SCHEMA, Report
from tritgold_conformance.server_config import KEYS

ROOT = Path(__file__).parents[1]
PLOTS = ("kv_error", "sparsity", "diffusion_thresholds", "diagnosis")


def script(path: str) -> ModuleType:
    """A script that is no part of a package, as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


tables = script("docs/measured_tables.py")


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


@pytest.mark.parametrize("name", PLOTS)
def test_plots_are_what_was_measured(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bytes every time, and those of the picture that is there, if the same matplotlib drew it."""
    plot = script(f"plots/{name}.py")
    there, drawn = plot.IMAGE.read_bytes(), []
    for number in range(2):
        monkeypatch.setattr(plot, "IMAGE", tmp_path / str(number) / "plot.svg")
        plot.main()
        drawn.append((tmp_path / str(number) / "plot.svg").read_bytes())
    assert drawn[0] == drawn[1]
    if f"Matplotlib v{version('matplotlib')}".encode() in there:
        assert drawn[0] == there, "run make plots"


bench = script("plots/bench.py")
REPORTS = sorted(bench.DATA.glob("bench-*.json"))


def test_plots_of_the_benchmark_are_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No picture is missing, none is left over, and a rebuild has the same bytes."""
    drawn = []
    for number in range(2):
        monkeypatch.setattr(bench, "IMAGES", tmp_path / str(number))
        bench.main()
        drawn.append({path.name: path.read_bytes() for path in (tmp_path / str(number)).iterdir()})
    there = {path.name: path.read_bytes() for path in (ROOT / "docs/images").glob("bench-*.svg")}
    assert drawn[0] == drawn[1]
    assert drawn[0].keys() == there.keys(), "run make plots"
    if all(f"Matplotlib v{version('matplotlib')}".encode() in picture for picture in there.values()):
        assert drawn[0] == there, "run make plots"


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_a_report_of_docs_is_one_of_the_benchmark(path: Path) -> None:
    report = msgspec.json.decode(path.read_bytes(), type=Report)
    assert report.schema == SCHEMA
    assert re.search(rf"--json docs/data/{path.name}$", report.command), "the command that makes it again"


def drawn(folder: Path, report: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What plots/bench.py makes of one report, by kind; its words are paths, but comments in the SVG hold them."""
    for name in ("DATA", "IMAGES"):
        monkeypatch.setattr(bench, name, folder)
    (folder / "bench-x.json").write_text(json.dumps(report), encoding="utf-8")
    bench.main()
    return {path.stem.removeprefix("bench-x-"): path.read_text(encoding="utf-8") for path in folder.glob("*.svg")}


def test_plots_say_what_is_missing_and_do_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = json.loads(REPORTS[-1].read_text(encoding="utf-8"))
    batch = {"sequences": 4, "context": 16, "steps": 2}
    timing = {"median": 0.5, "p95": 0.6}
    row = {
        "row": "batch",
        "engine": "xla",
        "threads": 1,
        "case": batch,
        "timing": timing,
        "per_second": 8.0,
        "ratio": None,
    }
    row |= {"units": 4, "moved": 100}
    refused = {"row": "decode", "engine": "xla", "threads": 1, "case": {"context": 64}, "timing": None}
    report["results"], report["profiles"] = [row, refused], []
    report["bandwidth"] = [{"threads": 1, "best": 1000.0}]
    found = drawn(tmp_path, report, monkeypatch)
    assert found.keys() == {"speed"}
    assert found["speed"].count("<!-- not measured in this report -->") == 5  # panels, all but the batches
    assert "<!-- xla batch: roof -->" in found["speed"]


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
