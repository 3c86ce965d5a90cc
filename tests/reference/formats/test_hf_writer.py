"""Writing a Hugging Face folder: what other libraries read in it, whole and in shards."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors.numpy import load_file

from tritgold.formats.hf_writer import bf16_tensor, packed_tensors, write_hf_folder

TRITS = np.array([[1, 0], [-1, 1], [0, 0], [1, -1], [0, 1]], np.int8)
VALUES = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


def test_a_folder_read_by_the_library(tmp_path: Path) -> None:
    pieces = [VALUES[:1], VALUES[1:]]
    tensors = [
        bf16_tensor("norm.weight", (3, 4), lambda: pieces),
        *packed_tensors("q_proj", (5, 2), lambda: TRITS, np.float32(1.2109375)),
    ]
    write_hf_folder(tmp_path, {"a": 1}, tensors, {"note.txt": "é\n"})
    assert json.loads((tmp_path / "config.json").read_text()) == {"a": 1}
    assert (tmp_path / "note.txt").read_bytes() == "é\n".encode()
    assert [path.name for path in tmp_path.glob("*.safetensors")] == ["model.safetensors"]
    theirs = load_file(tmp_path / "model.safetensors")
    assert np.array_equal(theirs["norm.weight"], VALUES.astype(ml_dtypes.bfloat16))
    # R = 2: byte (r, c) holds rows r, 2 + r, 4 + r, and nothing.
    assert theirs["q_proj.weight"].tolist() == [[0b00_01_01_10, 0b00_10_01_01], [0b00_00_10_00, 0b00_00_00_10]]
    assert theirs["q_proj.weight"].dtype == np.uint8
    scale = theirs["q_proj.weight_scale"]
    assert (scale.dtype, scale.shape, float(scale[0])) == (ml_dtypes.bfloat16, (1,), 1.2109375)


def test_nothing_is_made_before_it_is_written() -> None:
    made = []

    def trits() -> np.ndarray:
        made.append("trits")
        return TRITS

    weight, scale = packed_tensors("q", (5, 2), trits, 0.5)
    floats = bf16_tensor("n", (2,), lambda: made.append("floats") or [np.ones(2)])  # type: ignore[func-returns-value]
    assert (weight.size, scale.size, floats.size, made) == (4, 2, 4, [])
    assert [len(piece) for piece in weight.chunks()] == [4]
    assert made == ["trits"]
