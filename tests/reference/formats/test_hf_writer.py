"""Writing a Hugging Face folder: what other libraries read in it, and that it appears whole or not at all."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

from tritgold.formats.hf_writer import bf16_entry, packed_entries, write_hf_folder
from tritgold.formats.safetensors_file import Entry, SafetensorsFile, write_safetensors

TRITS = np.array([[1, 0], [-1, 1], [0, 0], [1, -1], [0, 1]], np.int8)


def test_a_folder_read_by_the_library(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    entries = {"norm.weight": bf16_entry(values), **packed_entries("q_proj", TRITS, np.float32(1.2109375))}
    write_hf_folder(tmp_path, {"a": 1}, entries, {"note.txt": "é"})
    assert json.loads((tmp_path / "config.json").read_text()) == {"a": 1}
    assert (tmp_path / "note.txt").read_bytes() == "é".encode()
    theirs = load_file(tmp_path / "model.safetensors")
    assert np.array_equal(theirs["norm.weight"], values.astype(ml_dtypes.bfloat16))
    # R = 2: byte (r, c) holds rows r, 2 + r, 4 + r, and nothing.
    assert theirs["q_proj.weight"].tolist() == [[0b00_01_01_10, 0b00_10_01_01], [0b00_00_10_00, 0b00_00_00_10]]
    assert theirs["q_proj.weight"].dtype == np.uint8
    scale = theirs["q_proj.weight_scale"]
    assert (scale.dtype, scale.shape, float(scale[0])) == (ml_dtypes.bfloat16, (1,), 1.2109375)


def test_a_failed_write_leaves_the_old_file_and_no_scrap(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    write_safetensors(path, {"a": bf16_entry(np.ones(2, np.float32))}, {})
    before = path.read_bytes()
    with pytest.raises(TypeError):
        write_safetensors(path, {"b": Entry("U8", (2,), "no bytes")}, {})  # type: ignore[arg-type]
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m.safetensors"]
    assert list(SafetensorsFile(path).tensors) == ["a"]


def test_data_begins_at_a_multiple_of_eight(tmp_path: Path) -> None:
    for length in range(1, 9):
        write_safetensors(tmp_path / "m.safetensors", {"n" * length: bf16_entry(np.ones(4, np.float32))}, {})
        (tensor,) = SafetensorsFile(tmp_path / "m.safetensors").tensors.values()
        assert tensor.offset % 8 == 0
