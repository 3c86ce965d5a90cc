"""The ``tritgold`` command: what it prints, where, and with which exit code."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf_bytes as g
import numpy as np
import pytest
from click.testing import CliRunner, Result
from small_models import as_gguf

from tritgold.decode.diffusion_presets import PRESETS
from tritgold.formats.texts.gguf_tokenizer import tokenizer_metadata
from tritgold.golden.seeded import Shape, byte_tokenizer, write_seeded_model
from tritgold.trace import Trace
from tritgold_conformance.cli import main
from tritgold_conformance.commands.decoding_names import DECODE


def call(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


def parsed(result: Result) -> dict[str, Any]:
    """The one JSON object on stdout; anything else there is an error."""
    value: dict[str, Any] = json.loads(result.stdout)
    return value


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    write_seeded_model(folder, Shape(hidden=64, inter=96, layers=2, heads=2, kv_heads=1, context=32))
    return folder


def test_run_generates_the_same_from_text_and_from_ids() -> None:
    by_text = parsed(call("run", "seeded", "--prompt", "Hello", "--max-tokens", 5, "--json"))
    by_ids = parsed(
        call("run", "seeded", "--ids", ",".join(map(str, by_text["prompt_ids"])), "--max-tokens", 5, "--json")
    )
    assert by_text["prompt_ids"] == [256, *b"Hello"]
    assert by_text["ids"] == by_ids["ids"]
    assert len(by_text["ids"]) == 5
    assert by_text["reason"] == "length"
    assert by_text["schema"] == "tritgold.run/1"


def test_run_prints_text_on_stdout_and_the_reason_on_stderr() -> None:
    result = call("run", "seeded", "--prompt", "Hello", "--max-tokens", 3)
    assert result.exit_code == 0
    assert "length: 3 tokens" in result.stderr
    assert "length" not in result.stdout


@pytest.mark.parametrize("arguments", [[], ["--prompt", "a", "--ids", "1"], ["--ids", "1,x"], ["--backend", "cuda"]])
def test_run_without_a_usable_input_is_a_usage_error(arguments: list[str]) -> None:
    assert call("run", *arguments).exit_code == 2


@pytest.mark.parametrize(
    ("ids", "tokens", "kind"),
    [
        ("1,999", 4, "token-id"),
        (",", 4, "no-tokens"),
        ("1," * 600, 4, "context-length"),
        ("1" * 30, 4, "token-id"),
        ("", 4, "no-tokens"),
    ],
)
def test_run_refuses_bad_tokens_before_computing(ids: str, tokens: int, kind: str) -> None:
    result = call("run", "seeded", "--ids", ids, "--max-tokens", tokens, "--json")
    assert result.exit_code == 3
    assert parsed(result)["kind"] == kind


def test_a_second_bos_is_refused() -> None:
    assert parsed(call("run", "seeded", "--prompt", "<bos>Hi", "--max-tokens", 1, "--json"))["kind"] == "two-bos"


def test_run_fills_the_context_exactly(model: Path) -> None:
    prompt = ",".join(["1"] * 30)
    result = parsed(call("run", model, "--ids", prompt, "--max-tokens", 100, "--json"))
    # 32 positions: 30 of the prompt, 2 generated tokens read at positions 30 and 31, a third that nothing can follow.
    assert (len(result["ids"]), result["reason"]) in [(3, "context_full")] or result["reason"] == "stop"


def test_a_tokenizer_that_is_not_there_is_never_ignored() -> None:
    assert call("run", "seeded", "--ids", "1", "--tokenizer", "/nope.json", "--max-tokens", 1).exit_code == 2


def gguf_of(folder: Path, file: Path, **changes: object) -> Path:
    """The folder as a GGUF file with its tokenizer under llama.cpp's keys alone, some of them changed (None: gone)."""
    made = as_gguf(folder, "bitnet-b1.58")
    keys = {**tokenizer_metadata(byte_tokenizer(), 256, (257,), None), "tokenizer.huggingface.json": None}
    for key, value in (keys | {f"tokenizer.ggml.{k}": v for k, v in changes.items()}).items():
        if isinstance(value, list):
            made.set(key, g.ARRAY, g.array(g.STRING, value))
        elif isinstance(value, np.ndarray):
            made.set(key, g.ARRAY, g.array(g.I32, value.tolist()))
        elif value is not None:
            made.set(key, g.BOOL if isinstance(value, bool) else g.U32 if isinstance(value, int) else g.STRING, value)
    return made.write(file)


@pytest.fixture
def packable(tmp_path: Path) -> Path:
    """A model whose rows I2_S can hold."""
    folder = tmp_path / "packable"
    folder.mkdir()
    write_seeded_model(folder, Shape(hidden=128, inter=128, layers=1, heads=2, kv_heads=2, context=32))
    return folder


def test_a_gguf_file_brings_its_tokenizer(packable: Path, tmp_path: Path) -> None:
    file = gguf_of(packable, tmp_path / "m.gguf")
    ours = parsed(call("run", file, "--prompt", "Hé", "--max-tokens", 4, "--json"))
    theirs = parsed(call("run", packable, "--prompt", "Hé", "--max-tokens", 4, "--json"))
    assert ours["prompt_ids"] == [256, *"Hé".encode()]
    assert (ours["ids"], ours["text"]) == (theirs["ids"], theirs["text"])


def test_a_gguf_tokenizer_that_cannot_be_built_leaves_the_ids(packable: Path, tmp_path: Path) -> None:
    file = gguf_of(packable, tmp_path / "m.gguf", pre="gpt-5")
    by_ids = call("run", file, "--ids", "256,72", "--max-tokens", 2)
    assert by_ids.exit_code == 0
    assert "[ids only: " in by_ids.stderr
    assert by_ids.stdout.strip().replace(",", "").isdigit()
    by_text = call("run", file, "--prompt", "H", "--json")
    assert (by_text.exit_code, parsed(by_text)["kind"]) == (3, "tokenizer-pre")
    told = call("run", file, "--prompt", "H", "--max-tokens", 2, "--tokenizer", packable / "tokenizer.json")
    assert told.exit_code == 0


def test_a_gguf_file_without_tokenizer_takes_the_one_beside_it(packable: Path, tmp_path: Path) -> None:
    file = gguf_of(packable, tmp_path / "m.gguf", model="none")
    missing = call("run", file, "--prompt", "H", "--json")
    assert (missing.exit_code, parsed(missing)["kind"]) == (3, "no-tokenizer")
    (tmp_path / "tokenizer.json").write_text(byte_tokenizer())
    assert parsed(call("run", file, "--prompt", "H", "--max-tokens", 1, "--json"))["prompt_ids"] == [256, 72]


def test_a_model_without_tokenizer_takes_ids_and_says_so(model: Path) -> None:
    (model / "tokenizer.json").unlink()
    assert call("run", model, "--ids", "1,2", "--max-tokens", 3).stdout.strip().count(",") == 2
    failed = call("run", model, "--prompt", "x")
    assert failed.exit_code == 3
    assert "--ids" in failed.stderr


def test_trace_and_compare_agree(tmp_path: Path) -> None:
    first, second = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    assert call("trace", "seeded", "--ids", "256,72,101", "-o", first).exit_code == 0
    summary = parsed(call("trace", "seeded", "--ids", "256,72,101", "-o", second, "--json"))
    assert summary["digest"] == Trace.load(first).digest()
    assert summary["arrays"]["logits"] == {"dtype": "float32", "shape": [3, 259]}
    result = call("compare", first, second)
    assert result.exit_code == 0
    assert "agree" in result.stdout


def test_the_jax_engine_is_compared_across_backends_and_modes_are_told_apart(tmp_path: Path) -> None:
    first, second = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    call("trace", "seeded", "--ids", "256,72,101", "-o", first)
    assert call("trace", "seeded", "--ids", "256,72,101", "--backend", "xla", "-o", second).exit_code == 0
    result = parsed(call("compare", first, second, "--json"))
    assert result["verdict"] == "agree"
    assert 0 < result["noise"] < 1e-5
    other = Trace.load(second)
    other.mode = "w1.58a16/1"
    other.save(second)
    assert "of another mode" in call("compare", first, second).stderr


def test_compare_finds_the_first_divergence(tmp_path: Path) -> None:
    first, second = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    call("trace", "seeded", "--ids", "256,72,101", "-o", first)
    spoiled = Trace.load(first)
    spoiled.arrays["layers.2.up.acc"] = spoiled["layers.2.up.acc"].copy()
    spoiled.arrays["layers.2.up.acc"][1, 5] += 1
    spoiled.save(second)
    result = call("compare", first, second, "--json")
    assert result.exit_code == 1
    assert parsed(result)["first_divergence"]["name"] == "layers.2.up.acc"
    assert parsed(result)["first_divergence"]["worst"] == [1, 5]


def test_compare_refuses_traces_of_other_inputs_and_other_files(tmp_path: Path) -> None:
    first, second = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    call("trace", "seeded", "--ids", "256,72", "-o", first)
    call("trace", "seeded", "--ids", "256,73", "-o", second)
    result = call("compare", first, second)
    assert result.exit_code == 3
    assert "of another input" in result.stderr
    assert call("compare", first, tmp_path / "absent").exit_code == 3


def with_a_broken_tie(golden: Path, position: int, target: Path) -> None:
    """A golden trace whose tie nearest to breaking at this position went the other way, and garbage behind it."""
    trace = Trace.load(golden)
    x, scale, codes = (trace[f"layers.0.attn_{n}"] for n in ("norm", "in.scale", "in.codes"))
    scaled = x[position].astype(np.float64) * scale[position]
    channel = int(np.argmax(np.abs(scaled - np.rint(scaled))))
    trace.arrays["layers.0.attn_norm"] = x.copy()
    trace["layers.0.attn_norm"][position, channel] = (np.floor(scaled[channel]) + 0.5) / scale[position]
    trace.save(golden)
    trace.arrays["layers.0.attn_in.codes"] = codes.copy()
    up = codes[position, channel] <= scaled[channel]
    trace["layers.0.attn_in.codes"][position, channel] += 1 if up else -1
    names = list(trace.arrays)
    for name in names[names.index("layers.0.probs") :]:
        if not name.endswith(".codes"):
            trace.arrays[name] = trace[name].copy()
            (trace[name].transpose(1, 0, 2) if name.endswith(".probs") else trace[name])[position:] *= 3
    trace.save(target)


@pytest.mark.parametrize(("position", "code"), [(0, 5), (2, 0)])
def test_compare_says_how_far_it_could_judge(tmp_path: Path, position: int, code: int) -> None:
    first, second = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    call("trace", "seeded", "--ids", "256,72,101", "-o", first)
    with_a_broken_tie(first, position, second)
    result = call("compare", first, second)
    assert result.exit_code == code, result.stdout
    assert "not judged to the end, behind a broken tie: positions" in result.stdout


def test_compare_with_the_model_follows_ties(tmp_path: Path, model: Path) -> None:
    first, second = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    call("trace", model, "--ids", "1,2,3", "-o", first)
    call("trace", model, "--ids", "1,2,3", "--backend", "xla", "-o", second)
    assert call("compare", first, second, "--model", model).exit_code == 0
    refused = call("compare", second, first, "--model", model)
    assert refused.exit_code == 3
    assert "is not the golden trace of this model" in refused.stderr


def test_a_partial_golden_trace_is_compared_as_far_as_it_goes(tmp_path: Path) -> None:
    first, second = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    call("trace", "seeded", "--ids", "256,72,101", "-o", second)
    part = Trace.load(second)
    part.arrays = {name: array for name, array in part.arrays.items() if name.endswith(".probs")}
    part.save(first)
    assert parsed(call("compare", first, second, "--json"))["compared"] == [f"layers.{n}.probs" for n in range(4)]


def test_compare_of_nothing_is_not_a_pass(tmp_path: Path) -> None:
    first, second = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    call("trace", "seeded", "--ids", "256,72", "-o", first)
    empty = Trace.load(first)
    empty.arrays = {}
    empty.save(second)
    assert call("compare", first, second).exit_code == 5


def test_check_prints_a_verdict_table_and_exits_0() -> None:
    result = call("check", "--model", "seeded", "--engine", "reference", "--tokens", 4)
    assert result.exit_code == 0
    for words in ("each operation on golden inputs", "Tokens per second, prefill of 4", "reference conforms."):
        assert words in result.stdout


def test_check_of_a_faulty_engine_names_the_divergence_and_exits_1() -> None:
    result = call("check", "--engine", "faulty_engines:Faulty", "--tokens", 4)
    assert result.exit_code == 1
    assert "First divergence: layers.0.q.out" in result.stdout
    assert "does not conform" in result.stdout
    assert "tritgold check --engine faulty_engines:Faulty --only layers.0.q.out --ids" in result.stdout


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
    monkeypatch.setattr("tritgold_conformance.judge.judge", lambda *_: 1 / 0)
    result = call("check", "--model", "seeded", "--engine", "reference", "--tokens", 4)
    assert result.exit_code == 3
    assert "ZeroDivisionError" in result.stderr


def test_check_of_a_crashing_engine_exits_3() -> None:
    result = call("check", "--engine", "faulty_engines:Crashing", "--tokens", 4, "--json")
    assert result.exit_code == 3
    assert parsed(result)["error"] == "EngineError"


def test_a_text_shorter_than_the_telling_inputs_is_judged() -> None:
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
    (model / "config.json").write_text(json.dumps({**config, "rope_scaling": {"type": "yarn"}}))
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


def test_without_a_model_the_trained_one_writes() -> None:
    result = parsed(call("run", "--prompt", "In the beginning God created", "--max-tokens", 4, "--json"))
    assert result["model"] == "kjv-ar"
    assert result["text"].strip().split()[0] == "the"


def test_block_diffusion_says_how_many_passes_it_took() -> None:
    arguments = ("run", "kjv-dlm", "--prompt", "And it came to pass", "--max-tokens", 8)
    single = parsed(call(*arguments, "--threshold", 1, "--json"))
    fewer = parsed(call(*arguments, "--threshold", 0, "--json"))
    assert single["threshold"] == 1
    assert single["forwards"] >= len(single["ids"]) == len(single["order"]) == 8
    assert fewer["forwards"] < single["forwards"]
    text = call(*arguments)
    assert text.exit_code == 0
    assert "passes, reference]" in text.stderr


def test_every_way_to_decode_has_a_name() -> None:
    assert ("ar", *PRESETS) == DECODE
    common = ("run", "kjv-dlm", "--prompt", "And it came to pass", "--max-tokens", 4, "--json")
    default = parsed(call(*common))
    assert default["decode"] == "fast-dllm-v2"
    for name in DECODE:
        result = parsed(call(*common, "--decode", name))
        assert (result["decode"], len(result["ids"]), result["reason"]) == (name, 4, "length")
    assert parsed(call("run", "--prompt", "And", "--max-tokens", 1, "--json"))["decode"] == "ar"


def test_sizes_of_blocks_can_be_chosen() -> None:
    arguments = ("run", "kjv-dlm", "--ids", "0,5,6,7", "--max-tokens", 8, "--json", "--threshold", 0)
    blocks = [
        parsed(call(*arguments, "--block-size", block, "--sub-block-size", sub_block))["forwards_per_block"]
        for block, sub_block in ((4, 4), (4, 2), (8, 8))
    ]
    assert blocks == [[2, 1], [3, 2], [2, 1]]  # a pass a sub-block, and one to keep a block that others follow
    refused = call(*arguments, "--block-size", 8, "--sub-block-size", 3)
    assert (refused.exit_code, parsed(refused)["kind"]) == (3, "sub-block")
    refused = call("run", "kjv-ar", "--ids", "0,5", "--decode", "greedy", "--json")
    assert (refused.exit_code, parsed(refused)["kind"]) == (3, "no-diffusion")


@pytest.mark.parametrize(
    "arguments",
    [
        ("kjv-dlm", "--backend", "xla"),
        ("kjv-ar", "--threshold", 0.9),
        ("kjv-ar", "--block-size", 8),
        ("kjv-dlm", "--decode", "ar", "--sub-block-size", 8),
        ("kjv-dlm", "--decode", "greedy", "--threshold", 0.9),
        ("kjv-dlm", "--decode", "gready"),
        ("kjv-dlm", "--block-size", 0),
        ("kjv-dlm", "--threshold", -1),
    ],
)
def test_what_block_diffusion_cannot_do_is_a_usage_error(arguments: tuple[object, ...]) -> None:
    assert call("run", *arguments, "--ids", "1,5").exit_code == 2


@pytest.mark.parametrize("tokens", [0, -100])
@pytest.mark.parametrize("model", ["kjv-ar", "kjv-dlm"])
def test_a_budget_of_nothing_is_refused(model: str, tokens: int) -> None:
    result = call("run", model, "--ids", "0,5", "--max-tokens", tokens, "--json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "is not in the range x>=1" in result.stderr


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

    monkeypatch.setattr("tritgold_conformance.inspection.inspect_model", denied)
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

    monkeypatch.setattr("tritgold_conformance.inspection.inspect_model", interrupted)
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
