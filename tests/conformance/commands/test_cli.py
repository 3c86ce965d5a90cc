"""The ``tritgold`` command: what it prints, where, and with which exit code."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from tritgold_command import call, parsed

from tritgold_conformance import commands
from tritgold_conformance.cli import COMMANDS, main


def test_check_prints_a_verdict_table_and_exits_0() -> None:
    result = call("check", "--model", "seeded", "--engine", "reference", "--tokens", 4)
    assert result.exit_code == 0
    for words in (
        "each operation on golden inputs",
        "Tokens per second, prefill of 4",
        "reference conforms at 7 levels; not assessed: ",
        "Covered: ids 3 of 259",
    ):
        assert words in result.stdout


def test_check_of_a_faulty_engine_names_the_divergence_and_exits_1() -> None:
    result = call("check", "--engine", "faulty_engines:Faulty", "--tokens", 4)
    assert result.exit_code == 1
    assert "First divergence: layers.0.q.out" in result.stdout
    assert "does not conform" in result.stdout
    assert "tritgold check --engine faulty_engines:Faulty --one-text --only layers.0.q.out --ids" in result.stdout


def test_one_operation_alone() -> None:
    good = call("check", "--engine", "reference", "--tokens", 4, "--only", "layers.0.rope")
    assert good.exit_code == 0
    assert "layers.0.q_rope: equal" in good.stdout
    bad = call("check", "--engine", "faulty_engines:Faulty", "--tokens", 4, "--only", "layers.0.q.out", "--json")
    assert bad.exit_code == 1
    assert [o["outcome"] for o in parsed(bad)["outputs"]] == ["equal", "fails"]
    absent = call("check", "--engine", "faulty_engines:LogitsOnly", "--tokens", 4, "--only", "layers.0.rope")
    assert absent.exit_code == 5
    assert call("check", "--engine", "reference", "--tokens", 4, "--only", "nonsense").exit_code == 3


@pytest.mark.parametrize("engine", ["Exiting", "Crashing"])
def test_an_engine_that_leaves_or_raises_is_never_a_verdict(engine: str) -> None:
    result = call("check", "--engine", f"faulty_engines:{engine}", "--tokens", 4)
    assert result.exit_code == 3
    assert "prefill failed" in result.stderr
    assert "faulty_engines.py" in result.stderr, "its developer sees where"


def test_what_an_engine_prints_does_not_spoil_the_json() -> None:
    result = call("check", "--engine", "faulty_engines:Talkative", "--tokens", 4, "--json")
    assert parsed(result)["verdict"] == "conforms"
    assert "loading kernels" in result.stderr


def test_an_engine_that_knows_nothing_is_no_pass() -> None:
    result = call("check", "--engine", "faulty_engines:Nothing", "--tokens", 4)
    assert result.exit_code == 5
    assert "nothing was checked" in result.stdout


def test_a_bug_of_ours_is_never_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tritgold_conformance.judging.check.judge", lambda *_: 1 / 0)
    result = call("check", "--model", "seeded", "--engine", "reference", "--tokens", 4)
    assert result.exit_code == 3
    assert "ZeroDivisionError" in result.stderr


def test_check_of_a_crashing_engine_exits_3() -> None:
    result = call("check", "--engine", "faulty_engines:Crashing", "--tokens", 4, "--json")
    assert result.exit_code == 3
    assert parsed(result)["error"] == "EngineError"


def test_a_text_shorter_than_the_edge_inputs_is_judged() -> None:
    # They are operations of four tokens, and the engine's cache has room for what it is told.
    result = call("check", "--model", "seeded", "--engine", "xla", "--tokens", 2, "--no-speed")
    assert result.exit_code == 0, result.stderr


def test_check_on_a_model_of_ones_own(model: Path) -> None:
    report = parsed(call("check", "--engine", "reference", "--model", model, "--tokens", 3, "--no-speed", "--json"))
    assert report["verdict"] == "conforms"
    assert report["config"]["layers"] == 2
    assert report["engine"]["speed"] is None


def test_check_of_too_long_an_input_says_what_fits(model: Path) -> None:
    result = call("check", "--engine", "reference", "--model", model, "--tokens", 33)
    assert result.exit_code == 3
    assert "expected at most 32" in result.stderr


def test_inspect_shows_types_config_and_trits(model: Path) -> None:
    result = call("inspect", model, "--tensors")
    assert result.exit_code == 0
    assert "model.layers.1.mlp.down_proj.weight" in result.stdout
    facts = parsed(call("inspect", model, "--json"))
    assert f"{facts['weights']['bits_per_weight']} bits a weight" in result.stdout
    assert facts["types"]["U8"]["tensors"] == 14
    assert sum(facts["weights"]["histogram"].values()) == facts["weights"]["ternary"]


def test_inspect_shows_the_container_even_where_the_model_is_refused(model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "rope_scaling": {"type": "novel", "factor": 2.0}}))
    result = call("inspect", model, "--json")
    assert result.exit_code == 1
    assert parsed(result)["problem"]["kind"] == "config-unsupported"
    assert parsed(result)["types"]["U8"]["tensors"] == 14
    (model / "model.safetensors").write_bytes(b"junk")
    assert call("inspect", model).exit_code == 3


def test_options_reach_the_checkpoint(model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    del config["quantization_config"]
    (model / "config.json").write_text(json.dumps({**config, "novelty": 1}))
    assert call("inspect", model).exit_code == 1
    assert call("inspect", model, "--linear-class", "autobitlinear").exit_code == 1
    judged = call("check", "--engine", "reference", "--model", model, "--tokens", 2, "--no-speed",
                  "--linear-class", "autobitlinear", "--ignore-key", "novelty", "--json")  # fmt: skip
    assert judged.exit_code == 0
    assert "--linear-class autobitlinear --ignore-key novelty" in parsed(judged)["reproduce"]
    done = call("inspect", model, "--linear-class", "autobitlinear", "--ignore-key", "novelty", "--json")
    assert done.exit_code == 0
    assert parsed(done)["config"]["scale_rule"] == "multiply"


def test_env_names_versions_and_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    facts = parsed(call("env", "--json"))
    assert facts["packages"]["numpy"]
    assert facts["variables"]["OPENBLAS_CORETYPE"] == "Haswell"
    assert "blas" in call("env").stdout


def test_env_says_what_is_kept_between_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "tritgold"
    nothing = {"folder": str(folder), "bench MB": 0, "weights MB": 0, "xla MB": 0}
    assert parsed(call("env", "--json"))["cache"] == nothing
    (folder / "weights" / "a").mkdir(parents=True)
    (folder / "weights" / "a" / "embedding.npy").write_bytes(bytes(1_500_000))
    (folder / "xla-tuning.json").write_text("{")
    facts = parsed(call("env", "--json"))["cache"]
    assert facts["weights MB"] == 1.5
    assert "xla-tuning.json" in facts["tuned"] or "jax" in facts["tuned"]
    assert call("env").exit_code == 0


def test_the_table_of_commands_is_what_their_docstrings_say() -> None:
    files = Path(commands.__file__).parent.glob("*.py")
    defined = {file.stem for file in files if re.search(r"^@click\.(command|group)\(", file.read_text(), re.MULTILINE)}
    assert defined == COMMANDS.keys()
    with click.Context(main) as context:
        for name, line in COMMANDS.items():
            command = main.get_command(context, name)
            assert command is not None
            assert (command.help or "").partition("\n\n")[0].replace("\n", " ") == line


def test_help_imports_neither_numpy_nor_jax() -> None:
    code = "import sys, tritgold_conformance.cli; print([m for m in ('numpy', 'jax', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_embedded_model_is_meant_by_its_name_whatever_lies_around(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("kjv-ar", "seeded"):
        (tmp_path / name).mkdir()
    default = parsed(call("inspect", "--json"))
    assert default["model"] == "kjv-ar"
    assert default == parsed(call("inspect", "kjv-ar", "--json"))
    assert parsed(call("inspect", "seeded", "--json"))["problem"] is None
    assert call("inspect", "./kjv-ar").exit_code != 0


def program(*arguments: object, shell: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """The command as a program of its own, its streams as the shell's words say."""
    words = " ".join(shlex.quote(str(word)) for word in (sys.executable, "-m", "tritgold_conformance", *arguments))
    environment = {**os.environ, **variables}
    return subprocess.run(["sh", "-c", f"{words} {shell}"], capture_output=True, text=True, env=environment)


@pytest.mark.parametrize("command", ["inspect", "convert"])
def test_a_refused_nan_is_still_json(model: Path, tmp_path: Path, command: str) -> None:
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "rope_theta": float("nan")}))
    more = [tmp_path / "out", "--to", "hf"] if command == "convert" else []
    result = call(command, model, *more, "--json")
    facts = parsed(result)
    assert result.exit_code == (3 if command == "convert" else 1)
    assert (facts if command == "convert" else facts["problem"])["got"] == "nan"


def test_a_typed_error_is_one_line_and_no_traceback(tmp_path: Path, model: Path) -> None:
    missing = call("inspect", tmp_path / "absent")
    (model / "config.json").write_text("{")
    broken = call("trace", model, "--ids", "1", "-o", tmp_path / "t")
    for result in (missing, broken):
        assert result.exit_code == 3
        assert "Traceback" not in result.stderr
        assert len(result.stderr.splitlines()) == 1


def test_what_cannot_be_read_is_no_bug(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "config.json")

    monkeypatch.setattr("tritgold_conformance.inspecting.inspection.inspect_model", denied)
    result = call("inspect", model)
    assert (result.exit_code, result.stderr) == (3, "PermissionError: [Errno 13] Permission denied: 'config.json'\n")
    assert parsed(call("inspect", model, "--json"))["kind"] == "unreadable"


@pytest.mark.parametrize("shell", [">/dev/full", ">&-"])
@pytest.mark.parametrize("how", [("inspect", "--json"), ("run", "--ids", "1,2"), ("run", "--ids", "1,2", "--json")])
def test_output_that_cannot_be_written_is_no_verdict(model: Path, shell: str, how: tuple[str, ...]) -> None:
    done = program(how[0], model, *how[1:], shell=shell)
    assert done.returncode == 3
    assert done.stderr.startswith("OutputError: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_reader_that_went_away_is_no_verdict(model: Path) -> None:
    words = [sys.executable, "-m", "tritgold_conformance", "inspect", str(model)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as done:
        assert done.stdout is not None
        done.stdout.close()
        assert done.wait() == 3


@pytest.mark.parametrize("shell", ["2>&-", "2>/dev/full"])
def test_an_error_that_cannot_be_said_keeps_its_exit_code(tmp_path: Path, shell: str) -> None:
    done = program("inspect", tmp_path / "absent", shell=shell)
    assert (done.returncode, done.stdout) == (3, "")


def test_convert_without_stderr_converts(model: Path, tmp_path: Path) -> None:
    assert program("convert", model, tmp_path / "out", "--to", "hf", shell="2>&-").returncode == 0


def test_letters_that_the_terminal_has_not_are_numbers(model: Path, tmp_path: Path) -> None:
    odd = tmp_path / "mod\u0119l"
    model.rename(odd)
    done = program("inspect", odd, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "mod\\u0119l" in done.stdout
    done = program("inspect", odd, "--json", PYTHONIOENCODING="ascii")
    assert json.loads(done.stdout)["model"] == str(odd)


def test_ctrl_c_is_130(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tritgold_conformance.inspecting.inspection.inspect_model", interrupted)
    assert call("inspect", model).exit_code == 130
    assert "130 interrupted" in call("--help").stdout


def test_warnings_are_one_line_each_and_an_error_only_where_asked(model: Path, tmp_path: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "eos_token_id": 999}))
    done = program("convert", model, tmp_path / "a", "--to", "hf")
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    assert lines
    assert len(set(lines)) == len(lines)
    for line in lines:
        assert line.startswith("warning: ")
        assert "eos_token_id 999" in line
        assert ".py" not in line
    done = program("convert", model, tmp_path / "b", "--to", "hf", PYTHONWARNINGS="error")
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert line.startswith("TritgoldWarning: ")


def test_an_engine_that_is_not_there_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "needs_another.py").write_text("import nomod")
    for engine, traced in (("nomod:X", False), ("nomod.deeper:X", False), ("needs_another:X", True)):
        result = call("check", "--model", "seeded", "--engine", engine)
        assert result.exit_code == 3
        assert "ModuleNotFoundError" in result.stderr
        assert ("Traceback" in result.stderr) is traced


def test_whoever_reads_only_the_first_lines_is_told_of_no_error(tmp_path: Path) -> None:
    saved = tmp_path / "r.json"
    call("check", "--model", "seeded", "--engine", "reference", "--tokens", 3, "--no-speed", "--report", saved)
    words = [sys.executable, "-m", "tritgold_conformance", "report", str(saved)]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(words, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(writing)
    assert done.stderr == ""
