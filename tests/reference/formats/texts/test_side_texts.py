"""The text files that go with a model, whatever holds them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf_bytes as g
import numpy as np
import pytest
from refusals import refusal
from small_models import as_gguf, seeded
from tokenizer_files import as_text, spm_file

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.errors import TritgoldWarning
from tritgold.formats.texts.side_texts import side_texts, template_of, texts_as_metadata
from tritgold.golden import trained_model
from tritgold.golden.seeded import byte_tokenizer
from tritgold.tokenizer import Tokenizer

NAMED = '{"chat_template": [{"name": "x", "template": "1"}, {"name": "default", "template": "2"}]}'
TEMPLATE = "{% for m in messages %}\r\n{{ m.content }}{% endfor %}"


def gguf_with(folder: Path, metadata: dict[str, Any]) -> Checkpoint:
    """The seeded model as a GGUF file with these further keys."""
    model = as_gguf(seeded(folder).write(folder / "hf"), "bitnet-b1.58")
    for key, value in metadata.items():
        if isinstance(value, str):
            model.set(key, g.STRING, value)
        elif isinstance(value, bool):
            model.set(key, g.BOOL, value)
        elif isinstance(value, int):
            model.set(key, g.U32, value)
        elif isinstance(value, np.ndarray):
            model.set(key, g.ARRAY, g.array(g.I32, value.tolist()))
        else:
            model.set(key, g.ARRAY, g.array(g.STRING, value))
    return open_checkpoint(model.write(folder / "m.gguf"))


def test_a_folder_has_its_files_byte_for_byte(tmp_path: Path) -> None:
    folder = seeded(tmp_path).write(tmp_path / "hf")
    (folder / "chat_template.jinja").write_bytes(TEMPLATE.encode())
    (folder / "README.md").write_text("not the model's")
    checkpoint = open_checkpoint(folder)
    texts = checkpoint.texts()
    assert list(texts) == ["config.json", "tokenizer.json", "chat_template.jinja"]
    assert checkpoint.tokenizer_json() == texts["tokenizer.json"] == byte_tokenizer()
    assert checkpoint.chat_template() == texts["chat_template.jinja"] == TEMPLATE


def test_an_embedded_model_has_its_template_in_tokenizer_config() -> None:
    template = open_checkpoint(trained_model("kjv-ar")).chat_template()
    assert template
    assert template.startswith("{% for message in messages %}{{ message.role")


@pytest.mark.parametrize(
    ("texts", "template"),
    [
        ({}, None),
        ({"tokenizer_config.json": "{}"}, None),
        ({"tokenizer_config.json": "[]"}, None),
        ({"tokenizer_config.json": '{"chat_template": "b"}'}, "b"),
        ({"tokenizer_config.json": '{"chat_template": "b"}', "chat_template.jinja": "a"}, "a"),
        ({"tokenizer_config.json": NAMED}, "2"),
    ],
)
def test_where_the_template_is(texts: dict[str, str], template: str | None) -> None:
    assert template_of(texts, Path("m")) == template


@pytest.mark.parametrize(
    "config",
    [
        "{",
        '{"chat_template": 7}',
        '{"chat_template": [{"name": "default", "template": 7}]}',
    ],
)
def test_what_is_no_template(config: str) -> None:
    error = refusal(lambda: template_of({"tokenizer_config.json": config}, Path("m")))
    assert (error.kind, error.file) == ("chat-template", str(Path("m") / "tokenizer_config.json"))


@pytest.mark.parametrize("with_text", [True, False])
def test_a_gguf_file_has_its_texts_in_the_metadata(tmp_path: Path, with_text: bool) -> None:
    config = open_checkpoint(seeded(tmp_path).write(tmp_path / "hf")).config
    metadata = texts_as_metadata({"tokenizer.json": byte_tokenizer(), "chat_template.jinja": TEMPLATE}, config)
    if not with_text:
        del metadata["tokenizer.huggingface.json"]
    checkpoint = gguf_with(tmp_path, metadata)
    assert checkpoint.chat_template() == TEMPLATE
    texts = checkpoint.texts()
    assert list(texts) == ["tokenizer.json", "chat_template.jinja", "tokenizer_config.json"]
    assert (texts["tokenizer.json"] == byte_tokenizer()) is with_text
    assert Tokenizer.from_text(texts["tokenizer.json"]).encode("Hé") == [256, *"Hé".encode()]
    told = json.loads(texts["tokenizer_config.json"])
    assert (told["bos_token"], told["eos_token"]) == ("<bos>", "<eos>")


def test_a_gguf_file_without_a_tokenizer(tmp_path: Path) -> None:
    checkpoint = gguf_with(tmp_path, {})
    assert (checkpoint.texts(), checkpoint.tokenizer_json(), checkpoint.chat_template()) == ({}, None, None)


def test_errors_name_the_gguf_file(tmp_path: Path) -> None:
    bad = gguf_with(tmp_path, {"tokenizer.ggml.model": "bert", "tokenizer.chat_template": 7})
    for act, kind in ((bad.tokenizer_json, "tokenizer-model"), (bad.chat_template, "chat-template")):
        error = refusal(act)
        assert (error.kind, error.file) == (kind, str(tmp_path / "m.gguf"))


def test_a_tokenizer_that_llama_cpp_has_no_keys_for_is_kept_as_text(tmp_path: Path) -> None:
    config = open_checkpoint(seeded(tmp_path).write(tmp_path / "hf")).config
    raw = json.loads(byte_tokenizer())
    raw["normalizer"] = {"type": "Lowercase"}
    with pytest.warns(TritgoldWarning, match="kept as tokenizer.huggingface.json alone"):
        metadata = texts_as_metadata({"tokenizer.json": as_text(raw)}, config)
    assert metadata == {"tokenizer.ggml.model": "none", "tokenizer.huggingface.json": as_text(raw)}
    assert gguf_with(tmp_path, metadata).tokenizer_json() == as_text(raw)
    assert texts_as_metadata({}, config) == {"tokenizer.ggml.model": "none"}
    assert refusal(lambda: texts_as_metadata({"tokenizer.json": "{}"}, config)).kind == "tokenizer"


def test_ids_are_the_configurations(tmp_path: Path) -> None:
    config = open_checkpoint(seeded(tmp_path).write(tmp_path / "hf")).config
    spm = {"tokenizer.json": as_text(spm_file())}
    metadata = texts_as_metadata(spm, replace(config, vocab=400, bos=1, eos=(2, 0)))
    found = [metadata[f"tokenizer.ggml.{key}_token_id"] for key in ("bos", "eos", "unknown")]
    assert found == [1, 2, 0]
    assert len(metadata["tokenizer.ggml.tokens"]) == 400


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    folder = seeded(tmp_path).write(tmp_path / "hf")
    (folder / "tokenizer.json").write_bytes(b"\xff\xfe")
    error = refusal(open_checkpoint(folder).tokenizer_json)
    assert (error.kind, error.file) == ("not-utf8", str(folder / "tokenizer.json"))


def test_a_file_without_room_for_text_has_them_beside_it(tmp_path: Path) -> None:
    """Only what cannot be elsewhere: such a file holds its own configuration."""
    file, container = tmp_path / "m.bin", open_checkpoint(trained_model("kjv-ar")).container
    file.touch()
    for name in ("tokenizer.json", "chat_template.jinja", "config.json"):
        (tmp_path / f"m.bin.{name}").write_text(name)
    (tmp_path / "tokenizer.json").write_text("of another model")
    assert side_texts(file, container) == {n: n for n in ("tokenizer.json", "chat_template.jinja")}
    (tmp_path / "m.bin.tokenizer.json").unlink()
    assert side_texts(file, container, ("tokenizer.json",)) == {}
