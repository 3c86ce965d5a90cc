"""The door, GGUF files: the same rules, with the fork's tensor types and the metadata's own mistakes."""

import struct
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf_bytes as g
import numpy as np
import pytest
from refusals import frugal, refusal
from small_models import TINY, WIDE, GgufModel, as_gguf, payload, seeded

from tritgold.checkpoint import open_checkpoint
from tritgold.errors import ConfigError, FormatError, PackingError, TritgoldError, TritgoldWarning, WeightsError
from tritgold.formats.ggml_types import tensor_bytes
from tritgold.model import forward

ARCH = "bitnet-b1.58"
Q = "blk.0.attn_q.weight"
TOKENS = [256, 72, 105, 33]


@pytest.fixture
def model(tmp_path: Path) -> GgufModel:
    return as_gguf(seeded(tmp_path, TINY).write(tmp_path / "hf"), ARCH)


@pytest.fixture
def wide(tmp_path: Path) -> GgufModel:
    return as_gguf(seeded(tmp_path, WIDE).write(tmp_path / "hf"), ARCH, g.TYPE_TQ2_0)


def logits(model: GgufModel, tmp_path: Path) -> np.ndarray:
    opened = open_checkpoint(model.write(tmp_path / "m.gguf"))
    return forward(TOKENS, opened.weights, opened.config)


def error_of(model: GgufModel, tmp_path: Path) -> TritgoldError:
    path = model.write(tmp_path / "m.gguf")
    with frugal():
        error = refusal(lambda: open_checkpoint(path))
    assert error.file == str(path)
    return error


def test_every_tensor_is_needed(model: GgufModel, tmp_path: Path) -> None:
    assert np.isfinite(logits(model, tmp_path)).all()
    for name in model.tensors:
        left = GgufModel(model.pairs, {n: t for n, t in model.tensors.items() if n != name})
        error = error_of(left, tmp_path)
        assert isinstance(error, WeightsError)
        assert error.kind == "missing-tensor"
        assert name in str(error)


def test_every_tensor_has_one_shape(model: GgufModel, tmp_path: Path) -> None:
    for name, tensor in model.tensors.items():
        size = 2 * len(tensor.data) - (32 if tensor.type_id == g.TYPE_I2_S else 0)
        doubled = replace(tensor, shape=(*tensor.shape[:-1], 2 * tensor.shape[-1]), data=bytes(size))
        error = error_of(GgufModel(model.pairs, {**model.tensors, name: doubled}), tmp_path)
        assert error.kind == "tensor-shape"
        assert name in str(error)


@pytest.mark.parametrize(
    "name", ["blk.0.attn_q.bias", "blk.0.attn_q_norm.weight", "blk.1.attn_norm.weight", "blk.0.attn_q.input_scale", "x"]
)
def test_a_tensor_without_a_place_is_refused(model: GgufModel, tmp_path: Path, name: str) -> None:
    model.floats(name, np.ones(16, np.float32))
    error = error_of(model, tmp_path)
    assert error.kind == "unused-tensor"
    assert f"unused: {name}" in str(error)


# ---- tensor types ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_id", [37, 200])
@pytest.mark.parametrize("name", [Q, "token_embd.weight"])
def test_types_without_a_reader_are_named_by_number(model: GgufModel, tmp_path: Path, type_id: int, name: str) -> None:
    """Bug case B16: 36 opens; 37 and 200 give "unknown tensor type N in tensor T"."""
    model.alter(name, type_id=type_id, data=bytes(20_000))
    error = error_of(model, tmp_path)
    assert isinstance(error, FormatError)
    assert error.kind == "unknown-type"
    assert f"unknown tensor type {type_id} in tensor '{name}'" in str(error)
    if type_id == 37:
        assert "I8_S" in str(error)


@pytest.mark.parametrize(("type_id", "name"), [(38, "TL1"), (39, "TL2")])
def test_tiled_types_ask_for_their_tiles(wide: GgufModel, tmp_path: Path, type_id: int, name: str) -> None:
    """The file does not say them, and a wrong guess permutes the weights."""
    wide.alter(Q, type_id=type_id, data=bytes(tensor_bytes(name, (256, 256)) or 0))
    error = error_of(wide, tmp_path)
    assert error.kind == "no-tile"
    assert f"the tile sizes of {name} for 256 x 256" in str(error)
    assert "--tile" in str(error)


def test_an_ordinary_type_is_not_taken_for_a_ternary_one(wide: GgufModel, tmp_path: Path) -> None:
    wide.alter(Q, type_id=8, data=bytes(256 * 256 * 4))
    error = error_of(wide, tmp_path)
    assert error.kind == "weight-dtype"
    assert f"{Q}: found Q8_0, expected a ternary type: I2_S or TL1" in str(error)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_floats_are_trits_times_one_scale_or_masters(wide: GgufModel, tmp_path: Path, dtype: type) -> None:
    """A master is never quantised by itself; asked for, it is."""
    type_id = {np.float32: 0, np.float16: 1}[dtype]
    trits = np.random.default_rng(0).integers(-1, 2, (256, 256))
    wide.alter(Q, type_id=type_id, data=(trits * 0.375).astype(dtype).tobytes())
    tensor = open_checkpoint(wide.write(tmp_path / "m.gguf")).weights.layers[0].q.ternary()
    assert (np.array_equal(tensor.trits, trits), tensor.scale) == (True, np.float32(0.375))

    values = np.random.default_rng(1).normal(0, 0.02, (256, 256)).astype(dtype)
    wide.alter(Q, type_id=type_id, data=values.tobytes())
    error = error_of(wide, tmp_path)
    assert error.kind == "not-ternary"
    assert Q in str(error)
    assert "--quantize absmean" in str(error)
    quantised = open_checkpoint(tmp_path / "m.gguf", quantize=True).weights.layers[0].q.ternary()
    mean = np.abs(values.astype(np.float64)).mean()
    assert np.array_equal(quantised.trits, np.clip(np.rint(values / mean), -1, 1))


def test_ternary_types_are_not_taken_for_floats(model: GgufModel, tmp_path: Path) -> None:
    model.alter("token_embd.weight", type_id=g.TYPE_I2_S, data=bytes(259 * 16 // 4 + 32))
    model.alter("output_norm.weight", type_id=g.TYPE_I2_S, data=bytes(36))
    error = error_of(model, tmp_path)
    assert error.kind == "weight-dtype"
    for name in ("token_embd.weight", "output_norm.weight"):
        assert f"{name}: found I2_S, expected F32 or F16 or BF16" in str(error)


@pytest.mark.parametrize("type_id", [g.TYPE_F16, g.TYPE_BF16])
def test_the_embedding_may_be_any_float(model: GgufModel, tmp_path: Path, type_id: int) -> None:
    values = np.frombuffer(model.tensors["token_embd.weight"].data, "<f4")
    half = values.astype("<f2") if type_id == g.TYPE_F16 else (values.view("<u4") >> 16).astype("<u2")
    exact = half.astype(np.float32) if type_id == g.TYPE_F16 else values
    model.floats("token_embd.weight", exact.reshape(-1, 16))
    expected = logits(model, tmp_path)
    model.alter("token_embd.weight", type_id=type_id, data=half.tobytes())
    assert np.array_equal(logits(model, tmp_path), expected)


# ---- payloads and scales -----------------------------------------------------------------------------------------


def trits(name: str, tmp_path: Path) -> np.ndarray:
    weights = open_checkpoint(tmp_path / "hf").weights
    return dict(weights.linears())[name].ternary().trits


def test_code_3_is_refused_when_the_file_is_opened(model: GgufModel, tmp_path: Path) -> None:
    data = bytearray(model.tensors[Q].data)
    data[5] |= 0b11000000
    model.alter(Q, data=bytes(data))
    error = error_of(model, tmp_path)
    assert isinstance(error, PackingError)
    assert error.kind == "code-3"
    assert f"tensor '{Q}'" in str(error)
    assert "1 times, first at [0, 5], byte 5" in str(error)


@pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf])
def test_a_scale_that_is_not_finite_is_refused(model: GgufModel, wide: GgufModel, tmp_path: Path, scale: float) -> None:
    """Bug case B63: with the tensor and, for TQ2_0, the block."""
    model.alter(Q, data=model.tensors[Q].data[:-32] + struct.pack("<f", scale) + bytes(28))
    data = bytearray(wide.tensors[Q].data)
    data[66 * 7 + 64 : 66 * 8] = struct.pack("<e", scale)
    wide.alter(Q, data=bytes(data))
    for damaged, block in ((model, "[0]"), (wide, "[7, 0]")):
        error = error_of(damaged, tmp_path)
        assert error.kind == "scale-non-finite"
        assert f"tensor '{Q}'" in str(error)
        assert f"not finite at {block}" in str(error)


def test_one_row_of_another_scale_opens_with_a_warning(wide: GgufModel, tmp_path: Path) -> None:
    """A row is one block here: the arithmetic is defined, and yet a damaged scale looks like this."""
    data = bytearray(wide.tensors[Q].data)
    data[66 * 7 + 64 : 66 * 8] = struct.pack("<e", 0.5)
    wide.alter(Q, data=bytes(data))
    with pytest.warns(TritgoldWarning, match=rf"tensor '{Q}': 2 scales in 256 rows, some for a row or two"):
        opened = open_checkpoint(wide.write(tmp_path / "m.gguf"))
    assert opened.weights.layers[0].q.ternary().scale[7, 0] == 0.5


@pytest.mark.parametrize(("scale", "says"), [(-0.5, "negative scale -0.5"), (0.0, "scale of 0")])
def test_odd_scales_load_with_one_warning(model: GgufModel, tmp_path: Path, scale: float, says: str) -> None:
    model.alter(Q, data=model.tensors[Q].data[:-32] + struct.pack("<f", scale) + bytes(28))
    with pytest.warns(TritgoldWarning, match=rf"tensor '{Q}'.*{says}"):
        opened = open_checkpoint(model.write(tmp_path / "m.gguf"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once, at the door, and not again at every token
        forward(TOKENS, opened.weights, opened.config)


def test_silent_blocks_with_scale_0_open_silently(wide: GgufModel, tmp_path: Path) -> None:
    """gguf-py writes d = 0 for a block of zeros."""
    matrix = trits("layers.0.q", tmp_path).copy()
    matrix[3] = 0
    wide.alter(Q, data=payload(matrix, 0.5, g.TYPE_TQ2_0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opened = open_checkpoint(wide.write(tmp_path / "m.gguf"))
    tensor = opened.weights.layers[0].q.ternary()
    assert tensor.scale == 0.5
    assert np.array_equal(tensor.trits, matrix)


def test_a_scale_beside_the_payload_multiplies(model: GgufModel, tmp_path: Path) -> None:
    """Upstream's ``bitnet`` arch: blk.N.attn_q.scale."""
    matrix = trits("layers.0.q", tmp_path)
    model.alter(Q, data=payload(matrix, 0.75, g.TYPE_I2_S))
    expected = logits(model, tmp_path)
    model.alter(Q, data=payload(matrix, 0.5, g.TYPE_I2_S))
    model.floats("blk.0.attn_q.scale", np.array([1.5], np.float32))
    assert np.array_equal(logits(model, tmp_path), expected)


@pytest.mark.parametrize(
    ("inside", "beside"), [(np.inf, 1.0), (np.nan, 1.0), (1.0, np.inf), (1e30, 1e30), (np.inf, 0.0)]
)
def test_a_product_of_scales_is_finite_or_refused(
    model: GgufModel, tmp_path: Path, inside: float, beside: float
) -> None:
    model.alter(Q, data=model.tensors[Q].data[:-32] + struct.pack("<f", inside) + bytes(28))
    model.floats("blk.0.attn_q.scale", np.array([beside], np.float32))
    assert error_of(model, tmp_path).kind == "scale-non-finite"


# ---- head and RoPE -----------------------------------------------------------------------------------------------


def test_a_file_without_output_weight_has_a_tied_head(model: GgufModel, tmp_path: Path) -> None:
    """Bug case B59."""
    tied = logits(model, tmp_path)
    assert open_checkpoint(tmp_path / "m.gguf").config.tied_head
    model.tensors["output.weight"] = replace(model.tensors["token_embd.weight"], name="output.weight")
    assert np.array_equal(logits(model, tmp_path), tied)
    assert not open_checkpoint(tmp_path / "m.gguf").config.tied_head
    embedding = np.frombuffer(model.tensors["token_embd.weight"].data, "<f4").reshape(-1, 16)
    model.floats("output.weight", embedding[::-1])
    assert np.array_equal(logits(model, tmp_path), tied[:, ::-1])


def test_rope_factors_are_refused_unless_they_are_ones(model: GgufModel, tmp_path: Path) -> None:
    """Llama 3.1 files carry their RoPE scaling in this tensor alone; passing over it computes another model."""
    expected = logits(model, tmp_path)
    model.floats("rope_freqs.weight", np.ones(4, np.float32))
    assert np.array_equal(logits(model, tmp_path), expected)
    model.floats("rope_freqs.weight", np.array([1, 1, 1, 8], np.float32))
    error = error_of(model, tmp_path)
    assert error.kind == "rope-factors"
    assert "rope_freqs.weight" in str(error)


# ---- metadata ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "kind", "value", "says"),
    [
        ("general.architecture", g.STRING, "bitnet-b1.59", "nearest is 'bitnet-b1.58'"),
        (f"{ARCH}.attention.layer_norm_rms_epsilon", None, None, "layer_norm_rms_epsilon"),
        (f"{ARCH}.rope.scaling.type", g.STRING, "longrope", "rope.scaling.type"),
        (f"{ARCH}.rope.scaling.type", g.STRING, "yarn", "rope.scaling.factor"),
        (f"{ARCH}.rope.scaling.original_context_length", g.U32, 1, "is unknown"),
        (f"{ARCH}.attention.head_count", g.ARRAY, g.array(g.U32, [2, 1]), "attention.head_count"),
        (f"{ARCH}.vocab_size", g.U32, 260, "vocab_size"),
        (f"{ARCH}.context_length", g.BOOL, 1, "context_length"),
        ("tokenizer.ggml.bos_token_id", g.STRING, "256", "bos_token_id"),
    ],
)
def test_metadata_errors_name_the_key(
    model: GgufModel, tmp_path: Path, key: str, kind: int | None, value: Any, says: str
) -> None:
    if kind is None:
        del model.pairs[key]
    else:
        model.set(key, kind, value)
    error = error_of(model, tmp_path)
    assert isinstance(error, ConfigError)
    assert says in str(error)


@pytest.mark.parametrize("blocks", [2, 2**32 - 1])
def test_more_layers_than_the_file_can_hold_are_refused_soon(model: GgufModel, tmp_path: Path, blocks: int) -> None:
    model.set(f"{ARCH}.block_count", g.U32, blocks)
    assert error_of(model, tmp_path).kind == "missing-tensor"


def test_the_head_size_must_fit_the_tensors(model: GgufModel, tmp_path: Path) -> None:
    model.set(f"{ARCH}.attention.key_length", g.U32, 2**31)
    assert isinstance(error_of(model, tmp_path), ConfigError)
    model.set(f"{ARCH}.rope.dimension_count", g.U32, 2**31)
    assert isinstance(error_of(model, tmp_path), ConfigError)
