"""``tritgold check --report --xfail`` and ``tritgold report``, as they are typed."""

import errno
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import jsonschema
import pytest
from click.testing import Result
from tritgold_command import call

from tritgold_conformance.rendering.writers import FORMATS
from tritgold_conformance.results.report import Report, json_schema, read_report, to_json

ENGINE = "faulty_engines:Faulty"  # scale divided


def check(*arguments: object) -> Result:
    return call("check", "--model", "seeded", "--tokens", 3, "--engine", *arguments)


def test_a_failing_engine_in_every_format(tmp_path: Path) -> None:
    files = [tmp_path / f"r{suffix}" for suffix in (".html", ".md", ".xml", ".json", ".svg")]
    done = check(ENGINE, *(word for file in files for word in ("--report", file)))
    assert done.exit_code == 1, done.output
    assert "Diagnosis (tritgold diagnose says more)" in done.stdout
    for file in files:
        assert file.stat().st_size > 400
    assert json.loads(files[3].read_text())["diagnosis"]["faults"][0]["fault"] in files[0].read_text()
    again = [tmp_path / "again.html", tmp_path / "again.SVG"]
    assert call("report", files[3], *again).exit_code == 0
    assert again[0].read_bytes() == files[0].read_bytes()
    assert again[1].read_bytes() == files[4].read_bytes()
    shown = call("report", files[3])
    assert shown.exit_code == 0
    assert shown.stdout == done.stdout, "alone it prints what check printed"


@pytest.mark.parametrize("names", [["r.pdf"], ["r"], ["a.md", "a.md"], ["no/such/r.md"]])
def test_files_that_cannot_be_are_refused_before_any_compute(tmp_path: Path, names: list[str]) -> None:
    words = [word for name in names for word in ("--report", tmp_path / name)]
    done = call("check", "--engine", "no_such:Engine", "--model", "no such model", *words)
    assert done.exit_code == 2, "the engine and the model were not asked for"
    assert names[0].rpartition("/")[0] in done.stderr


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc here")
def test_a_folder_in_which_nothing_can_be_made_is_refused_before_any_compute() -> None:
    done = call("check", "--engine", "no_such:Engine", "--model", "no such model", "--report", "/proc/x.json")
    assert done.exit_code == 2
    assert "cannot be written to" in done.stderr


@pytest.mark.parametrize("as_json", [True, False])
def test_a_report_that_cannot_be_written_takes_no_verdict_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    def full(_: Report) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setitem(FORMATS, ".md", full)
    files = ["--report", tmp_path / "r.md", "--report", tmp_path / "r.xml"]
    done = check("reference", "--no-speed", *files, *(["--json"] if as_json else []))
    assert done.exit_code == 3
    assert json.loads(done.stdout)["verdict"] == "conforms" if as_json else "reference conforms at " in done.stdout
    assert "no report: " in done.stderr
    assert "No space left on device" in done.stderr
    assert 'value="conforms"' in (tmp_path / "r.xml").read_text()


@pytest.mark.parametrize("words", [["--report", "r.md"], ["--xfail", "x"], []])
def test_what_belongs_to_a_whole_judgement_is_not_of_one_operation(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "x").write_text("logits")
    asked = [tmp_path / w if w in ("x", "r.md") else w for w in words] or ["--xfail-strict"]
    assert check(ENGINE, *(["--only", "logits"] if words else []), *asked).exit_code == 2


def test_what_could_not_be_judged_has_a_report_of_that_and_none_of_an_earlier_run(tmp_path: Path) -> None:
    files = [tmp_path / f"r{suffix}" for suffix in (".html", ".md", ".xml", ".json", ".svg")]
    for file in files:
        file.write_text("conforms")
    done = check("faulty_engines:Crashing", *(word for file in files for word in ("--report", file)))
    assert done.exit_code == 3
    html, markdown, junit, data, badge = (file.read_text() for file in files)
    jsonschema.validate(json.loads(data), json_schema())
    report = read_report(files[3])
    assert (report.verdict, report.exit_code, {level.status for level in report.levels.values()}) == (
        "could not be judged", 3, {"not assessed"},
    )  # fmt: skip
    assert report.problem is not None
    assert report.problem.kind == "engine-failed"
    suites = ET.fromstring(junit)
    assert (suites.get("errors"), suites.get("failures")) == ("1", "0")
    assert len(suites.findall(".//skipped")) == int(suites.get("tests", "0")) - 1
    assert "could not judge" in badge
    for text in (html, markdown, junit, data):
        assert "kernel panic" in text
        assert "check --engine faulty_engines:Crashing --model seeded --one-text --tokens 3 --seed 1" in text
    for text in (html, markdown, junit, data, badge):
        assert not re.search("conforms|passed", text)
    shown = call("report", files[3])
    assert shown.exit_code == 0
    assert "could not be judged" in shown.stdout
    assert "kernel panic" in shown.stdout


def test_a_model_that_cannot_be_read_and_a_report_that_cannot_be_written_are_no_pass(tmp_path: Path) -> None:
    whole, missing = tmp_path / "r.json", tmp_path / "none"
    done = call("check", "--model", missing, "--engine", "reference", "--ids", "1,2", "--report", whole)
    assert done.exit_code == 3
    report = read_report(whole)
    assert (report.verdict, report.tokens, report.model) == ("could not be judged", [1, 2], str(missing))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(FORMATS, ".md", lambda _: "\ud800")  # no UTF-8: fails while it is written
        done = check("reference", "--no-speed", "--report", whole, "--report", tmp_path / "r.md")
    assert done.exit_code == 3  # the verdict stands in the report that could be written
    assert "no report" in done.stderr
    assert read_report(whole).verdict == "conforms"
    assert [file.name for file in tmp_path.iterdir()] == ["r.json"]


def test_a_report_does_not_replace_the_xfail_file(tmp_path: Path) -> None:
    known = tmp_path / "known.md"
    known.write_text("logits\n")
    done = call("check", "--engine", "no_such:Engine", "--xfail", known, "--report", known)
    assert (done.exit_code, known.read_text()) == (2, "logits\n")


def test_known_failures_are_exit_code_0_and_stale_ones_1_where_strict(tmp_path: Path) -> None:
    file = tmp_path / "xfail.txt"
    file.write_text("operations # all of it\nedge_cases\ntrace\nlogits\ncontinued\nsteps\n")
    done = check(ENGINE, "--xfail", file, "--xfail-strict", "--report", tmp_path / "r.md")
    assert done.exit_code == 0, done.output
    assert "fails only where its xfail file lists it" in done.stdout
    assert "conforms" not in done.stdout
    assert "Diagnosis" not in done.stdout
    assert "known failures only" in (tmp_path / "r.md").read_text()
    done = check("reference", "--no-speed", "--xfail", file)
    assert done.exit_code == 0
    assert "stale, line 1: operations passes" in done.stdout
    assert check("reference", "--no-speed", "--xfail", file, "--xfail-strict").exit_code == 1


def test_an_xfail_file_that_is_none_could_not_be_judged_by(tmp_path: Path) -> None:
    file = tmp_path / "xfail.txt"
    file.write_text("logit\n")
    done = check(ENGINE, "--xfail", file)
    assert done.exit_code == 3
    assert "line 1: is not an entry" in done.stderr


def test_report_says_what_it_wrote_and_refuses_what_is_no_report(reports: dict[str, Report], tmp_path: Path) -> None:
    saved = tmp_path / "r.json"
    saved.write_bytes(to_json(reports["half"]))
    done = call("report", saved, tmp_path / "a.svg", "--json")
    assert json.loads(done.stdout)["written"] == [str(tmp_path / "a.svg")]
    saved.write_text("{}")
    done = call("report", saved, tmp_path / "b.svg")
    assert done.exit_code == 3
    assert "no report of this version" in done.stderr
    assert not (tmp_path / "b.svg").exists()
