"""``tritgold bench`` on the command line."""

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner, Result

from tritgold_conformance.bench import plan
from tritgold_conformance.bench.results import json_schema
from tritgold_conformance.bench.shapes import NAMES, ModelShape
from tritgold_conformance.bench.synthetic import synthetic_model
from tritgold_conformance.cli import main
from tritgold_conformance.commands import bench


def call(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["bench", *map(str, arguments)])


def test_the_lists_of_the_command_are_those_of_the_plan() -> None:
    assert set(bench.ROWS) == set(plan.ROWS)
    assert bench.PEERS == plan.PEERS
    assert bench.KV_CACHES == plan.KV_CACHES


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--shape", "3b"], NAMES),
        (["--rows", "decode,speed"], bench.ROWS),
        (["--rows", ","], bench.ROWS),
        (["--peer", "ollama"], bench.PEERS),
        (["--threads", "0"], ["positive integers"]),
        (["--tokens", "1,x"], ["positive integers"]),
        (["--shape", "4096x4096", "--rows", "decode"], bench.OF_A_MATRIX),
        (["--shape", "4096x4096", "--profile"], ["--profile"]),
        (["--shape", "4096x4096", "--peer", "llama.cpp"], ["--peer"]),
        (["--layers", "2"], ["--shape"]),
        (["--shape", "2b-4t", "--model", "."], ["not both"]),
        (["--kv", "q4_0"], bench.KV_CACHES),
        (["--engine", "reference", "--tune"], ["--tune", "xla"]),
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
    assert call("--model", "no-such-file").exit_code == 2


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


def test_the_schema() -> None:
    assert json.loads(call("--schema").stdout) == json_schema()


def test_help_loads_neither_numpy_nor_jax() -> None:
    code = (
        "import sys; from tritgold_conformance.cli import main\n"
        "try: main(['bench', '--help'])\n"
        "except SystemExit: pass\n"
        "sys.exit(', '.join(m for m in ('numpy', 'jax', 'msgspec', 'rich') if m in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--peer" in done.stdout


def test_what_is_tuned_is_printed_kept_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = synthetic_model(ModelShape("tiny", 1, 256, 256, 4, 2, 64, 64, context=64), tmp_path)
    options = ["--rows", "decode", "--context", "4", "--steps", "1", "--runs", "1", "--tune"]
    result = call("--model", model, *options, "--json", tmp_path / "out.json")
    assert result.exit_code == 0, result.stderr
    assert "Fastest way to multiply" in result.stdout
    found = json.loads((tmp_path / "out.json").read_text())
    jsonschema.validate(found, json_schema())
    of = {(one["out"], one["in_"], one["tokens"]): one for one in found["tuned"]}
    assert set(of) == {(out, 256, tokens) for out in (128, 256) for tokens in (1, 8, 32, 128)}
    kept = tmp_path / "tritgold" / "xla-tuning.json"
    (tuning,) = json.loads(kept.read_text())["tunings"]
    assert tuning["made_for"]["cores"] == 1, "made with the threads that are timed"
    assert {(c["out"], c["in"], c["tokens"]): c["formulation"] for c in tuning["choices"]} == {
        key: one["formulation"] for key, one in of.items()
    }
    assert found["engines"][0]["flags"]["tuning"] == str(kept)
    kept.write_text("{}")
    result = call("--model", model, *options[:-1])
    assert result.exit_code == 1, result.stdout
    assert "[tuning-file]" in result.stdout.replace("\n", "")
