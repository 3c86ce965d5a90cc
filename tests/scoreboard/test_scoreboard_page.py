"""The files of all cases can be made, and the reports explain every verdict.

That docs/scoreboard.md has the tables of these reports, byte for byte, is a test of tests/test_measured_pages.py; that
docs/scoreboard-cells.md is what they make, one of tests/test_lookup_pages.py.
"""

import re
from pathlib import Path

import pytest
from scoreboard.causes import EXPLAINED, cause_of, causes
from scoreboard.cells import PAGE, again, anchor, cells_page, link
from scoreboard.manifest import Case, manifest
from scoreboard.model_files import FORMATS, model_of
from scoreboard.results import EngineReport, Row
from scoreboard.tables import TABLES, absent, exams, gaps, matrix, reports
from scoreboard.wording import named

from tritgold.checkpoint import open_checkpoint

ROOT = Path(__file__).parents[2]
FOUND = reports()
ROWS = [row for report in FOUND for row in report.rows]


def distinct() -> dict[str, Case]:
    """The files of all cases, each once."""
    made = {}
    for engine in manifest():
        for case in engine.cases:
            words = (case.model, case.format, case.architecture, case.embedding, case.silu, case.vocabulary)
            made["-".join(map(str, words))] = case
    return made


@pytest.mark.parametrize("case", distinct().values(), ids=distinct())
def test_the_file_of_each_case_can_be_made(case: Case, tmp_path: Path) -> None:
    opened = open_checkpoint(model_of(case, tmp_path))
    assert case.format in FORMATS
    assert opened.config.sub_norms is (
        case.model != "llama" and not re.match("fixture/(llama|qwen|gemma|granite)", case.model)
    )
    if case.silu or case.model == "llama":
        assert opened.config.activation == "silu"


def test_every_engine_of_the_manifest_is_judged_or_there_is_a_reason() -> None:
    judged = {(report.engine, report.version) for report in FOUND if report.rows}
    shown = absent()
    missing = [(e.name, v) for e in manifest() for v in e.versions if (e.name, v) not in judged]
    assert [one for one in missing if f"| {one[0]} | {one[1]} |" not in shown] == []


def test_each_verdict_is_explained_or_has_its_coverage() -> None:
    assert [row for row in ROWS if row.status != "conforms" and not row.why] == []
    assert [row for row in ROWS if row.status == "conforms" and not row.coverage] == []
    assert [row for row in ROWS if row.status == "does not conform" and not row.evidence] == []


def test_the_scoreboard_has_the_breadth_that_it_claims() -> None:
    judged = [report for report in FOUND if report.rows]
    assert len(judged) >= 10
    assert len({row.case.format for row in ROWS}) >= 8
    assert {"Python", "C++", "Rust", "JavaScript"} <= {language for report in judged for language in report.languages}


def test_each_engine_that_was_judged_has_its_speed_and_its_exam_or_a_reason() -> None:
    judged = [report for report in FOUND if report.rows]
    assert [named(one) for one in judged if not any(row.speed for row in one.rows)] == []
    shown = exams(FOUND)
    assert [named(one) for one in judged if f"| {named(one)} |" not in shown] == []
    assert [row.exam for row in ROWS if row.exam is not None and row.exam.of < 60] == []


def test_no_report_names_a_folder_of_the_machine() -> None:
    for path in (ROOT / "docs/data/scoreboard").glob("*.json"):
        text = path.read_text(encoding="utf-8")
        assert [word for word in ("/work", "/tmp", "/home", "/root", str(ROOT)) if word in text] == [], path.name


def test_each_row_that_is_wrong_has_a_cause_and_each_cause_a_row_and_its_finding() -> None:
    listed = causes()
    of = {id(row): cause_of(report, row, listed) for report in FOUND for row in report.rows if row.status in EXPLAINED}
    without = [(row.case.format, row.case.model, row.why) for row in ROWS if id(row) in of and of[id(row)] is None]
    assert without == []
    assert [cause.says for cause in listed if cause not in of.values()] == [], "explain no row"
    assert [one.finding for one in listed if not (ROOT / f"docs/findings/{one.finding or 'README'}.md").is_file()] == []


def test_each_cell_leads_to_its_cases_with_their_commands() -> None:
    page = (ROOT / "docs" / PAGE).read_text(encoding="utf-8")
    titles = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    anchors = [anchor(title) for title in titles]
    assert len(anchors) == len(set(anchors))
    lines = matrix(FOUND).splitlines()[2:]
    marks = re.compile(r"yes|no\b|refused|judged|crash|too slow|memory|output|nothing")
    cells = [cell.strip() for line in lines for cell in line.strip("|").split(" | ")[1:] if marks.search(cell)]
    links = [re.fullmatch(rf"\[.+\]\({PAGE}#(.+)\)", cell) for cell in cells]
    assert [cell for cell, found in zip(cells, links, strict=True) if found is None or found[1] not in anchors] == []
    assert len(cells) == len({link(report, row.case.format) for report in FOUND for row in report.rows})
    variables = {engine.name: engine.install.variable for engine in manifest()}
    commands = [again(report, row, variables[report.engine]) for report in FOUND for row in report.rows]
    assert [command for command in commands if f"Again: `{command}`." not in page] == []
    assert page.count("\n- ") == len(ROWS)


def test_a_row_without_a_cause_and_a_cell_without_its_heading_are_seen() -> None:
    row = Row(case=Case(format="hf"), status="crashes", why="x", seconds=1, mib=1, exit_code=3, command="it")
    assert cause_of(one(row), row, causes()) is None
    assert anchor("it 1: hf") not in map(anchor, re.findall(r"^### (.+)$", cells_page([]), re.MULTILINE))


def one(row: Row) -> EngineReport:
    return EngineReport(engine="it", version="1", languages=["C"], source="x", date="d", machine={}, rows=[row])


def test_words_of_an_engine_cannot_break_the_page() -> None:
    row = Row(
        case=Case(format="hf"), status="crashes", why="a|b\n# <script>`x`", seconds=1, mib=1, exit_code=3, command="it"
    )
    shown = cells_page([one(row)])
    assert "a\\|b # &lt;script>'x'" in shown
    assert "<script>" not in shown


def test_the_tables_say_what_a_report_says() -> None:
    case = Case(format="tq2_0", silu=True, policy="kv-f16")
    facts = {"seconds": 1.0, "mib": 1.0, "exit_code": 0, "command": "it"}
    rows = [
        Row(case=case, status="conforms", coverage="all", **facts),
        Row(case=Case(format="i2_s"), status="does not conform", faults=["silu"], evidence="off", **facts),
    ]
    given = {"engine": "@a/b", "version": "1", "languages": ["C"], "source": "x", "date": "d", "machine": {}}
    there, missing = EngineReport(**given, rows=rows), EngineReport(**given, unavailable="too large")
    cell = "[yes](scoreboard-cells.md#pytritium-1-i2_s)"
    assert f"| [pytritium 1](data/scoreboard/pytritium-1.json) | {cell} |  | - |" in matrix(
        [
            EngineReport(
                **given | {"engine": "pytritium"}, rows=[Row(case=Case(format="i2_s"), status="conforms", **facts)]
            ),
            EngineReport(
                **given,
                rows=[Row(case=Case(format=name), status="conforms", **facts) for name in ("tl1", "tq1_0")],
            ),
        ]
    )
    shown = matrix([there, missing])
    assert "| [@a/b 1](data/scoreboard/a-b-1.json) | [**no**](scoreboard-cells.md#ab-1-i2_s) | [yes (`silu`" in shown
    assert "[yes (`silu`, `kv-f16`)](scoreboard-cells.md#ab-1-tq2_0) |" in shown
    page = cells_page([there, missing])
    assert "Named: [`silu`](faults/silu.md). The judge says: off." in page
    assert '`make scoreboard ENGINE="@a/b --version 1 --format tq2_0 --model seeded"`' in page
    assert "too large" in absent([there, missing], [])
    assert "too large" not in matrix([missing])
    assert gaps([]) == ""
    assert set(TABLES) >= {"scoreboard-matrix", "scoreboard-exams"}
