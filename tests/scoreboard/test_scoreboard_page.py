"""The files of all cases can be made, and the reports explain every verdict.

That docs/scoreboard.md has the tables of these reports, byte for byte, is a test of tests/test_measured_pages.py.
"""

import re
from pathlib import Path

import pytest
from scoreboard.manifest import Case, manifest
from scoreboard.model_files import FORMATS, model_of
from scoreboard.results import EngineReport, Row
from scoreboard.tables import TABLES, absent, gaps, matrix, reports, verdicts

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


def test_no_report_names_a_folder_of_the_machine() -> None:
    for path in (ROOT / "docs/data/scoreboard").glob("*.json"):
        text = path.read_text(encoding="utf-8")
        assert [word for word in ("/work", "/tmp", "/home", "/root", str(ROOT)) if word in text] == [], path.name


def test_words_of_an_engine_cannot_break_the_page() -> None:
    row = Row(
        case=Case(format="hf"), status="crashes", why="a|b\n# <script>`x`", seconds=1, mib=1, exit_code=3, command="it"
    )
    report = EngineReport(engine="it", version="1", languages=["C"], source="x", date="d", machine={}, rows=[row])
    shown = verdicts([report])
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
    assert "| [pytritium 1](data/scoreboard/pytritium-1.json) | yes |  | - |" in matrix(
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
    assert "| [@a/b 1](data/scoreboard/a-b-1.json) | **no** | yes (`silu`, `kv-f16`) |" in matrix([there, missing])
    assert "[`silu`](faults/silu.md). off" in verdicts([there])
    assert "too large" in absent([there, missing], [])
    assert "too large" not in matrix([missing])
    assert gaps([]) == ""
    assert set(TABLES) >= {"scoreboard-matrix", "scoreboard-verdicts"}
