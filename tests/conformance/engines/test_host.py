"""Python classes in a process of their own: what ends, crashes or outlives it is exit code 3, and leaves nothing."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asked_once import judge
from left_behind import sleeping

from tritgold.checkpoint import open_checkpoint
from tritgold.errors import EngineError
from tritgold.golden.seeded import Shape, write_seeded_model
from tritgold_conformance.contract.clock import measure_speed
from tritgold_conformance.contract.session import Session
from tritgold_conformance.engines import command, process
from tritgold_conformance.engines.load import load_engine
from tritgold_conformance.golden.run import GoldenRun
from tritgold_conformance.questions.request_batch import Behaviour, RequestBatch
from tritgold_conformance.results.report import read_report

ROOT = Path(__file__).parents[3]
HELPERS = ROOT / "tests" / "conformance" / "helpers"
NUMBER = str(20_000_000 + os.getpid())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    write_seeded_model(folder, Shape(seed=9, hidden=64, inter=96, layers=1, heads=4, kv_heads=2, context=32))
    return folder


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "scratch"
    folder.mkdir()
    yield folder
    assert list(folder.iterdir()) == []
    assert sleeping(NUMBER) == []


def started(engine: str, model: Path, scratch: Path, *more: str, verb: str = "check") -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "tritgold_conformance", verb, "--engine", f"process_engines:{engine}"]
    path = os.pathsep.join([str(HELPERS), *(str(ROOT / part) for part in ("reference", "conformance"))])
    environment = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(scratch), "TRITGOLD_TEST_NUMBER": NUMBER}
    words += ["--model", str(model), "--tokens", "3", *["--one-text"] * (verb in ("check", "ask")), *more]
    return subprocess.Popen(
        words, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=scratch.parent
    )


def checked(engine: str, model: Path, scratch: Path, *more: str) -> tuple[int, dict[str, Any]]:
    """Exit code, and the one JSON object on standard output."""
    with started(engine, model, scratch, "--json", "--no-speed", *more) as process:
        out, _ = process.communicate(timeout=60)
    return process.returncode, json.loads(out)


@pytest.mark.parametrize(
    ("engine", "kind", "says"),
    [
        ("Leaves", "engine-crash", "it ended its process with exit code 0 in prefill"),
        ("Segfaults", "engine-crash", "failed in prefill with signal SIGSEGV"),
        ("HangsInNativeCode", "engine-timeout", "prefill took longer than 1 s"),
        ("ForksAndHangs", "engine-timeout", "prefill took longer than 1 s"),
        ("HangsInItsAnswer", "engine-timeout", "trace took longer than 1 s"),
        ("HangsInItsVersions", "engine-timeout", "versions took longer than 1 s"),
        ("LacksARow", "engine-output", "the array of logits has another shape"),
        ("Interrupts", "engine-failed", "prefill failed: KeyboardInterrupt"),
        ("RaisesHere", "engine-failed", "prefill failed: ValueError: no such kernel"),
    ],
)
def test_what_cannot_be_judged_says_where(model: Path, scratch: Path, engine: str, kind: str, says: str) -> None:
    code, error = checked(engine, model, scratch, "--timeout", "1")
    assert (code, error["kind"]) == (3, kind)
    assert says in error["message"]


def test_a_report_that_was_asked_for_says_so(model: Path, scratch: Path) -> None:
    """``os._exit(2)`` is not a wrong usage."""
    saved = scratch.parent / "r.json"
    saved.write_text("conforms")
    code, error = checked("LeavesAsUsage", model, scratch, "--report", str(saved))
    assert (code, error["kind"]) == (3, "engine-crash")
    report = read_report(saved)
    assert report.verdict == "could not be judged"
    assert report.problem is not None
    assert "failed in prefill with exit code 2" in report.problem.message


@pytest.mark.parametrize(
    ("engine", "code"),
    [("LeavesAProcess", 0), ("LeavesAThread", 0), ("ForksWell", 0), ("ForksAndLeaves", 0), ("LeavesAtTheEnd", 1)],
)
def test_a_verdict_stands_whatever_the_engine_leaves_behind(model: Path, scratch: Path, engine: str, code: int) -> None:
    found, report = checked(engine, model, scratch)
    assert found == code
    assert report["verdict"] == ("does not conform" if code else "conforms")


@pytest.mark.parametrize(("engine", "code"), [("ChangesTheProcess", 0), ("Talks", 0)])
def test_what_it_changes_and_prints_is_its_own(model: Path, scratch: Path, engine: str, code: int) -> None:
    with started(engine, model, scratch, "--json", "--report", "here.md") as process:
        out, said = process.communicate(timeout=60)
    assert process.returncode == code, said
    assert (scratch.parent / "here.md").is_file()
    assert json.loads(out)["engine"]["speed"]["clock"] == "program"
    assert ("kernel: avx2" in said) == (engine == "Talks")


def test_its_own_traceback_is_shown(model: Path, scratch: Path) -> None:
    with started("RaisesHere", model, scratch) as process:
        _, said = process.communicate(timeout=60)
    assert 'raise ValueError("no such kernel")' in said
    assert "process_engines.py" in said


def test_diagnose_has_it_too(model: Path, scratch: Path) -> None:
    with started("Leaves", model, scratch, verb="diagnose") as process:
        out, said = process.communicate(timeout=60)
    assert (process.returncode, out) == (3, "")
    assert "it ended its process with exit code 0 in prefill" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupting_the_judge_ends_both(model: Path, scratch: Path, number: signal.Signals) -> None:
    with started("HangsInNativeCode", model, scratch) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "hangs\n"
        process.send_signal(number)
        assert process.wait(20) == 130


def test_one_run_to_open_it_and_one_for_all_that_is_asked(
    model: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []
    monkeypatch.setattr(command, "run_program", lambda *a, **k: runs.append(a) or process.run_program(*a, **k))
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    checkpoint = open_checkpoint(model)
    engine = load_engine("process_engines:RaisesInOperations", model, checkpoint, 9, 60)
    report = judge(GoldenRun.of(checkpoint, [5, 6, 7]), engine, "small", with_speed=False)
    assert len(runs) == 2
    failed = {name for name, level in report.levels.items() if level.status == "failed"}
    assert failed == {"operations", "packed_bytes", "edge_cases"}
    assert report.levels["logits"].status == "passed"
    assert (report.levels["statistics"].compared, report.levels["next_tokens"].status) == (1, "passed")
    assert "mine/own" in report.levels["statistics"].note
    assert "operation layers.0.q failed: KeyError: 'no kernel'" in report.levels["operations"].note
    assert {c.name for c in report.operations if not c.passed} >= {"layers.0.q.acc", "layers.0.q.out"}
    assert report.levels["packed_bytes"].failed == 1
    assert "unpack tl1 failed: ValueError: no such format" in report.levels["packed_bytes"].note


def test_loops_and_text_are_asked_in_the_same_run(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = open_checkpoint(model)
    engine = load_engine("process_engines:Writes", model, checkpoint, 9, 60)
    assert (engine.name, engine.mode) == ("writer", "llama-cpp-q8_k")
    assert [engine.has(method) for method in ("generate", "chat", "diffuse", "prefill")] == [True, True, False, False]
    calls = [
        ("generate", [5, 6], 7, {}),
        ("generate", [5], 7, {"stop": [1]}),
        ("encode", "aé"),
        ("stream", [97, 128120]),
    ]
    calls += [("chat", "hi"), ("diffuse", [5], 3, {})]
    asked = RequestBatch(behaviours=[Behaviour(method, given) for method, *given in calls])  # type: ignore[arg-type]
    engine.prepare(asked, checkpoint.config)
    monkeypatch.setattr(command, "run_program", None)
    assert engine.ask("generate", [5, 6], 7, {}) == [5, 6, 7]
    with pytest.raises(EngineError, match="generate failed: ValueError: no stop") as raised:
        engine.ask("generate", [5], 7, {"stop": [1]})
    assert raised.value.kind == "engine-failed"
    assert engine.ask("encode", "aé").tolist() == [97, 233]
    assert engine.ask("stream", [97, 128120]) == ["a", "👸"]
    assert (engine.ask("chat", "hi"), engine.ask("diffuse", [5], 3, {})) == (None, None)


def test_a_session_that_is_repeated_is_answered_again(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sessions alike: each is given once, for an engine may answer them differently."""
    checkpoint = open_checkpoint(model)
    engine = load_engine("process_engines:Drifts", model, checkpoint, 9, 60)
    sessions = [Session(f"again {n}", [5, 6], [2]) for n in range(3)]
    engine.prepare(RequestBatch(sessions=sessions), checkpoint.config)
    monkeypatch.setattr(command, "run_program", None)
    rows = [engine.read([session])[0] for session in sessions]
    assert len({float(found[0, 0]) for found in rows if found is not None}) == 3


def test_hanging_in_a_loop_is_named(model: Path) -> None:
    engine = load_engine("process_engines:HangsInGenerate", model, open_checkpoint(model), 9, 1)
    with pytest.raises(EngineError, match="generate took longer than 1 s") as late:
        engine.ask("generate", [5], 7, {})
    assert late.value.kind == "engine-timeout"


def test_it_is_timed_by_its_host(model: Path) -> None:
    engine = load_engine("process_engines:RaisesInOperations", model, open_checkpoint(model), 9, 60)
    speed = measure_speed(engine, [5, 6, 7])
    assert speed is not None
    assert (speed.clock, speed.tokens) == ("program", 3)
    assert speed.prefill
    assert speed.decode


def test_in_process_is_said(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "run_program", None)
    engine = load_engine("process_engines:Right", model, open_checkpoint(model), 9, in_process=True)
    assert engine.in_process
    assert type(engine.engine).__name__ == "Right"
    rows = engine.prefill([5, 6])
    assert rows is not None
    assert np.isfinite(rows).all()


def test_the_host_starts_with_little() -> None:
    """No judge, no command line, no tables: it is started for every judgement."""
    done = subprocess.run(
        [sys.executable, "-c", "import sys, tritgold_conformance.engines.host; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.split())
    assert not loaded & {"click", "rich", "tritgold_conformance.judging", "tritgold.checkpoint", "jax", "yaml"}


def test_usage_is_usage(model: Path, scratch: Path) -> None:
    with started("Right", model, scratch, "--mode", "llama-cpp-q8_k", "--only", "layers.0.q") as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "--only NAME works only with" in said


def test_the_time_limit_is_for_one_call(model: Path) -> None:
    """Five calls of 0.4 s each within a limit of 1 s."""
    checkpoint = open_checkpoint(model)
    engine = load_engine("process_engines:Slow", model, checkpoint, 9, 1)
    start = time.monotonic()
    more = RequestBatch(sessions=[Session(f"again {n}", [5, 6], [2]) for n in range(5)])
    engine.prepare(more, checkpoint.config)
    assert time.monotonic() - start > 1.5
