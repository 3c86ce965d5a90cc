"""A report against an earlier one."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from tritgold.errors import FormatError
from tritgold_conformance.bench.comparison import compared, differences, read_report
from tritgold_conformance.bench.results import Report, Result, to_json
from tritgold_conformance.bench.table import render_comparison
from tritgold_conformance.bench.timing import Timing, median_interval
from tritgold_conformance.cli import main

DATA = Path(__file__).parents[3] / "docs" / "data"


def report(**seconds: list[float]) -> Report:
    rows = [
        Result(row=row, engine="xla", threads=1, case={"tokens": 1}, status="measured", timing=Timing.of(times))
        for row, times in seconds.items()
    ]
    return Report(
        date="", shape="tiny", model="", config={}, command="", engines=[], bandwidth=[], results=rows, profiles=[],
        machine={"processor": "some", "cores": 2, "packages": {"jax": "0.12"}},
    )  # fmt: skip


def test_rows_of_both_are_compared_by_their_medians() -> None:
    old = report(decode=[2.0] * 7, prefill=[1.0, 2.0, 3.0], kv=[1.0])
    new = report(decode=[1.0] * 7, prefill=[1.5, 2.5, 3.5], gemv=[1.0])
    decode, prefill = compared(old, new)
    assert (decode.row, decode.ratio, decode.low, decode.high, decode.said) == ("decode", 2.0, 2.0, 2.0, "faster")
    assert prefill.ratio == pytest.approx(0.8)
    assert (prefill.low, prefill.high) == pytest.approx((1 / 3.5, 2.0))
    assert prefill.said == "no difference shown"
    assert compared(new, old)[0].said == "slower"


def test_the_interval_of_a_median() -> None:
    assert median_interval([1.0]) == (1.0, 1.0)
    assert median_interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
    assert median_interval([float(n) for n in range(1, 10)]) == (2.0, 8.0)  # 1 - 2 (1 + 9) / 512 = 0.96


def test_other_machines_are_said() -> None:
    old, new = report(), report()
    new.machine |= {"processor": "other"}
    assert differences(old, new) == ["processor: some before, other now"]
    assert differences(old, old) == []
    console = Console(width=110, highlight=False, no_color=True)
    with console.capture() as capture:
        render_comparison([], differences(old, new), console)
        render_comparison(compared(report(decode=[2.0]), report(decode=[1.0])), [], console)
    text = capture.get()
    assert "not the same: processor" in text
    assert "no row in common" in text
    assert "2.00 [2.00, 2.00]" in text


def test_earlier_reports_of_docs_can_be_read() -> None:
    for path in sorted(DATA.glob("bench-*.json")):
        one = read_report(path)
        assert all(row.ratio == pytest.approx(1) for row in compared(one, one))


def test_another_file_is_refused(tmp_path: Path) -> None:
    for text in ("{}", "no JSON", json.dumps(json.loads(to_json(report())) | {"schema": "tritgold.bench/1"})):
        (tmp_path / "old.json").write_text(text)
        with pytest.raises(FormatError, match="report"):
            read_report(tmp_path / "old.json")


def test_the_exit_code_is_of_the_comparison_where_that_is_asked_for(tmp_path: Path) -> None:
    options = ["bench", "--engine", "reference", "--shape", "8x32", "--rows", "gemv", "--runs", "1"]
    first = CliRunner().invoke(main, [*options, "--json", str(tmp_path / "old.json")])
    assert first.exit_code == 0, first.stderr
    old = read_report(tmp_path / "old.json")
    for result in old.results:
        result.timing = Timing.of([1e-12])  # no machine is as fast
    (tmp_path / "old.json").write_bytes(to_json(old))
    options += ["--compare", str(tmp_path / "old.json")]
    shown = CliRunner().invoke(main, options)
    assert (shown.exit_code, "slower" in shown.stdout) == (0, True), shown.stderr
    assert CliRunner().invoke(main, [*options, "--fail-below", "0.9"]).exit_code == 1
    assert "--compare" in CliRunner().invoke(main, ["bench", "--fail-below", "0.9"]).stderr
