"""--tokenizer, wherever a file is opened whose own tokenizer is missing or of an unknown kind."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from conversions import bitnet, converted, metadata, rewritten

from tritgold.checkpoint import open_checkpoint
from tritgold_conformance.cli import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bitnet(tmp_path_factory.mktemp("source"))


@pytest.fixture
def unknown(folder: Path, tmp_path: Path) -> Path:
    """As the official Falcon-E files are: llama.cpp's keys alone, under a rule of splitting that only a fork knows."""
    converted(folder, tmp_path, "i2_s")

    def change(said: dict[str, object]) -> None:
        for key in [k for k in said if k.startswith("tritgold.text.") or k == "tokenizer.huggingface.json"]:
            del said[key]
        said["tokenizer.ggml.pre"] = "falcon_e"

    return rewritten(tmp_path / "i2_s.gguf", change)


def run(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.mark.parametrize("to", ["tq2_0", "hf", "sglbitnt"])
def test_convert_takes_the_tokenizer_that_its_own_refusal_names(
    unknown: Path, folder: Path, tmp_path: Path, to: str
) -> None:
    refused = run("convert", unknown, tmp_path / "out", "--to", to)
    assert refused.exit_code == 3
    assert "--tokenizer FILE" in refused.output
    done = run("convert", unknown, tmp_path / "out", "--to", to, "--tokenizer", folder / "tokenizer.json")
    assert done.exit_code == 0, done.output
    written = open_checkpoint(tmp_path / "out")
    assert written.tokenizer_json() == (folder / "tokenizer.json").read_text()
    if to == "tq2_0":
        assert metadata(tmp_path / "out")["tokenizer.ggml.pre"] == "falcon_e"


def test_a_tokenizer_takes_the_place_of_one_that_is_there(folder: Path, tmp_path: Path) -> None:
    values = json.loads((folder / "tokenizer.json").read_text())
    other = tmp_path / "other.json"
    other.write_text(json.dumps(values))
    assert other.read_text() != (folder / "tokenizer.json").read_text()
    for to in ("hf", "i2_s"):
        assert run("convert", folder, tmp_path / to, "--to", to, "--tokenizer", other).exit_code == 0
        assert open_checkpoint(tmp_path / to).tokenizer_json() == other.read_text()


def test_what_is_not_a_tokenizer(folder: Path, tmp_path: Path) -> None:
    missing = run("convert", folder, tmp_path / "out", "--to", "i2_s", "--tokenizer", tmp_path / "none.json")
    assert missing.exit_code == 2
    (tmp_path / "bad.json").write_text("{}")
    bad = run("convert", folder, tmp_path / "out", "--to", "i2_s", "--tokenizer", tmp_path / "bad.json")
    assert bad.exit_code == 3
    assert "bad.json" in bad.output
    assert not (tmp_path / "out").exists()


def test_run_on_an_unknown_kind(unknown: Path, folder: Path) -> None:
    done = run("run", unknown, "--prompt", "ab", "--max-tokens", "2", "--tokenizer", folder / "tokenizer.json")
    assert done.exit_code == 0, done.output
