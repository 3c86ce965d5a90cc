"""The suite itself, run as its users run it: on good engines, on bad ones, and on one that gives nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

HELPERS = Path(__file__).with_name("helpers")


def run_suite(engine: str, tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """pytest --pyargs tritgold_conformance.suite, in an empty folder, as from an installed wheel."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--pyargs",
        "tritgold_conformance.suite",
        "-q",
        "-rs",
        "-p",
        "no:cacheprovider",
    ]
    return subprocess.run(
        [*command, "--tritgold-model", "seeded", "--tritgold-engine", engine, *arguments],
        cwd=tmp_path,
        env={"PATH": "", "PYTHONPATH": str(HELPERS)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_conforming_engine_passes_with_counts(tmp_path: Path) -> None:
    done = run_suite("reference", tmp_path)
    assert done.returncode == 0, done.stdout
    assert (
        "40 tokens: conforms; compared 408, failed 0, not assessed 0 outputs, levels: files, statistics, text"
        in done.stdout
    )


def test_a_faulty_engine_fails_with_a_command_to_paste(tmp_path: Path) -> None:
    done = run_suite("faulty_engines:Faulty", tmp_path)
    assert done.returncode == 1
    assert "layers.0.q.out" in done.stdout
    assert "reproduce: tritgold check --engine faulty_engines:Faulty" in done.stdout


def test_levels_an_engine_lacks_are_skipped_with_the_reason(tmp_path: Path) -> None:
    done = run_suite("faulty_engines:LogitsOnly", tmp_path)
    assert done.returncode == 0, done.stdout
    assert "not assessed: the engine has no operation()" in done.stdout
    assert "levels: files, operations, vectors, statistics, trace, steps, text" in done.stdout


def test_text_fails_where_another_token_is_written(tmp_path: Path) -> None:
    done = run_suite("faulty_engines:WritesOtherTokens", tmp_path, "-k", "test_text_agrees and not 150-tokens")
    assert done.returncode == 1
    assert "3 failed" in done.stdout
    assert "writes token" in done.stdout


@pytest.mark.parametrize("engine", ["faulty_engines:Crashing", "no_such:Engine"])
def test_an_engine_that_cannot_be_judged_is_no_pass(engine: str, tmp_path: Path) -> None:
    assert run_suite(engine, tmp_path).returncode == 1


def test_known_failures_are_xfailed_and_stale_entries_told(tmp_path: Path) -> None:
    listed = "trace # issue 1\nlogits\nsteps\ncontinued\nvectors\noperations:layers.0.q.acc # never wrong\n"
    (tmp_path / "xfail.txt").write_text(listed)
    chosen = "40-tokens and (trace or logits or telling)"
    done = run_suite("faulty_engines:Faulty", tmp_path, "-k", chosen, "-rx", "--tritgold-xfail", "xfail.txt")
    assert done.returncode == 0, done.stdout
    assert "5 xfailed" in done.stdout
    assert "known failures, trace:layers.0.q.out: issue 1" in done.stdout
    assert "stale xfail entry, line 6: operations:layers.0.q.acc passes" in done.stdout
    strict = ("--tritgold-xfail", "xfail.txt", "--tritgold-xfail-strict")
    assert run_suite("faulty_engines:Faulty", tmp_path, "-k", chosen, *strict).returncode == 1


def test_known_failures_of_levels_without_names_are_xfailed_too(tmp_path: Path) -> None:
    (tmp_path / "xfail.txt").write_text("statistics # of another tensor\n")
    chosen = ("-k", "statistics and 40-tokens", "-rx")
    done = run_suite("faulty_engines:WrongStatistics", tmp_path, *chosen, "--tritgold-xfail", "xfail.txt")
    assert (done.returncode, "1 xfailed" in done.stdout) == (0, True), done.stdout
    assert run_suite("faulty_engines:WrongStatistics", tmp_path, *chosen).returncode == 1


def test_a_failure_that_is_not_listed_fails(tmp_path: Path) -> None:
    (tmp_path / "xfail.txt").write_text("trace\n")
    done = run_suite("faulty_engines:Faulty", tmp_path, "-k", "40-tokens and telling", "--tritgold-xfail", "xfail.txt")
    assert done.returncode == 1
    assert "layers.0.q.out [extreme sums]" in done.stdout
