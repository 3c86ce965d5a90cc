"""``tritgold bench`` on the command line."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from tritgold.errors import OutputError
from tritgold_conformance.bench import plan, table, thread_run
from tritgold_conformance.bench.peer_names import HEADS
from tritgold_conformance.bench.processes import engine_process
from tritgold_conformance.bench.results import json_schema
from tritgold_conformance.bench.shapes import NAMES, ModelShape
from tritgold_conformance.bench.synthetic import synthetic_model
from tritgold_conformance.cli import main
from tritgold_conformance.commands import bench


def call(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["bench", *map(str, arguments)])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--shape", "3b"], NAMES),
        (["--rows", "decode,speed"], plan.ROWS),
        (["--rows", ","], plan.ROWS),
        (["--peer", "ollama"], ["llama.cpp, transformers", "llama-server"]),
        (["--peer", "ik_llama.cpp"], ["'ik_llama.cpp' is not one of", "PROGRAM"]),
        (["--peer", "ik_llama.cpp=/no/such/llama-server"], ["/no/such/llama-server is not a program"]),
        (["--peer", "llama.cpp+q3_k"], ["q3_k", *HEADS]),
        (["--threads", "0"], ["positive integers"]),
        (["--tokens", "1,x"], ["positive integers"]),
        (["--shape", "4096x4096", "--rows", "decode"], plan.MATRIX_ROWS),
        (["--shape", "4096x4096", "--profile"], ["--profile"]),
        (["--shape", "4096x4096", "--peer", "llama.cpp"], ["--peer"]),
        (["--layers", "2"], ["--shape"]),
        (["--shape", "2b-4t", "--model", "."], ["not both"]),
        (["--kv", "q4_0"], plan.KV_CACHES),
        (["--engine", "reference", "--tune"], ["--tune", "xla"]),
        (
            ["--json", "no-such-folder/bench.json", "--context", "1000000"],
            ["--json", "no-such-folder", "make it first"],
        ),
        (["--json", "/dev/null", "--context", "1000000"], ["--json", "not a regular file"]),
    ],
)
def test_what_is_unknown_is_a_usage_error_with_the_list(arguments: list[str], said: list[str]) -> None:
    result = call(*arguments)
    assert result.exit_code == 2
    assert all(word in result.stderr for word in said), result.stderr


def test_too_many_positions_and_a_missing_file() -> None:
    result = call("--engine", "reference", "--context", 1_000_000, "--rows", "decode")
    assert result.exit_code == 3
    assert "context-length" in result.stderr
    missing = call("--model", "no-such-file")
    assert missing.exit_code == 3
    assert "no-such-file" in missing.stderr


def test_a_file_is_measured_and_its_figures_are_written(tmp_path: Path) -> None:
    model = synthetic_model(ModelShape("tiny", 1, 256, 256, 4, 2, 64, 64, context=64), tmp_path)
    options = ["--engine", "reference", "--rows", "decode,gemv", "--context", "4", "--steps", "1", "--runs", "1"]
    result = call("--model", model, *options, "--json", tmp_path / "out.json")
    assert result.exit_code == 0, result.stderr
    assert "conforms on tiny" in result.stdout
    found = json.loads((tmp_path / "out.json").read_text())
    jsonschema.validate(found, json_schema())
    assert {row["row"] for row in found["results"]} == {"decode", "gemv"}
    assert found["machine"]["packages"]["numpy"]


def test_what_was_measured_before_it_was_stopped_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, file = thread_run.ThreadRun._add, tmp_path / "out.json"

    def stops(self: Any, *results: Any) -> None:
        whole(self, *results)
        raise KeyboardInterrupt

    monkeypatch.setattr(thread_run.ThreadRun, "_add", stops)
    model = synthetic_model(ModelShape("tiny", 1, 256, 256, 4, 2, 64, 64, context=64), tmp_path)
    options = ["--engine", "reference", "--rows", "decode", "--context", "4", "--steps", "1", "--runs", "1"]
    result = call("--model", model, *options, "--json", file)
    assert result.exit_code != 0
    assert "1 results are in" in result.stderr
    found = json.loads(file.read_text())
    jsonschema.validate(found, json_schema())
    assert (found["complete"], len(found["results"])) == (False, 1)


def test_what_was_measured_is_printed_where_its_file_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, _: object) -> None:
        raise OutputError("cannot be written: No space left on device", kind="disk-full", file=path)

    process = Multiplying()
    process.asked = []
    monkeypatch.setattr(thread_run, "engine_process", lambda *_, **__: process)
    monkeypatch.setattr(bench, "_write", full)
    result = call("--shape", "4096x4096", "--rows", "gemv", "--runs", "1", "--json", tmp_path / "out.json")
    assert result.exit_code == 3
    assert "disk-full" in result.stderr
    assert "select" in result.stdout


def test_what_was_measured_is_written_where_it_cannot_be_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*_: object) -> None:
        raise BrokenPipeError

    process = Multiplying()
    process.asked = []
    monkeypatch.setattr(thread_run, "engine_process", lambda *_, **__: process)
    monkeypatch.setattr(table, "render", closed)
    file = tmp_path / "out.json"
    assert call("--shape", "4096x4096", "--rows", "gemv", "--runs", "1", "--json", file).exit_code != 0
    assert json.loads(file.read_text())["complete"]


def test_the_schema() -> None:
    assert json.loads(call("--schema").stdout) == json_schema()


def test_help_needs_no_jax() -> None:
    # NumPy is loaded: the help lists what the plan holds. ``tritgold --help`` loads none of them, see test_cli.
    code = (
        "import sys; from tritgold_conformance.cli import main\n"
        "try: main(['bench', '--help'])\n"
        "except SystemExit: pass\n"
        "sys.exit(', '.join(m for m in ('jax', 'tritgold_xla') if m in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--peer" in done.stdout


class Multiplying:
    """Stands in for the process: answers what it is asked."""

    asked: list[str]

    def __enter__(self) -> "Multiplying":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ask(self, do: str, **what: int) -> Any:
        self.asked.append(do)
        if do == "bandwidth":
            return {"numpy": 1e10}
        way = {"wrong": "", "by": "xla", "why": "", "bytes_moved": 1 << 22}
        if do == "product":
            return {"select": {"seconds": 0.001, **way}}
        assert (do, what) == ("tune", {"out": 4096, "in_": 4096})
        seconds = {"select": 0.001, "float-dot": 0.0125}
        return [{"tokens": n, "formulation": "select", "seconds": seconds} for n in (1, 8)]


def test_what_is_tuned_comes_first_and_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = Multiplying()
    process.asked = []
    monkeypatch.setattr(thread_run, "engine_process", lambda *_, **__: process)
    options = ["--shape", "4096x4096", "--rows", "gemv", "--runs", "1", "--tune"]
    result = call(*options, "--json", tmp_path / "out.json")
    assert result.exit_code == 0, result.stderr
    assert process.asked == ["bandwidth", "tune", "product", "product", "bandwidth"]
    assert re.search(r"4096x4096 +1 +8 +1 +select +float-dot x12\.5", result.stdout), result.stdout
    found = json.loads((tmp_path / "out.json").read_text())
    jsonschema.validate(found, json_schema())
    assert [(one["threads"], one["out"], one["tokens"]) for one in found["tuned"]] == [(1, 4096, 1), (1, 4096, 8)]
    process.asked.clear()
    assert "Fastest way" not in call(*options[:-1]).stdout
    assert "tune" not in process.asked


def test_the_process_tunes_with_the_threads_that_are_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with engine_process("xla", 1) as process:
        found = process.ask("tune", out=8, in_=128)
        flags = process.ask("facts")["flags"]
    file = tmp_path / "tritgold" / "xla-tuning.json"
    assert flags["tuning"] == file.name
    (tuning,) = json.loads(file.read_text())["tunings"]
    assert tuning["made_for"]["cores"] == 1
    kept = [
        {"tokens": c["tokens"], "formulation": c["formulation"], "seconds": c["seconds"]} for c in tuning["choices"]
    ]
    assert kept == found
    assert [one["tokens"] for one in found] == [1, 8, 32, 128]
