"""The suite itself, run as its users run it: on good engines, on bad ones, and on one that gives nothing."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tritgold.golden.seeded import Shape, write_seeded_model

ROOT = Path(__file__).parents[3]
HELPERS = ROOT / "tests" / "conformance" / "helpers"
PATH = os.pathsep.join([str(HELPERS), *(str(ROOT / part) for part in ("reference", "accelerated", "conformance"))])

LADDER = "lengths, long_state, vocabulary, pieces, sessions"
DEPTH = ("--tritgold-depth", "one-text")  # but where more is said


def run_suite(engine: str, tmp_path: Path, *arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """pytest --pyargs tritgold_conformance.suite, in an empty folder, as from an installed wheel."""
    model = tmp_path / "model"
    if not model.is_dir():
        model.mkdir()
        write_seeded_model(model, Shape(hidden=64, inter=96, layers=2, heads=4, kv_heads=2, context=160))
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
        [*command, "--tritgold-model", str(model), "--tritgold-engine", engine, *DEPTH, *arguments],
        cwd=tmp_path,
        env={"PATH": "", "PYTHONPATH": PATH, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


def test_a_conforming_engine_passes_with_counts(tmp_path: Path) -> None:
    done = run_suite("reference", tmp_path)
    assert done.returncode == 0, done.stdout
    counts = "40 tokens: conforms; compared 276, failed 0, not assessed 0 outputs"
    assert f"{counts}, levels: packed_bytes, statistics, {LADDER}, timed, next_tokens" in done.stdout


def test_the_ladder_is_asked_with_forty_tokens(tmp_path: Path) -> None:
    """Each level of it a test, and the coverage in the summary."""
    model = tmp_path / "small"
    model.mkdir()
    write_seeded_model(model, Shape(hidden=64, inter=96, layers=1, heads=4, kv_heads=2, context=66))
    words = ("--tritgold-depth", "quick", "--tritgold-model", str(model), "-k", "ladder and 40-tokens")
    done = run_suite("faulty_engines:LogitsOnly", tmp_path, *words)
    assert done.returncode == 0, done.stdout
    assert "5 passed" in done.stdout or "4 passed, 1 skipped" in done.stdout
    assert "covered: ids 259 of 259 read, 0 in steps, 259 scored; positions 66 of 66; prompts of 1-33," in done.stdout


def test_a_faulty_engine_fails_with_a_command_to_paste(tmp_path: Path) -> None:
    done = run_suite("faulty_engines:Faulty", tmp_path)
    assert done.returncode == 1
    assert "layers.0.q.out" in done.stdout
    assert "reproduce: tritgold check --engine faulty_engines:Faulty" in done.stdout


def test_levels_an_engine_lacks_are_skipped_with_the_reason(tmp_path: Path) -> None:
    done = run_suite("faulty_engines:LogitsOnly", tmp_path)
    assert done.returncode == 0, done.stdout
    assert "not assessed: the engine has no operation()" in done.stdout
    assert f"packed_bytes, operations, edge_cases, statistics, trace, steps, {LADDER}, timed" in done.stdout


def test_text_fails_where_another_token_is_written(tmp_path: Path) -> None:
    done = run_suite("faulty_engines:WritesOtherTokens", tmp_path, "-k", "test_next_tokens_agree and not 150-tokens")
    assert done.returncode == 1
    assert "3 failed" in done.stdout
    assert "writes token" in done.stdout


@pytest.mark.parametrize(
    ("engine", "says"),
    [
        ("faulty_engines:Crashing", "prefill failed: RuntimeError: kernel panic"),
        ("no_such:Engine", "engine no_such:Engine: making it failed: ModuleNotFoundError"),
        ("process_engines:Leaves", "it ended its process with exit code 0"),
        ("process_engines:LeavesAsUsage", "with exit code 2"),
        ("process_engines:Segfaults", "with signal SIGSEGV"),
        ("process_engines:HangsInNativeCode", "prefill took longer than 5 s"),
    ],
)
def test_an_engine_that_cannot_be_judged_is_no_pass(engine: str, says: str, tmp_path: Path) -> None:
    """Whatever it does to its process: pytest goes on to its end, and every test says so."""
    limit = "5" if "Hangs" in engine else "60"  # a busy machine takes its time to start what then fails
    done = run_suite(engine, tmp_path, "--tritgold-timeout", limit, "--junitxml", "tests.xml")
    assert done.returncode == 1, done.stdout + done.stderr
    for count in (1, 2, 40, 150):
        assert f"{count} tokens: could not be judged: " in done.stdout
    assert says in done.stdout
    suite = ET.parse(tmp_path / "tests.xml").getroot()[0]
    assert suite.get("errors") == suite.get("tests") != "0"
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith("tritgold")] == []


def test_an_engine_that_crashes_on_a_long_input_alone_is_judged_on_the_others(tmp_path: Path) -> None:
    done = run_suite("process_engines:LeavesFrom40", tmp_path, "-k", "test_logits_agree and logits")
    assert done.returncode == 1
    assert "2 tokens: conforms" in done.stdout
    assert "40 tokens: could not be judged" in done.stdout
    assert "150 tokens: could not be judged" in done.stdout


def test_known_failures_are_xfailed_and_stale_entries_told(tmp_path: Path) -> None:
    listed = "trace # issue 1\nlogits\nsteps\ncontinued\nedge_cases\noperations:layers.0.q.acc # never wrong\n"
    (tmp_path / "xfail.txt").write_text(listed)
    chosen = "40-tokens and (trace or logits or edge)"
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
    done = run_suite("faulty_engines:Faulty", tmp_path, "-k", "40-tokens and edge", "--tritgold-xfail", "xfail.txt")
    assert done.returncode == 1
    assert "layers.0.q.out [extreme sums]" in done.stdout
