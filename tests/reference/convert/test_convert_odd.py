"""Odd sources and destinations: what is said of them, refused, or written through."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conversions import bitnet, converted, llama, metadata, options, rewritten
from refusals import refusal
from small_models import WIDE, bf16_entry, seeded

from tritgold.checkpoint import open_checkpoint
from tritgold.convert import convert
from tritgold.errors import TritgoldWarning
from tritgold.formats.container import holes
from tritgold.formats.layouts import Layouts


def test_an_option_that_contradicts_the_file_is_said(tmp_path: Path) -> None:
    source = open_checkpoint(bitnet(tmp_path))
    converted(source, tmp_path, "i2_s")
    with pytest.warns(TritgoldWarning, match="says another layout of I2_S, 128; the option goes before it"):
        open_checkpoint(tmp_path / "i2_s.gguf", layouts=Layouts(i2_s="64"))
    converted(source, tmp_path, "tl1")
    other = {"BM": 64, "BK": 64, "bm": 32}
    for layouts in (Layouts(tile=other), Layouts(tiles={(256, 256): other})):
        with pytest.warns(TritgoldWarning, match="says another layout of .*256 x 256"):
            open_checkpoint(tmp_path / "tl1.gguf", layouts=layouts)


def test_a_file_with_a_hole_is_not_converted(tmp_path: Path) -> None:
    """B52: the half that is missing reads as weights of -1."""
    source = bitnet(tmp_path)
    file = source / "model.safetensors"
    whole, size = file.read_bytes(), file.stat().st_size
    with file.open("r+b") as opened:
        opened.truncate(size - 100_000)
        opened.truncate(size)
    assert file.read_bytes() != whole
    if not holes(file):
        pytest.skip("this file system has no holes")
    with pytest.warns(TritgoldWarning):  # scales of 0
        sparse = open_checkpoint(source)
    assert refusal(lambda: converted(sparse, tmp_path, "i2_s")).kind == "sparse"
    assert not (tmp_path / "i2_s.gguf").exists()


@pytest.mark.parametrize("scale", [0.37, 0.0, -1.5])
@pytest.mark.parametrize("to", ["gguf-f16", "gguf-f32", "tq1_0", "i2_s"])
def test_a_matrix_of_zeros(to: str, scale: float, tmp_path: Path) -> None:
    """Whatever its scale: it says nothing, and the products are 0."""
    model = seeded(tmp_path, WIDE)
    name = "model.layers.0.self_attn.v_proj"
    rows, columns = model.entries[f"{name}.weight"].shape
    model.entries[f"{name}.weight"] = replace(model.entries[f"{name}.weight"], data=b"\x55" * rows * columns)
    model.entries[f"{name}.weight_scale"] = bf16_entry(np.array([scale], np.float32))
    with pytest.warns() if scale < 0 else nullcontext():
        opened = open_checkpoint(model.write(tmp_path / "m"))
        result = converted(opened, tmp_path, to)
        assert not result.weights.layers[0].v.ternary().trits.any()
        converted(result, tmp_path, "hf", scale_rule="divide")


def test_what_was_given_up_is_counted(tmp_path: Path) -> None:
    source = open_checkpoint(llama(tmp_path))
    done = convert(source, tmp_path / "m.gguf", "tq2_0", options("tq2_0", round_scales=True))
    assert (done.rounded_scales, done.read_as_zero) == (7, 0)
    folder = bitnet(tmp_path)
    raw, tensors = bytearray((folder / "model.safetensors").read_bytes()), open_checkpoint(folder).container.tensors
    at = tensors["model.layers.0.self_attn.q_proj.weight"].offset
    raw[at : at + 2] = b"\xff\xc0"  # four and one
    (folder / "model.safetensors").write_bytes(raw)
    lenient = open_checkpoint(folder, layouts=Layouts(code3_as_zero=True))
    done = convert(lenient, tmp_path / "n.gguf", "i2_s", options("i2_s"))
    assert (done.rounded_scales, done.read_as_zero) == (0, 5)


def test_a_value_that_is_no_number_goes_along(tmp_path: Path) -> None:
    """A NaN in a descriptive key is equal to itself."""
    converted(bitnet(tmp_path), tmp_path, "i2_s")

    def change(said: dict[str, Any]) -> None:
        said |= {"general.quality": float("nan"), "general.weights": np.array([np.nan, -0.0], np.float32)}

    source = rewritten(tmp_path / "i2_s.gguf", change)
    converted(source, tmp_path, "tq2_0")
    assert np.isnan(metadata(tmp_path / "tq2_0.gguf")["general.quality"])


def test_a_link_is_written_through(tmp_path: Path) -> None:
    source = open_checkpoint(bitnet(tmp_path))
    (tmp_path / "real.gguf").write_bytes(b"old")
    (tmp_path / "link.gguf").symlink_to(tmp_path / "real.gguf")
    convert(source, tmp_path / "link.gguf", "i2_s", options("i2_s"))
    assert (tmp_path / "link.gguf").is_symlink()
    assert open_checkpoint(tmp_path / "real.gguf").model_hash() == source.model_hash()


def test_templates_without_a_default_do_not_stand_in_the_way(tmp_path: Path) -> None:
    source = bitnet(tmp_path)
    text = '{"chat_template": [{"name": "rag", "template": "{{ x }}"}]}'
    (source / "tokenizer_config.json").write_text(text)
    assert open_checkpoint(source).chat_template() is None
    converted(source, tmp_path, "i2_s")
    converted(tmp_path / "i2_s.gguf", tmp_path, "hf")
    assert (tmp_path / "hf" / "tokenizer_config.json").read_text() == text


def test_a_text_file_that_is_a_folder_leaves_the_earlier_file_alone(tmp_path: Path) -> None:
    source = open_checkpoint(bitnet(tmp_path))
    converted(source, tmp_path, "sglbitnt")
    template = tmp_path / "sglbitnt.bin.chat_template.jinja"
    template.unlink()
    template.mkdir()
    before = {name: (tmp_path / name).read_bytes() for name in ("sglbitnt.bin", "sglbitnt.bin.tokenizer.json")}
    assert refusal(lambda: converted(source, tmp_path, "sglbitnt")).kind == "exists"
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
