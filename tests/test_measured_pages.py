"""Tables and plots of the pages are those of docs/data, and what the pages name exists."""

import importlib.util
import re
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

from tritgold.decode.diffusion_options import Defect
from tritgold.decode.diffusion_presets import PRESETS
from tritgold.decode.server_defects import ServerDefect
from tritgold.kv_cache.kv_scheme import SCHEMES
from tritgold.sparsity.rules import SPARSITY_RULES
from tritgold_conformance.server_config import KEYS

ROOT = Path(__file__).parents[1]
PLOTS = ("kv_error", "sparsity", "diffusion_thresholds")


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
