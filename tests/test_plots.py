"""The figures are those that plots/ draws of docs/data now, and each says on which machine and of which bytes.

matplotlib of another version draws other bytes of the same picture. Then what is drawn is compared (``drawing.drawn``:
points, bars, words), of which each file holds a digest; byte-equal it must be with the version that drew it.
"""

import ast
import json
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from scripts import script

ROOT = Path(__file__).parents[1]
IMAGES, DATA = ROOT / "docs/images", ROOT / "docs/data"
SCRIPTS = sorted(p.stem for p in (ROOT / "plots").glob("*.py") if p.stem not in ("drawing", "__main__"))
BY_HAND = {"data-flow.svg"}  # a diagram, no figure
DRAWN = re.compile(r"drawn ([0-9a-f]{12})")


def words(svg: str) -> str:
    """What is written in a figure of matplotlib's: letters are paths, and a comment says what they spell."""
    return " ".join(re.findall(r"<!-- (.*?) -->", svg, re.DOTALL))


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Script -> file -> SVG, all of them drawn again."""
    found = {}
    for name in SCRIPTS:
        folder = tmp_path_factory.mktemp(name)
        script(f"plots/{name}.py").main(folder)
        found[name] = {str(p.relative_to(folder)): p.read_text("utf-8") for p in folder.rglob("*.svg")}
    return found


def same(there: str, drawn: str) -> bool:
    """Bytes, or with another matplotlib than the one that drew the file that is there, what is drawn."""
    by = re.search(r"Matplotlib v([\d.]+\d)", there)
    if by is None or by[1] == version("matplotlib"):
        return there == drawn
    digests = DRAWN.search(there), DRAWN.search(drawn)
    return None not in digests and digests[0][1] == digests[1][1]


def test_every_figure_is_what_its_script_draws_of_the_reports_now(rebuilt: dict[str, dict[str, str]]) -> None:
    """None is missing, none is left over, none is stale."""
    drawn = {file: svg for files in rebuilt.values() for file, svg in files.items()}
    figures = [path for path in IMAGES.rglob("*.svg") if path.name not in BY_HAND]
    there = {str(path.relative_to(IMAGES)): path.read_text("utf-8") for path in figures}
    assert sorted(drawn) == sorted(there), "run make plots"
    assert [file for file, svg in there.items() if not same(svg, drawn[file])] == [], "run make plots"


def test_every_script_draws(rebuilt: dict[str, dict[str, str]]) -> None:
    assert all(rebuilt.values())


def test_every_figure_names_its_machine_and_the_digest_of_each_report() -> None:
    """Byte maps and the strip of a block are drawn of the code itself, without report and matplotlib."""
    drawing = script("plots/drawing.py")
    of_reports = [path for path in IMAGES.glob("*.svg") if "Matplotlib v" in path.read_text("utf-8")]
    assert len(of_reports) > 10
    for path in of_reports:
        said = words(path.read_text("utf-8"))
        named = re.findall(r"([\w.-]+/)?([\w.-]+\.json) ([0-9a-f]{12})", re.sub(r"\s+", " ", said))
        assert named, path.name
        assert re.search(r"Machine: \S", said), path.name
        for folder, file, digest in named:
            known = [*DATA.glob(file), *(ROOT / "reference/tritgold/golden").glob(f"**/{folder}{file}")]
            assert digest in [drawing.digest(p) for p in known], f"{path.name}: {file} has changed, run make plots"


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_holds_data(name: str) -> None:
    """Measured numbers stand in reports: no script has a list of numbers that is longer than the ticks of an axis."""
    tree = ast.parse((ROOT / f"plots/{name}.py").read_text("utf-8"))
    assert numbers(tree) <= 12


def numbers(tree: ast.AST) -> int:
    """The longest row of numbers in a script, and of rows in rows."""
    rows = [node.elts for node in ast.walk(tree) if isinstance(node, ast.List | ast.Tuple)]
    rows += [node.values for node in ast.walk(tree) if isinstance(node, ast.Dict)]
    return max((sum(_is_number(each) for each in row) for row in rows), default=0)


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        return _is_number(node.operand)
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def test_the_checks_of_figures_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed figure changes bytes and digest; another version's bytes count for nothing, its digest does."""
    sparsity = script("plots/sparsity.py")
    sparsity.main(tmp_path)
    before = (tmp_path / "sparsity.svg").read_text("utf-8")
    report = json.loads(sparsity.SOURCE.read_text("utf-8"))
    report["model"][3]["cosine"] -= 0.01
    monkeypatch.setattr(sparsity, "SOURCE", tmp_path / "sparsity-cosine.json")
    sparsity.SOURCE.write_text(json.dumps(report), encoding="utf-8")
    sparsity.main(tmp_path)
    after = (tmp_path / "sparsity.svg").read_text("utf-8")
    assert not same(before, after)
    older = before.replace(f"Matplotlib v{version('matplotlib')}", "Matplotlib v3.9.0").replace("<g id", "<g  id")
    assert same(older, before)
    assert not same(older, after)
    assert numbers(ast.parse(f"x = {[0.5] * 13}")) == 13


def drawn(report: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What plots/bench.py makes of one report, by kind: the words in it."""
    bench = script("plots/bench.py")
    (tmp_path / "bench-x.json").write_text(json.dumps(report), encoding="utf-8")
    monkeypatch.setattr(bench, "DATA", tmp_path)
    bench.main(tmp_path)
    return {path.stem.removeprefix("bench-"): words(path.read_text("utf-8")) for path in tmp_path.glob("*.svg")}


def test_plots_of_the_benchmark_show_what_a_report_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A panel for what was measured, none for what was not; of one number of threads there is no picture of threads."""
    report = json.loads((DATA / "bench-golden.json").read_text("utf-8"))
    row: dict[str, Any] = {"engine": "xla", "threads": 1, "timing": {"median": 0.5, "p95": 0.6}, "ratio": None}
    row |= {"units": 4, "bytes_moved": 100, "per_second": 8.0}
    batch = {**row, "row": "batch", "case": {"sequences": 4, "context": 16, "steps": 2}}
    more = {**batch, "case": {"sequences": 8, "context": 16, "steps": 2}}
    blocks = {**row, "row": "block-diffusion", "bytes_moved": None}
    blocks["case"] = {"preset": "adaptive", "threshold": "0.9", "tokens": 64}
    refused = {**row, "row": "decode", "case": {"context": 64}, "timing": None}
    report["results"], report["profiles"] = [batch, more, blocks, refused], []
    report["bandwidth"] = [{"threads": 1, "best": 1000.0}]
    found = drawn(report, tmp_path, monkeypatch)
    assert found.keys() == {"x-speed"}
    assert "Batches, 1 thread" in found["x-speed"]
    assert "Block diffusion, 1 thread" in found["x-speed"]
    assert "xla adaptive 0.9" in found["x-speed"]
    assert "Decoding" not in found["x-speed"]
    report["results"].append({**more, "threads": 2})
    report["bandwidth"].append({"threads": 2, "best": 1500.0})
    assert drawn(report, tmp_path, monkeypatch).keys() == {"x-speed", "golden-by-threads"}
