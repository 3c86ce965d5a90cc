"""Trits times scales that lie unpacked in float tensors: read as that, never made ternary a second time."""

from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from refusals import refusal
from small_models import WIDE, Entry, HfModel, seeded

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.convert import Options, convert
from tritgold.errors import ConfigError, WeightsError

Q = "model.layers.0.self_attn.q_proj.weight"
DTYPES = {"F16": np.float16, "BF16": ml_dtypes.bfloat16, "F32": np.float32}
SCALE = np.float32(0.4765625)


def unpacked(folder: Path, dtype: str) -> tuple[Checkpoint, HfModel]:
    """The packed model of exact scales, and the same with every linear as a float matrix and no quantization_config."""
    model = seeded(folder, WIDE)
    for name, entry in model.entries.items():
        if name.endswith("weight_scale"):
            model.entries[name] = replace(entry, data=np.full(1, SCALE).astype(ml_dtypes.bfloat16).tobytes())
    packed = open_checkpoint(model.write(folder / "packed"))
    names = [name.removesuffix("_scale") for name in model.entries if name.endswith("weight_scale")]
    for name, (_, weight) in zip(names, _in_order(packed, names), strict=True):
        dense = weight.ternary().dense()  # type: ignore[attr-defined]
        model.entries[name] = Entry(dtype, dense.shape, dense.astype(DTYPES[dtype]).tobytes())
        del model.entries[f"{name}_scale"]
    del model.config["quantization_config"]
    return packed, model


def _in_order(opened: Checkpoint, names: list[str]) -> list[tuple[str, object]]:
    found = []
    for name in names:
        _, _, layer, _, linear, _ = name.split(".")
        found.append((name, opened.weights.layers[int(layer)].linear(linear.removesuffix("_proj"))))
    return found


def altered(model: HfModel, dtype: str, values: np.ndarray) -> HfModel:
    model.entries[Q] = Entry(dtype, values.shape, values.astype(DTYPES[dtype]).tobytes())
    return model


def matrix(model: HfModel, dtype: str) -> np.ndarray:
    entry = model.entries[Q]
    return np.frombuffer(entry.data, DTYPES[dtype]).reshape(entry.shape).astype(np.float32)


@pytest.mark.parametrize("quantize", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_trits_times_one_scale_open_as_that(tmp_path: Path, dtype: str, quantize: bool) -> None:
    packed, model = unpacked(tmp_path, dtype)
    opened = open_checkpoint(model.write(tmp_path / "floats"), quantize=quantize)
    assert opened.model_hash() == packed.model_hash()
    done = convert(opened, tmp_path / "m.gguf", "i2_s", Options(quantize=quantize))
    assert done.lost() == []
    assert open_checkpoint(tmp_path / "m.gguf").model_hash() == packed.model_hash()


@pytest.mark.parametrize("quantize", [False, True])
@pytest.mark.parametrize("blocks", [2, 3, 6])
def test_several_scales_are_named_and_never_quantised(tmp_path: Path, blocks: int, quantize: bool) -> None:
    _, model = unpacked(tmp_path, "F16")
    values = matrix(model, "F16")
    for index, rows in enumerate(np.array_split(np.arange(len(values)), blocks)):
        values[rows] *= np.float32(1 + index / 8)
    folder = altered(model, "F16", values).write(tmp_path / "floats")
    error = refusal(lambda: open_checkpoint(folder, quantize=quantize))
    assert isinstance(error, WeightsError)
    assert error.kind == "several-scales"
    assert f"{Q}: trits times {blocks} scales" in str(error)


def test_ordinary_weights_are_still_masters(tmp_path: Path) -> None:
    _, model = unpacked(tmp_path, "F16")
    values = np.random.default_rng(1).normal(0, 0.02, model.entries[Q].shape)
    folder = altered(model, "F16", values).write(tmp_path / "floats")
    assert isinstance(refusal(lambda: open_checkpoint(folder)), ConfigError)
    opened = open_checkpoint(folder, quantize=True)
    done = convert(opened, tmp_path / "m.gguf", "i2_s", Options(quantize=True))
    assert done.quantised == 1
    assert done.lost() == ["quantised by absmean: 1 linear weights, whose float values are not kept"]


def test_a_rounded_embedding_is_a_loss(tmp_path: Path) -> None:
    packed, _ = unpacked(tmp_path, "F16")
    done = convert(packed, tmp_path / "wide.gguf", "i2_s", Options(embedding="F32"))
    assert done.lost() == []
    wide = open_checkpoint(tmp_path / "wide.gguf")
    assert convert(wide, tmp_path / "same.gguf", "i2_s", Options(embedding="BF16")).lost() == []
    lossy = convert(packed, tmp_path / "f16.gguf", "i2_s", Options(embedding="F16"))
    values = packed.weights.embedding.rows(slice(None))
    expected = [] if (values == values.astype(np.float16)).all() else ["embedding rounded, as asked"]
    assert lossy.lost() == expected
