"""The guard around a class: what ends, crashes or outlives its process is exit code 3, and leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from left_behind import sleeping

from tritgold.golden.seeded import Shape, write_seeded_model
from tritgold_conformance.contract import guard
from tritgold_conformance.contract.process_state import Settings
from tritgold_conformance.results.report import read_report

ROOT = Path(__file__).parents[2]
HELPERS = Path(__file__).with_name("helpers")
NUMBER = str(20_000_000 + os.getpid())
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here, and no guard")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    write_seeded_model(folder, Shape(seed=9, hidden=64, inter=96, layers=1, heads=4, kv_heads=2, context=32))
    return folder


def started(engine: str, model: Path, scratch: Path, *more: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "tritgold_conformance", "check", "--engine", f"process_engines:{engine}"]
    words += ["--model", str(model), "--tokens", "3", "--no-speed", *more]
    path = os.pathsep.join([str(HELPERS), *(str(ROOT / part) for part in ("reference", "conformance"))])
    environment = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(scratch), "TRITGOLD_TEST_NUMBER": NUMBER}
    return subprocess.Popen(words, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def checked(engine: str, model: Path, scratch: Path, *more: str) -> tuple[int, dict[str, Any]]:
    """Exit code, and the one JSON object on standard output; nothing is left in TMPDIR, or running.

    What is forked and left holds the pipes, and they never end.
    """
    with started(engine, model, scratch, "--json", *more) as process:
        out, _ = process.communicate(timeout=60)
    assert list(scratch.iterdir()) == []
    assert sleeping(NUMBER) == []
    return process.returncode, json.loads(out)


@pytest.mark.parametrize(
    ("engine", "kind", "says"),
    [
        ("Leaves", "engine-crash", "it ended the judge's process with exit code 0"),
        ("Segfaults", "engine-crash", "it ended the judge's process with signal SIGSEGV"),
        ("HangsInNativeCode", "engine-timeout", "prefill did not come back and could not be interrupted"),
        ("ForksAndHangs", "engine-timeout", "prefill did not come back and could not be interrupted"),
    ],
)
def test_an_engine_that_ends_the_process_cannot_be_judged(
    model: Path, tmp_path: Path, engine: str, kind: str, says: str
) -> None:
    code, error = checked(engine, model, tmp_path, "--timeout", "1")
    assert (code, error["kind"]) == (3, kind)
    assert says in error["message"]


def test_an_engine_that_ends_the_process_has_a_report_that_says_so(model: Path, tmp_path: Path) -> None:
    """Written by the process that is left; ``os._exit(2)`` is no wrong usage."""
    (tmp_path / "scratch").mkdir()
    saved = tmp_path / "r.json"
    saved.write_text("conforms")
    code, error = checked("LeavesAsUsage", model, tmp_path / "scratch", "--report", str(saved))
    assert (code, error["kind"]) == (3, "engine-crash")
    report = read_report(saved)
    assert report.verdict == "could not be judged"
    assert report.problem is not None
    assert "it ended the judge's process with exit code 2" in report.problem.message


@pytest.mark.parametrize(
    ("engine", "code"),
    [("LeavesAProcess", 0), ("LeavesAThread", 0), ("ForksWell", 0), ("ForksAndLeaves", 0), ("LeavesAtTheEnd", 1)],
)
def test_a_verdict_stands_whatever_the_engine_leaves_behind(
    model: Path, tmp_path: Path, engine: str, code: int
) -> None:
    found, report = checked(engine, model, tmp_path)
    assert found == code
    assert report["verdict"] == ("does not conform" if code else "conforms")


def test_diagnose_has_it_too(model: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tritgold_conformance", "diagnose", "--engine", "process_engines:Leaves"]
    path = os.pathsep.join([str(HELPERS), *(str(ROOT / part) for part in ("reference", "conformance"))])
    done = subprocess.run(
        [*words, "--model", str(model), "--tokens", "3"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3
    assert "it ended the judge's process with exit code 0" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("to_all", [False, True])
def test_ctrl_c_ends_both(model: Path, tmp_path: Path, to_all: bool) -> None:
    """From ``kill``, to the parent alone; from a terminal, to its process group."""
    with started("HangsInNativeCode", model, tmp_path) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "hangs\n"
        children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=False)
        process.send_signal(signal.SIGINT)
        if to_all:
            os.kill(int(children.stdout), signal.SIGINT)
        assert process.wait(20) == 130
    assert list(tmp_path.iterdir()) == []


def test_usage_is_usage(model: Path, tmp_path: Path) -> None:
    with started("Right", model, tmp_path, "--mode", "llama-cpp-q8_k", "--only", "layers.0.q") as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "--only NAME has bounds for" in said


def test_without_a_guard_nothing_is_told() -> None:
    guard.tell("left 0")  # no pipe: no error


def test_what_an_engine_changes_for_its_process_is_its_own(model: Path, tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    words = [sys.executable, "-m", "tritgold_conformance", "check", "--engine", "process_engines:ChangesTheProcess"]
    path = os.pathsep.join([str(HELPERS), *(str(ROOT / part) for part in ("reference", "conformance"))])
    done = subprocess.run(
        [*words, "--model", str(model), "--tokens", "3", "--no-speed", "--report", "here.md"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(tmp_path / "scratch")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "here.md").is_file()


def test_settings_are_swapped_around_each_call() -> None:
    before, settings = (np.geterr(), list(warnings.filters), Path.cwd()), Settings()

    def changed() -> None:
        with settings.theirs():
            np.seterr(over="raise")
            warnings.simplefilter("error")
            os.chdir("/")
            raise ValueError("its own")

    for _ in range(2):
        with pytest.raises(ValueError, match="its own"):
            changed()
        assert (np.geterr(), list(warnings.filters), Path.cwd()) == before
    with settings.theirs(), settings.theirs():
        assert np.geterr()["over"] == "raise"
        assert Path.cwd() == Path("/")
    assert Path.cwd() == before[2]
