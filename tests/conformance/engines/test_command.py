"""Programs as engines: the protocol, the limits, and programs that misbehave."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import program_engine
import pytest
from asked_once import judge
from click.testing import CliRunner
from left_behind import sleeping
from safetensors.numpy import load_file

from tritgold.errors import EngineError
from tritgold_conformance.cli import main
from tritgold_conformance.contract.clock import Speed
from tritgold_conformance.contract.engine import BEHAVIOURS, JUDGED
from tritgold_conformance.contract.session import Session
from tritgold_conformance.engines import process
from tritgold_conformance.engines.exchange import write_model, write_requests
from tritgold_conformance.engines.load import load_engine
from tritgold_conformance.golden.run import GoldenRun
from tritgold_conformance.questions.asked import all_questions, main_sessions
from tritgold_conformance.results.levels import OF_THE_LADDER, WEAKEST
from tritgold_conformance.results.report import Report

ROOT = Path(__file__).parents[3]
NUMBER = str(10_000_000 + os.getpid())  # seconds; tells the tests of one process from those of another

FORWARD_PASS = tuple(method for method in JUDGED if method not in BEHAVIOURS)


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """No temporary file, and no process that waits."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    yield
    assert list(scratch.iterdir()) == []
    assert sleeping(NUMBER) == []


def program(mode: str) -> str:
    return "cmd:" + shlex.join([sys.executable, program_engine.__file__, mode, NUMBER])


def judged(golden: GoldenRun, model: Path, mode: str, seconds: float = 60) -> Report:
    engine = load_engine(program(mode), model, golden.checkpoint, 9, seconds)
    return judge(golden, engine, "small", with_speed=True)


def statuses(report: Report) -> dict[str, str]:
    return {name: level.status for name, level in report.levels.items()}


# ---- programs that keep to it --------------------------------------------------------------------------------------


def test_a_program_that_is_right_conforms_on_every_level(golden: GoldenRun, model: Path) -> None:
    report = judged(golden, model, "right")
    # It has no loops and no text, its own clock, and was asked one text alone.
    assert {name for name, status in statuses(report).items() if status != "passed"} == {
        *BEHAVIOURS, *OF_THE_LADDER, "timed", WEAKEST,
    }  # fmt: skip
    assert report.exit_code == 0
    assert {c.outcome for c in report.operations} == {"equal"}
    assert (report.engine.name, report.engine.versions) == ("program", {"program": "1"})
    assert report.engine.speed == Speed(9 / 0.25, 1 / 0.125, 9, "engine"), (
        "its own clock: a start is not a token's time"
    )
    assert report.reference.speed is not None


def test_it_is_run_once(golden: GoldenRun, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tritgold_conformance.engines import command

    runs = []
    monkeypatch.setattr(command, "run_program", lambda *a: runs.append(a) or process.run_program(*a))
    assert judged(golden, model, "right").exit_code == 0
    assert len(runs) == 1


def test_a_new_input_is_a_new_run(golden: GoldenRun, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite judges several inputs by one engine; none is answered with what was said of another."""
    from tritgold_conformance.engines import command

    runs = []
    engine = load_engine(program("right"), model, golden.checkpoint, 9, 60)
    monkeypatch.setattr(command, "run_program", lambda *a: runs.append(a) or process.run_program(*a))
    for length in (1, 2, 9):
        assert judge(GoldenRun.of(golden.checkpoint, golden.tokens[:length]), engine, "small").exit_code == 0
    assert len(runs) == 3


def test_what_was_not_foreseen_is_asked_anew(golden: GoldenRun, model: Path) -> None:
    """Other inputs than the judge's: what a diagnosis wants to know."""
    engine = load_engine(program("right"), model, golden.checkpoint, 9, 60)
    gate = np.array([[-1, 0.5, 2] * 32], np.float32)
    outputs = engine.operation("layers.1.ffn_act", {"gate": gate, "up": np.ones_like(gate)})
    assert outputs is not None
    assert outputs["x"][0, :3].tolist() == [0, 0.25, 4]
    (rows,) = engine.read([Session("other", [5, 6, 7], [2, 1])])
    again = GoldenRun.of(golden.checkpoint, [5, 6, 7])
    assert rows is not None
    assert np.array_equal(rows, again.logits)
    assert np.array_equal(engine.trace([5, 6, 7])["final_norm"], again.trace["final_norm"])


@pytest.mark.parametrize(
    ("mode", "given"),
    [
        ("logits only", {"logits", "continued", "steps"}),
        ("text only", {"next_tokens"}),
        ("greedy only", {"next_tokens"}),
        ("files only", {"packed_bytes"}),
        ("statistics only", {"statistics"}),
    ],
)
def test_what_is_left_out_is_not_assessed(golden: GoldenRun, model: Path, mode: str, given: set[str]) -> None:
    report = judged(golden, model, mode)
    assert {name for name, status in statuses(report).items() if status == "passed"} == given
    assert {status for name, status in statuses(report).items() if name not in given} == {"not assessed"}
    assert report.exit_code == 0


def test_a_program_that_says_nothing_is_no_pass(golden: GoldenRun, model: Path) -> None:
    report = judged(golden, model, "nothing to say")
    assert (report.verdict, report.exit_code) == ("nothing was checked", 5)


def test_the_folder_is_what_the_page_says(golden: GoldenRun, model: Path, tmp_path: Path) -> None:
    """Names, dtypes and shapes; every file and key of it is on the page."""
    folder = tmp_path / "scratch" / "inputs"
    folder.mkdir()
    write_model(folder, golden.checkpoint, model)
    write_requests(folder, all_questions(golden, FORWARD_PASS.__contains__))
    page = (ROOT / "docs" / "command-protocol.md").read_text()
    tensors = load_file(folder / "model.safetensors")
    c = golden.checkpoint.config
    assert (tensors["layers.1.down.trits"].dtype, tensors["layers.1.down.trits"].shape) == (np.int8, (64, 96))
    assert (tensors["layers.1.down.scale"].dtype, tensors["layers.1.down.scale"].shape) == (np.float32, ())
    assert tensors["embedding"].shape == (c.vocab, c.hidden)
    for name, tensor in tensors.items():
        parts = name.split(".")
        assert f"`{'.'.join(['layers', '<n>', *parts[2:]]) if len(parts) > 1 else name}`" in page, name
        dtype = {"int8": "I8", "float32": "F32"}[str(tensor.dtype)]
        assert dtype in page
    config, requests = (json.loads((folder / name).read_text()) for name in ("config.json", "requests.json"))
    parts = (requests["logits"][0], requests["operations"][0], requests["files"][0])
    for key in (*config, *requests, *(key for part in parts for key in part), "answer.json"):
        assert f"`{key}`" in page, key
    inputs = load_file(folder / "inputs.safetensors")
    wanted = {name for asked in requests["operations"] for name in asked["inputs"].values()}
    wanted |= {file["data"] for file in requests["files"]}
    assert inputs.keys() == wanted
    assert np.array_equal(inputs["layers.0.q.out"], golden.trace["layers.0.q.out"])
    assert [s["chunks"] for s in requests["logits"]] == [[9], [3, 4, 1, 1], [1] * 9]
    shutil.rmtree(folder)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 40, 150])
def test_chunks_are_the_whole_input(golden: GoldenRun, count: int) -> None:
    sessions = main_sessions([1] * count, FORWARD_PASS.__contains__)
    assert all(sum(session.chunks) == count and min(session.chunks) > 0 for session in sessions)
    names = {"prefill", "steps"} | ({"continued"} if count > 2 else set())
    assert {session.id for session in sessions} == names


@pytest.mark.parametrize("told", [(), ("--policy", "kv-f16")])
def test_a_program_declares_its_precision_in_its_answer(told: tuple[str, ...], model: Path) -> None:
    """After it was asked by float32, it is asked once more, by what it declared; a stricter policy is not excused."""
    words = ["check", "--engine", program("declares kv-f16"), "--model", str(model), "--one-text", "--tokens", "9"]
    result = CliRunner().invoke(main, [*words, "--no-speed", "--json", *told])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["mode"] == "golden.kv-f16/1"


def test_a_precision_that_is_asked_for_holds_whatever_is_declared(model: Path) -> None:
    words = ["check", "--engine", program("declares kv-f16"), "--model", str(model), "--one-text", "--tokens", "9"]
    result = CliRunner().invoke(main, [*words, "--no-speed", "--no-diagnose", "--json", "--policy", "float32"])
    assert result.exit_code == 1
    assert json.loads(result.stdout)["mode"] == "golden/1"


def test_a_precision_that_is_not_known_is_exit_code_3(model: Path) -> None:
    words = ["check", "--engine", program("declares nonsense"), "--model", str(model), "--one-text", "--tokens", "2"]
    result = CliRunner().invoke(main, [*words, "--json"])
    assert (result.exit_code, json.loads(result.stdout)["kind"]) == (3, "engine-policy")


# ---- programs that do not ------------------------------------------------------------------------------------------

HOSTILE = {
    "crash": ("engine-crash", r"signal SIGSEGV. it said: kernel panic \x1b[2J at line 7"),
    "exit code": ("engine-crash", "exit code 1. it said: no such model"),
    "hang": ("engine-timeout", "longer than 2 s"),
    "talk": ("engine-timeout", "longer than 2 s"),
    "children and hang": ("engine-timeout", "longer than 2 s"),
    "silent": ("engine-output", "ended without an error and wrote no answer.json"),
    "children": ("engine-output", "ended without an error and wrote no answer.json"),
    "gigabytes": ("engine-output-size", "wrote too much"),
    "sparse": ("engine-output-size", "wrote too much"),
    "many files": ("engine-output-size", "wrote too much"),
    "garbage json": ("engine-output", "answer.json cannot be read"),
    "deep json": ("engine-output", "answer.json cannot be read"),
    "binary json": ("engine-output", "answer.json cannot be read"),
    "large json": ("engine-output", "answer.json cannot be read"),
    "no object": ("engine-output", "of another protocol: found 'list'"),
    "old protocol": ("engine-output", "of another protocol: found 'tritgold.command/0'"),
    "odd seconds": ("engine-output", "seconds is not {what: seconds}: found step: -1.0"),
    "seconds of text": ("engine-output", "seconds is not {what: seconds}"),
    "odd refusals": ("engine-output", "refused is not a list of ids"),
    "odd versions": ("engine-output", "versions is not an object"),
    "json alone": ("engine-output", "wrote no outputs.safetensors"),
    "truncated": ("engine-output", "outputs.safetensors: tensor 'logits/prefill': ends after the end of the file"),
    "junk": ("engine-output", "outputs.safetensors: "),
    "link to a file": ("engine-output", "outputs.safetensors is not a plain file"),
    "link to the judge's": ("engine-output", "outputs.safetensors is not a plain file"),
    "link for the folder": ("engine-output", "the output folder is not a plain folder"),
    "pipe": ("engine-output", "answer.json is not a plain file"),
    "device": ("engine-output", "outputs.safetensors is not a plain file"),
    "locked folder": ("engine-output", "wrote no answer.json"),
    "shape": ("engine-output", "'logits/prefill' has another shape: found [9, 258], expected [9, 259]"),
    "rows": ("engine-output", "'logits/prefill' has another shape: found [8, 259], expected [9, 259]"),
    "dtype": ("engine-output", "'logits/prefill' has an unsupported dtype: found BOOL"),
    "not asked for": ("engine-output", "'logits/mine' was not requested"),
    "no folder": ("engine-output", "wrote no answer.json"),
    "text twice": ("engine-output", "shows a token twice"),
    "text shape": ("engine-output", "of one shape"),
    "text dtype": ("engine-output", "are integers"),
    "unknown role": ("engine-output", "'operation/0/y' was not requested"),
}


@pytest.mark.parametrize("mode", HOSTILE)
def test_a_program_that_misbehaves_is_not_judged(golden: GoldenRun, model: Path, mode: str) -> None:
    kind, says = HOSTILE[mode]
    start = time.monotonic()
    with pytest.raises(EngineError) as refused:
        judged(golden, model, mode, seconds=2 if kind == "engine-timeout" else 60)
    assert refused.value.kind == kind
    assert says in str(refused.value)
    assert time.monotonic() - start < 30


@pytest.mark.parametrize(
    ("mode", "level", "says"),
    [
        ("nan", "logits", "non-finite"),
        ("wrong", "logits", "sign flipped"),
        ("files wrong", "packed_bytes", "i2_s [random trits]: 43663 of 65536 differ: sign flipped"),
        ("damaged files read", "packed_bytes", "was read as if it were whole"),
        ("statistics wrong", "statistics", "layers.1.ffn_act: rms is"),
        ("statistics not finite", "statistics", "layers.1.ffn_act: non-finite: rms"),
        ("text not a number", "next_tokens", "non-finite"),
        ("text beyond", "next_tokens", "outside the vocabulary"),
    ],
)
def test_wrong_numbers_do_not_conform(golden: GoldenRun, model: Path, mode: str, level: str, says: str) -> None:
    report = judged(golden, model, mode)
    assert report.exit_code == 1
    assert says in report.levels[level].note
    assert report.levels["operations"].status == "passed"


def test_a_name_that_is_no_trace_point_is_said(golden: GoldenRun, model: Path) -> None:
    assert "unknown names: layer.0.q" in judged(golden, model, "unknown trace name").levels["trace"].note


@pytest.mark.parametrize("mode", ["crash", "hang", "silent", "garbage json"])
@pytest.mark.parametrize("only", [(), ("--only", "layers.0.q")], ids=["all", "only"])
def test_the_command_exits_with_3(model: Path, mode: str, only: tuple[str, ...]) -> None:
    arguments = [
        "check",
        "--engine",
        program(mode),
        "--model",
        str(model),
        "--tokens",
        "4",
        "--timeout",
        "1",
        "--json",
        "--one-text",
    ]
    result = CliRunner().invoke(main, [*arguments, *only])
    assert result.exit_code == 3
    assert json.loads(result.stdout)["kind"] == HOSTILE[mode][0]


@pytest.mark.parametrize("spec", ["cmd:", "cmd:  ", "cmd:'", "cmd:./no-such-program", "cmd:/", f"cmd:{__file__}"])
def test_a_command_that_cannot_be_run(golden: GoldenRun, model: Path, spec: str) -> None:
    with pytest.raises(EngineError) as refused:
        judge(golden, load_engine(spec, model, golden.checkpoint, 9), "small")
    assert refused.value.kind in ("engine-unknown", "engine-load")


def test_what_can_be_pasted_says_the_time_limit(model: Path) -> None:
    arguments = [
        "check",
        "--engine",
        program("wrong"),
        "--model",
        str(model),
        "--tokens",
        "4",
        "--timeout",
        "50",
        "--one-text",
    ]
    report = json.loads(CliRunner().invoke(main, [*arguments, "--json"]).stdout)
    assert "--timeout 50" in report["reproduce"]
    again = CliRunner().invoke(main, shlex.split(report["reproduce"])[1:])
    assert again.exit_code == 1


def test_links_in_the_output_count_as_themselves(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/")
    assert process.folder_size(tmp_path) < 10_000


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupting_the_judge_ends_the_program(model: Path, number: signal.Signals) -> None:
    """Ctrl-C, or a time limit of a CI, which the program itself does not get: it has a session of its own."""
    words = [
        sys.executable,
        "-m",
        "tritgold_conformance",
        "check",
        "--model",
        str(model),
        "--tokens",
        "4",
        "--one-text",
    ]
    environment = {**os.environ, "TMPDIR": tempfile.gettempdir()}
    judge_process = subprocess.Popen([*words, "--engine", program("hang")], env=environment, stderr=subprocess.PIPE)
    with judge_process:
        deadline = time.monotonic() + 30
        while not sleeping(NUMBER) and time.monotonic() < deadline:
            time.sleep(0.1)
        judge_process.send_signal(number)
        assert judge_process.wait(30) == 130


@pytest.mark.skipif(sys.platform != "linux", reason="found by its mark in /proc")
def test_an_interrupt_while_the_program_is_started_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs already, and the call that started it has not returned."""

    def interrupted(*arguments: Any, **options: Any) -> None:
        held.append(started(*arguments, **options))
        raise KeyboardInterrupt

    started, held = subprocess.Popen, []
    monkeypatch.setattr(process.subprocess, "Popen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        process.run_program(
            [sys.executable, "-c", f"import time; time.sleep({NUMBER})", "a", "b"], tmp_path, 9, 9, tmp_path
        )
    [left] = held
    assert left.wait(5) == -signal.SIGKILL
    left.stdout.close()


@pytest.mark.parametrize("where", ["$TMPDIR/x", "$1/x", "$2/../x"])
def test_what_is_written_beside_the_answer_is_bounded_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(process, "SCRATCH", 1 << 20)
    inputs, outputs, scratch = (tmp_path / name for name in ("inputs", "outputs", "own"))
    for folder in (inputs, outputs, scratch):
        folder.mkdir()
    (inputs / "model").write_bytes(bytes(3 << 20))  # what lay there before is not the program's
    for count, refused in ((1 << 19, False), (2 << 20, True)):
        words = ["sh", "-c", f"head -c {count} /dev/zero > {where}", "sh", str(inputs), str(outputs)]
        with pytest.raises(EngineError, match="TMPDIR included") if refused else nullcontext():
            process.run_program(words, outputs, 20, 1000, scratch)
