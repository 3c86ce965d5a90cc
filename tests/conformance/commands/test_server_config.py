"""A server's YAML file: what it may hold, whose word counts, and that nothing is passed over in silence."""

import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from refusals import assert_printable, frugal, refusal

from tritgold.errors import ConfigError
from tritgold_conformance.cli import main
from tritgold_conformance.commands.server_config import KEYS, MODES, ServerConfig, example, load

# A file as that server's documentation shows it.
DOCUMENTED = """
model_path: /models/dlm.gguf
host: 0.0.0.0
port: 30000

dlm:
  block_size: 32        # Must match training
  threshold: 0.95
  small_block_size: 8
  mask_token_id: null   # Auto-detect if null

scheduler:
  max_sequences: 16
  enable_radix_cache: true
  radix_cache_max_tokens: 100000

benchmark:
  enabled: false
  iterations: 50
  max_tokens: 64
  prompt: "What is the meaning of life?"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "dlm.yaml"


def read(file: Path, text: str | bytes) -> ServerConfig:
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load(file)


def refused(file: Path, text: str | bytes) -> ConfigError:
    with pytest.raises(ConfigError) as raised:
        read(file, text)
    assert_printable(raised.value)
    assert str(file) in str(raised.value)
    return raised.value


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("sparsity: {mode: top_k, top_k_ratio: 0.7}", ["--sparsity", "top_k:keep=0.7"]),
        ("attention_sparsity: {mode: window}", ["--sparsity", "attention_window:window=256"]),
        ("generation: {temperature: 0.8}", ["--temperature", "0.8", "--seed", "7"]),
    ],
)
def test_sections_of_the_notebooks_other_files_are_options(file: Path, text: str, options: list[str]) -> None:
    """What the hint says is followed: the file without the section, and the options, run."""
    error = refused(file, f"model_path: kjv-ar\ndlm: {{decode_mode: ar}}\n{text}")
    assert error.kind == "config-unknown-key"
    assert error.hint is not None
    assert all(option in error.hint for option in options if option.startswith("--"))
    assert read(file, "model_path: kjv-ar\ndlm: {decode_mode: ar}").given
    words = ["run", "--config", str(file), *options, "--prompt", "God", "--max-tokens", "1"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output


def test_the_documented_file(file: Path) -> None:
    config = read(file, DOCUMENTED)
    assert config.given["model_path"] == "/models/dlm.gguf"
    assert (config["dlm.threshold"], config["dlm.mask_token_id"]) == (0.95, None)
    assert config["dlm.max_iterations_per_block"] == 10, "not in the file: the server's default"
    assert config.mode == "greedy"
    assert config.unused == (
        "host", "port", "scheduler.max_sequences", "scheduler.enable_radix_cache", "scheduler.radix_cache_max_tokens",
        "benchmark.enabled", "benchmark.iterations", "benchmark.max_tokens", "benchmark.prompt",
    )  # fmt: skip


@pytest.mark.parametrize("text", ["", "# nothing\n", "dlm:\n", "{}"])
def test_every_key_may_be_left_out(file: Path, text: str) -> None:
    config = read(file, text)
    assert dict(config.given) == {}
    assert {key: config[key] for key in KEYS} == {key: wanted.default for key, wanted in KEYS.items()}
    assert (config["dlm.block_size"], config["dlm.threshold"], config.mode) == (32, 0.7, "greedy")


def test_the_example_is_the_defaults_and_says_every_key_once(file: Path) -> None:
    config = read(file, example())
    assert dict(config.given) == {key: wanted.default for key, wanted in KEYS.items()}
    assert example().startswith("# ")
    assert all(re.search(r"\S  +# \S", line) for line in example().splitlines()[2:] if re.match(r" *\w+: ", line))


@pytest.mark.parametrize(
    ("given", "environment", "expected"),
    [
        ("model_path: a.gguf", {"MODEL_PATH": "b.gguf"}, "a.gguf"),
        ("", {"MODEL_PATH": "b.gguf"}, "b.gguf"),
        ("", {"MODEL_PATH": ""}, "kjv-dlm"),
        ("", {}, "kjv-dlm"),
    ],
)
def test_the_file_counts_for_more_than_the_environment(
    file: Path, given: str, environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    for name in ("a.gguf", "b.gguf"):
        (file.parent / name).touch()
    assert read(file, given).model(environment) == expected


@pytest.mark.parametrize(
    ("given", "environment", "thing"),
    [
        ("", {"MODEL_PATH": " "}, "environment: MODEL_PATH"),
        ("", {"MODEL_PATH": "\udcff" + "a" * 5000}, "environment: MODEL_PATH"),
        ("model_path: nowhere", {"MODEL_PATH": "kjv-ar"}, "model_path"),
    ],
)
def test_a_model_that_is_not_there_names_who_named_it(
    file: Path, given: str, environment: dict[str, str], thing: str
) -> None:
    config = read(file, given)
    error = refusal(lambda: config.model(environment))
    assert (error.kind, error.thing, error.file) == ("model-path", thing, str(file) if given else None)


@pytest.mark.parametrize(("said", "meant"), [("ITER", "iterative"), ("adapt", "adaptive"), ("fast-dllm-v2", None)])
def test_modes_have_short_names_and_no_case(file: Path, said: str, meant: str | None) -> None:
    assert read(file, f"dlm: {{decode_mode: {said}}}").mode == (meant or said)


@pytest.mark.parametrize(
    ("text", "key", "listed"),
    [
        ("treshold: 0.9", "'treshold'", "model_path, host, port, dlm, scheduler, benchmark"),
        ("dlm: {treshold: 0.9}", "'dlm.treshold'", "dlm.block_size, dlm.threshold, dlm.small_block_size"),
        ("threshold: 0.9", "'threshold'", "model_path"),
        ("scheduler: {threshold: 0.9}", "'scheduler.threshold'", "scheduler.max_sequences"),
        ("7: 0.9", "7", "model_path"),
        ("dlm: {1: 2}", "'dlm.1'", "dlm.block_size"),
        ("x: &x {port: 1}\n<<: *x", "'<<'", ""),
    ],
)
def test_unknown_keys_are_answered_with_the_list(file: Path, text: str, key: str, listed: str) -> None:
    error = refused(file, text)
    assert (error.kind, error.got) == ("config-unknown-key", key)
    assert listed in (error.expected or "")


def test_an_unknown_mode_is_answered_with_the_list(file: Path) -> None:
    error = refused(file, "dlm: {decode_mode: gready}")
    assert (error.kind, error.thing, error.got) == ("config-value", "dlm.decode_mode", "'gready'")
    assert all(mode in (error.expected or "") for mode in MODES)


@pytest.mark.parametrize(
    ("text", "thing"),
    [
        ("dlm: {threshold: 0}", "dlm.threshold"),
        ("dlm: {threshold: 1}", "dlm.threshold"),
        ("dlm: {threshold: -0.5}", "dlm.threshold"),
        ("dlm: {threshold: .nan}", "dlm.threshold"),
        ("dlm: {threshold: .inf}", "dlm.threshold"),
        ("dlm: {threshold: '0.9'}", "dlm.threshold"),
        ("dlm: {threshold: true}", "dlm.threshold"),
        ("dlm: {threshold: }", "dlm.threshold"),
        ("dlm: {block_size: 0}", "dlm.block_size"),
        ("dlm: {block_size: 32.0}", "dlm.block_size"),
        ("dlm: {block_size: true}", "dlm.block_size"),
        ("dlm: {block_size: [32]}", "dlm.block_size"),
        ("dlm: {small_block_size: 0}", "dlm.small_block_size"),
        ("dlm: {small_block_size: 5}", "dlm.small_block_size"),
        ("dlm: {block_size: 12}", "dlm.small_block_size"),
        ("dlm: {mask_token_id: -1}", "dlm.mask_token_id"),
        ("dlm: {mask_token_id: auto}", "dlm.mask_token_id"),
        ("dlm: {max_iterations_per_block: 0}", "dlm.max_iterations_per_block"),
        ("dlm: {decode_mode: 3}", "dlm.decode_mode"),
        ("dlm: [1]", "dlm"),
        ("dlm: greedy", "dlm"),
        ("port: 65536", "port"),
        ("port: 0x" + "f" * 9000, "port"),
        ("host: 2026-11-28", "host"),
        ("model_path: ''", "model_path"),
        ("scheduler: {max_sequences: 0}", "scheduler.max_sequences"),
        ("scheduler: {enable_radix_cache: 1}", "scheduler.enable_radix_cache"),
        ("benchmark: {prompt: 5}", "benchmark.prompt"),
    ],
)
def test_values_of_a_wrong_type_or_out_of_range(file: Path, text: str, thing: str) -> None:
    error = refused(file, text)
    assert (error.kind, error.thing) == ("config-value", thing)


@pytest.mark.parametrize(
    "text", ["port: 1\nport: 1", "dlm: {}\ndlm: {threshold: 0.9}", "dlm:\n  threshold: 0.5\n  threshold: 0.9\n"]
)
def test_a_key_given_twice_is_refused_and_not_the_last_taken(file: Path, text: str) -> None:
    assert refused(file, text).kind == "config-duplicate"


@pytest.mark.parametrize(
    "text",
    [
        b"\xff\xfe",
        b"\x80",
        "dlm: {",
        "dlm:\n\tthreshold: 0.5",
        "- a\n- b",
        "just text",
        "a: 1\n---\nb: 2",
        "? [1, 2]\n: 3",
        "dlm: !!python/object/apply:os.getcwd []",
        "host: \x07",
        "port: " + "9" * 9000,
        "host: 2026-99-99",
        "dlm: " + "[" * 5000,
        "#" * (1 << 20) + "\nport: 1",
        'port: !!int ""',
        'dlm: {threshold: !!float ""}',
        "benchmark: {enabled: !!bool maybe}",
        "host: !!timestamp foo",
        "port: !!int [1]",
    ],
    ids=range(19),
)
def test_what_is_no_such_file_says_why(file: Path, text: str | bytes) -> None:
    assert refused(file, text).kind == "config-file"


def test_an_error_of_yaml_has_a_line_and_says_found_once(file: Path) -> None:
    for text in ('host: a\nport: !!int ""', "host: a\n\tport: 1"):
        error = refused(file, text)
        assert "(line 2)" in str(error)
        assert "found found" not in str(error)


@pytest.mark.parametrize("parts", [2, 300, 3000])
def test_what_has_colons_is_text_as_in_yaml_1_2(file: Path, parts: int) -> None:
    for text, thing in (
        (f"port: {':'.join(['1'] * parts)}", "port"),
        (f"dlm: {{threshold: {':'.join(['1'] * parts)}.5}}", "dlm.threshold"),
        (f"port: !!int {':'.join(['1'] * parts)}", "port"),
    ):
        file.write_text(text)
        with frugal():
            error = refusal(lambda: load(file))
        assert (error.kind, error.thing) == ("config-value", thing)
        assert str(error.got).startswith("'1:1"), "and no number, which takes long to make of many parts"


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    error = refusal(lambda: load(tmp_path / "pipe"))
    assert (error.kind, error.got) == ("config-file", "not a regular file")


def test_a_default_that_does_not_fit_is_called_one(file: Path) -> None:
    assert "small_block_size: the server's default" in (refused(file, "dlm: {block_size: 12}").expected or "")
    assert "block_size: the server's default" in (refused(file, "dlm: {small_block_size: 5}").expected or "")


def test_an_integer_that_is_too_large_is_told_the_limit(file: Path) -> None:
    assert refused(file, "dlm: {block_size: 99999999999999999999}").expected == "an integer, 1 to 2147483647"


def test_a_file_that_is_not_there_or_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(ConfigError) as raised:
            load(path)
        assert raised.value.kind == "config-file"


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(["a0: &a0 {x: 1}", *(f"a{n + 1}: &a{n + 1} {{<<: [*a{n}, *a{n}]}}" for n in range(40))]),
        "\n".join(["a0: &a0 [1]", *(f"a{n + 1}: &a{n + 1} [*a{n}, *a{n}]" for n in range(60))]),
        "dlm: &a\n  threshold: *a",
        "dlm: &a {dlm: *a}",
    ],
    ids=["merges", "aliases", "itself", "inside itself"],
)
def test_a_small_file_takes_no_large_memory(file: Path, text: str) -> None:
    file.write_text(text)
    with frugal(seconds=2), pytest.raises(ConfigError):
        load(file)


def test_one_file_alone_knows_yaml() -> None:
    root = Path(__file__).parents[3]
    files = [path for part in ("reference", "accelerated", "conformance") for path in (root / part).rglob("*.py")]
    knowing = [path.name for path in files if re.search(r"^\s*(import|from) yaml\b", path.read_text(), re.MULTILINE)]
    assert knowing == ["strict_yaml.py"]
