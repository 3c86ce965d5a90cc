"""Which ids end a text: one rule, the same in every container, kept by every conversion."""

import json
from pathlib import Path
from typing import Any

import pytest
from conversions import bitnet, converted, metadata, rewritten
from refusals import refusal

from tritgold.checkpoint import open_checkpoint
from tritgold.errors import ConfigError, TritgoldWarning

TARGETS = ("hf", "i2_s", "sglbitnt")


def folder(tmp_path: Path, config: Any, generation: Any) -> Path:
    """A model with these eos_token_id; generation: all of generation_config.json, None for no such file."""
    source = bitnet(tmp_path)
    values = json.loads((source / "config.json").read_text()) | {"eos_token_id": config}
    (source / "config.json").write_text(json.dumps(values))
    file = source / "generation_config.json"
    if generation is None:
        file.unlink()
    else:
        file.write_text(json.dumps(generation))
    return source


@pytest.mark.parametrize(
    ("config", "generation", "eos"),
    [
        (2, {"eos_token_id": [257, 3]}, (257, 3)),
        ([1, 2], {"eos_token_id": 257}, (257,)),
        (None, {"eos_token_id": [4, 3, 2, 1]}, (4, 3, 2, 1)),
        (None, {"temperature": 0.6}, ()),
        ([5, 6], None, (5, 6)),
    ],
)
def test_generation_config_goes_before_config_in_every_container(
    tmp_path: Path, config: Any, generation: Any, eos: tuple[int, ...]
) -> None:
    source = folder(tmp_path, config, generation)
    assert open_checkpoint(source).config.eos == eos
    for to in TARGETS:
        (tmp_path / to).mkdir()
        once = converted(source, tmp_path / to, to)
        assert once.config.eos == eos
        (tmp_path / to / "back").mkdir()
        back = converted(once, tmp_path / to / "back", "hf")
        assert back.config.eos == eos


@pytest.mark.parametrize("generation", [{"temperature": 0.6}, {"eos_token_id": []}, {"eos_token_id": None}, {}])
def test_a_generation_config_without_ids_stops_at_nothing_and_that_is_said(tmp_path: Path, generation: Any) -> None:
    """transformers 5.24 replaces the ids of config.json by that file's, which are none."""
    source = folder(tmp_path, [5, 6], generation)
    with pytest.warns(TritgoldWarning, match=r"gives no eos_token_id.*\[5, 6\] of config.json are not asked"):
        opened = open_checkpoint(source)
    assert opened.config.eos == ()
    with pytest.warns(TritgoldWarning, match="gives no eos_token_id"):
        assert converted(opened, tmp_path, "hf").config.eos == ()
    assert converted(opened, tmp_path, "i2_s").config.eos == ()


def test_texts_stay_as_they_are(tmp_path: Path) -> None:
    source = folder(tmp_path, 2, {"eos_token_id": [257, 3]})
    converted(source, tmp_path, "hf")
    for name in ("config.json", "generation_config.json"):
        assert (tmp_path / "hf" / name).read_text() == (source / name).read_text()


def test_the_keys_of_a_gguf_file_decide_over_a_text_that_it_carries(tmp_path: Path) -> None:
    converted(folder(tmp_path, 2, {"eos_token_id": [257, 3], "top_k": 5}), tmp_path, "i2_s")
    assert metadata(tmp_path / "i2_s.gguf")["tokenizer.ggml.eot_token_id"] == 3
    changed = rewritten(tmp_path / "i2_s.gguf", lambda said: said.update({"tokenizer.ggml.eos_token_id": 7}))
    assert converted(changed, tmp_path, "hf").config.eos == (7, 3)
    generation = json.loads((tmp_path / "hf" / "generation_config.json").read_text())
    assert generation == {"eos_token_id": [7, 3], "top_k": 5}


def test_ids_outside_the_vocabulary_are_left_out_of_every_container(tmp_path: Path) -> None:
    source = folder(tmp_path, 2, {"eos_token_id": [9999, 3]})
    with pytest.warns(TritgoldWarning, match="generation_config.json: eos_token_id 9999 lies outside"):
        opened = open_checkpoint(source)
    assert opened.config.eos == (3,)
    for to in TARGETS:
        with pytest.warns(TritgoldWarning) if to == "hf" else pytest.MonkeyPatch.context():
            assert converted(opened, tmp_path, to).config.eos == (3,)
    changed = rewritten(tmp_path / "i2_s.gguf", lambda said: said.update({"tokenizer.ggml.eom_token_id": 9999}))
    with pytest.warns(TritgoldWarning, match="9999 lies outside the vocabulary"):
        assert open_checkpoint(changed).config.eos == (3,)


@pytest.mark.parametrize("generation", [{"eos_token_id": "3"}, {"eos_token_id": [True]}, {"eos_token_id": 3.0}, [3]])
def test_what_is_not_an_id(tmp_path: Path, generation: Any) -> None:
    error = refusal(lambda: open_checkpoint(folder(tmp_path, 2, generation)))
    assert isinstance(error, ConfigError)
    assert error.file is not None
    assert error.file.endswith("generation_config.json")
