"""Embedding and head in a block type: opened, run, and kept or rewritten by a conversion."""

from pathlib import Path

import numpy as np
import pytest
from conversions import converted, llama
from gguf import GGMLQuantizationType
from gguf.quants import dequantize
from refusals import refusal

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.formats.container import PlannedTensor, StoredTensor
from tritgold.formats.dense_blocks import DENSE_BLOCKS
from tritgold.formats.ggml_types import block_weights, tensor_bytes
from tritgold.formats.gguf_file import GgufFile
from tritgold.formats.gguf_writer import write_gguf
from tritgold.model import forward

# Where the float16 numbers of a block lie.
HALVES = {"Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,), "Q8_0": (0,), "Q4_0": (0,), "Q5_0": (0,), "IQ4_NL": (0,)}


def blocks(name: str, shape: tuple[int, int], scale: float = 0.01) -> np.ndarray:
    """Random blocks whose scales are small: uint8 [blocks, bytes]."""
    size = tensor_bytes(name, (1, block_weights(name)))
    assert size is not None
    count = shape[0] * shape[1] // block_weights(name)
    raw = np.random.default_rng(3).integers(0, 256, (count, size), np.uint8)
    for at in HALVES.get(name, (0, 2)):
        raw[:, at : at + 2] = np.frombuffer(np.float16(scale).tobytes(), np.uint8)
    return raw


def quantised(tmp_path: Path, name: str, scale: float = 0.01) -> Path:
    """A TQ2_0 body with embedding and head in blocks, as llama-quantize leaves a file."""
    converted(llama(tmp_path), tmp_path, "tq2_0", round_scales=True)
    whole = GgufFile(tmp_path / "tq2_0.gguf")

    def plan(tensor: StoredTensor) -> PlannedTensor:
        dense = tensor.name in ("token_embd.weight", "output.weight")
        rows, columns = tensor.shape[0], tensor.shape[-1]
        data = blocks(name, (rows, columns), scale).tobytes() if dense else tensor.data.tobytes()
        dtype = name if dense else tensor.dtype
        return PlannedTensor(tensor.name, dtype, tensor.shape, len(data), lambda: [data])

    path = tmp_path / f"{name}.gguf"
    write_gguf(path, whole.metadata, [plan(tensor) for tensor in whole.tensors.values()])
    return path


def matrices(opened: Checkpoint) -> list[np.ndarray]:
    head = opened.weights.head
    assert head is not None
    return [matrix.rows(slice(None)) for matrix in (opened.weights.embedding, head)]


@pytest.mark.parametrize("name", DENSE_BLOCKS)
def test_it_opens_runs_and_converts(tmp_path: Path, name: str) -> None:
    opened = open_checkpoint(quantised(tmp_path, name))
    shape = opened.config.vocab, opened.config.hidden
    expected = dequantize(blocks(name, shape), GGMLQuantizationType[name]).reshape(shape)
    assert all(np.array_equal(matrix, expected) for matrix in matrices(opened))
    some = np.array([5, 2, 5])
    assert np.array_equal(opened.weights.embedding.rows(some), expected[some])
    assert np.isfinite(forward([1, 2, 3], opened.weights, opened.config)).all()
    for to, dtype in (("i2_s", name), ("hf", "F32"), ("sglbitnt", "F32")):
        result = converted(opened, tmp_path, to)
        assert result.weights.embedding.dtype == dtype  # type: ignore[attr-defined]
        assert result.model_hash() == opened.model_hash()


def test_it_is_rewritten_when_asked(tmp_path: Path) -> None:
    result = converted(quantised(tmp_path, "Q6_K"), tmp_path, "i2_s", embedding="F16")
    assert result.weights.embedding.dtype == "F16"  # type: ignore[attr-defined]


def test_a_scale_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    error = refusal(lambda: open_checkpoint(quantised(tmp_path, "Q6_K", np.inf)))
    assert error.kind == "weight-non-finite"
    assert "token_embd.weight" in str(error)
