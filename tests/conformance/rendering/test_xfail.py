"""xfail files: what they name, how they are read, and that nothing they list ever looks like a pass."""

from pathlib import Path

import pytest

from tritgold.errors import ConfigError
from tritgold_conformance.results.cases import cases, failures, matches
from tritgold_conformance.results.report import Expected, Report
from tritgold_conformance.results.xfail import read_xfail, stale_in_all, with_xfail

ALL = (
    "operations:layers.*.ffn_act",
    "edge_cases:layers.0.ffn_act [signs and 300]",
    "trace:layers.0.ffn_act",
    "logits",
    "continued",
    "steps",
)


def entries(*patterns: str) -> list[Expected]:
    return [
        Expected(pattern=p, reason="why", line=n, failing=0, passing=0, not_assessed=0)
        for n, p in enumerate(patterns, 1)
    ]


def test_an_entry_is_a_level_or_a_case_with_stars() -> None:
    assert matches("trace", "trace:layers.0.q.out")
    assert not matches("trace", "traces")
    assert matches("edge_cases:layers.0.q.out [extreme sums]", "edge_cases:layers.0.q.out [extreme sums]")
    assert not matches("edge_cases:layers.0.q.out [*", "operations:layers.0.q.out")
    assert not matches("operations:a*a", "operations:a"), "a star does not share its letters"
    assert not matches("operations:a*b*b", "operations:ab")
    assert matches("text:" + "*a" * 5000 + "x", "text:" + "a" * 5000 + "x"), "and in no more time than it takes to read"


def test_a_file_is_read_with_lines_and_reasons(tmp_path: Path) -> None:
    path = tmp_path / "xfail.txt"
    path.write_text("# all of it\n\noperations:layers.*.ffn_act   # issue 12: SiLU\r\nlogits\n")
    found = read_xfail(path)
    assert [(e.pattern, e.reason, e.line) for e in found] == [
        ("operations:layers.*.ffn_act", "issue 12: SiLU", 3),
        ("logits", "", 4),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("logit", "line 1: is not an entry: found \"'logit'\""),
        ("\nlogits:", "line 2: is not an entry"),
        ("q.out", "expected LEVEL or LEVEL:NAME, LEVEL one of packed_bytes, operations, edge_cases"),
        ("logits\nlogits # again", "line 2: logits is already on line 1"),
    ],
)
def test_what_is_no_entry_is_refused_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "xfail.txt"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"xfail\.txt: line") as caught:
        read_xfail(path)
    assert says.replace('"', "") in str(caught.value)
    assert caught.value.kind == "xfail-file"


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "xfail.txt"
    path.write_bytes(b"logits\xff\n")
    with pytest.raises(ConfigError, match="is not text"):
        read_xfail(path)


def test_all_failures_listed_are_known_and_never_a_pass(reports: dict[str, Report]) -> None:
    known = with_xfail(reports["failing"], entries(*ALL), "xfail.txt", strict=True)
    assert known.verdict == "known failures only"
    assert known.exit_code == 0
    given = {"operations", "edge_cases", "trace", "logits", "continued", "steps"}
    assert {name for name, level in known.levels.items() if level.status == "known failures"} == given
    assert {level.status for name, level in known.levels.items() if name not in given} == {"not assessed"}
    assert known.levels["operations"].known == 2
    assert not failures(known)
    assert not any(case.status == "passed" and case.name == "layers.1.ffn_act" for case in cases(known))


@pytest.mark.parametrize("left_out", ALL)
def test_one_failure_that_is_not_listed_is_exit_code_1(reports: dict[str, Report], left_out: str) -> None:
    report = with_xfail(reports["failing"], entries(*(e for e in ALL if e != left_out)), "xfail.txt")
    assert report.exit_code == 1
    assert report.verdict == "does not conform"
    assert {case.level for case in failures(report)} == {left_out.partition(":")[0]}


def test_entries_that_pass_or_name_nothing_are_stale(reports: dict[str, Report]) -> None:
    listed = entries(
        "operations:layers.0.q.out", "operations:layers.9.q.out", "next_tokens", "operations:layers.*.ffn_*"
    )
    report = with_xfail(reports["failing"], listed, "xfail.txt")
    assert report.xfail is not None
    assert [e.state for e in report.xfail.entries] == ["passes", "names nothing", "not assessed", "fails"]
    assert [e.line for e in report.xfail.stale] == [1, 2]


@pytest.mark.parametrize(("strict", "code"), [(False, 0), (True, 1)])
def test_a_stale_entry_is_an_error_where_it_is_strict(reports: dict[str, Report], strict: bool, code: int) -> None:
    report = with_xfail(reports["passing"], entries("logits"), "xfail.txt", strict)
    assert report.verdict == "conforms"
    assert report.exit_code == code


def test_nothing_checked_stays_nothing(reports: dict[str, Report]) -> None:
    assert with_xfail(reports["nothing"], entries("logits"), "xfail.txt").exit_code == 5


def test_over_several_inputs_an_entry_is_stale_only_where_it_fails_on_none(reports: dict[str, Report]) -> None:
    listed = entries("operations:layers.0.ffn_act", "operations:layers.0.q.out")
    both = [with_xfail(reports[kind], listed, "xfail.txt") for kind in ("passing", "failing")]
    assert [e.line for e in stale_in_all(both)] == [2]
    assert stale_in_all([]) == []
