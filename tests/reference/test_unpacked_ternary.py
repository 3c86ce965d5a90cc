"""Trits times scales that lie unpacked in float tensors: read as that, never made ternary a second time."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from refusals import refusal
from small_models import WIDE, Entry, HfModel, seeded

from tritgold import checkpoint
from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.convert import Options, convert
from tritgold.errors import ConfigError
from tritgold.formats.linear_readers import LinearReader, Stored, hf_reader
from tritgold.formats.tensor_box import TensorBox
from tritgold.model import forward
from tritgold.trace import Trace

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


def test_floats_under_the_configuration_of_packed_weights_say_what_to_change(tmp_path: Path) -> None:
    packed, model = unpacked(tmp_path, "BF16")
    mode = {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline"}
    model.config["quantization_config"] = mode
    error = refusal(lambda: open_checkpoint(model.write(tmp_path / "m")))
    assert error.kind == "tensor-shape"
    assert "trits times a scale no quantization_config" in str(error)
    assert "weight_scale" not in str(error)
    del model.config["quantization_config"]
    assert open_checkpoint(model.write(tmp_path / "n")).model_hash() == packed.model_hash()


@pytest.mark.parametrize("packed", [True, False])
def test_linears_are_read_in_the_order_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    """Sorted by name here, as transformers writes: read in the order of the graph, a part was read twice."""
    model = seeded(tmp_path, WIDE) if packed else unpacked(tmp_path, "BF16")[1]
    asked: list[str] = []

    def recording(*given: Any) -> LinearReader:
        read = hf_reader(*given)

        def one(box: TensorBox, name: str, shape: tuple[int, int]) -> Stored | None:
            asked.append(name)
            return read(box, name, shape)

        return one

    monkeypatch.setattr(checkpoint, "hf_reader", recording)
    model.entries = dict(sorted(model.entries.items()))
    opened = open_checkpoint(model.write(tmp_path / "m"))
    layers = [opened.weights.layers[int(name.split(".")[1])] for name in asked]
    found = [layer.linear(name.split(".")[2]) for layer, name in zip(layers, asked, strict=True)]
    places = [weight.stored.offset for weight in found]  # type: ignore[union-attr]
    assert len(asked) == 7 * opened.config.layers
    assert places == sorted(places)


def trilm(folder: Path, dtype: str, blocks: int) -> tuple[Checkpoint, Path, np.ndarray]:
    """The packed model; the same unpacked, with as many scales in q, by blocks of rows; and q's scales [out, 1]."""
    packed, model = unpacked(folder, dtype)
    values = matrix(model, dtype)
    factors = np.ones((len(values), 1), np.float32)
    for index, rows in enumerate(np.array_split(np.arange(len(values)), blocks)):
        factors[rows] = np.float32(2.0**-index)
    return packed, altered(model, dtype, values * factors).write(folder / "floats"), SCALE * factors


@pytest.mark.parametrize("quantize", [False, True])
@pytest.mark.parametrize(("dtype", "blocks"), [("F16", 2), ("BF16", 3), ("F32", 6)])
def test_several_scales_are_read_as_they_are_and_never_quantised(
    tmp_path: Path, dtype: str, blocks: int, quantize: bool
) -> None:
    packed, folder, scales = trilm(tmp_path, dtype, blocks)
    opened = open_checkpoint(folder, quantize=quantize)
    found, one = (c.weights.layers[0].q.ternary() for c in (opened, packed))
    assert np.array_equal(found.trits, one.trits)
    assert np.unique(scales).size == blocks
    assert found.scale.tolist() == scales.tolist()


def test_several_scales_are_applied_row_by_row(tmp_path: Path) -> None:
    """The same integers, and each output times its row's scale: two float32 operations as ever."""
    packed, folder, scales = trilm(tmp_path, "F16", 3)
    q, acc, s = (traced(open_checkpoint(folder))[f"layers.0.{name}"] for name in ("q.out", "q.acc", "attn_in.scale"))
    assert np.array_equal(acc, traced(packed)["layers.0.q.acc"])
    assert np.array_equal(q, acc.astype(np.float32) / s[:, None] * scales[:, 0])


@pytest.mark.parametrize("to", ["iq2_bn", "iq1_bn", "tq2_0", "tq1_0", "gguf-f32", "gguf-f16"])
def test_several_scales_are_kept_by_conversion(tmp_path: Path, to: str) -> None:
    _, folder, _ = trilm(tmp_path, "F16", 6)
    source = open_checkpoint(folder)
    done = convert(source, tmp_path / "m.gguf", to, Options())
    assert done.lost() == []
    assert open_checkpoint(tmp_path / "m.gguf").model_hash() == source.model_hash()
    convert(open_checkpoint(tmp_path / "m.gguf"), tmp_path / "back.gguf", "iq2_bn", Options())
    assert open_checkpoint(tmp_path / "back.gguf").model_hash() == source.model_hash()


@pytest.mark.parametrize("to", ["hf", "i2_s", "sglbitnt"])
def test_targets_of_one_scale_refuse_several(tmp_path: Path, to: str) -> None:
    _, folder, _ = trilm(tmp_path, "F16", 6)
    error = refusal(lambda: convert(open_checkpoint(folder), tmp_path / "out", to, Options()))
    assert error.kind == "several-scales"
    assert "layers.0.q" in str(error)
    assert "6 scales" in str(error)
    assert not (tmp_path / "out").exists()


def test_scales_that_float16_does_not_hold_are_refused_or_rounded(tmp_path: Path) -> None:
    _, model = unpacked(tmp_path, "F32")
    values = matrix(model, "F32")
    values[: len(values) // 2] *= np.float32(1 + 2**-20)
    source = open_checkpoint(altered(model, "F32", values).write(tmp_path / "floats"))
    assert refusal(lambda: convert(source, tmp_path / "m.gguf", "tq2_0", Options())).kind == "scale-rounded"
    done = convert(source, tmp_path / "m.gguf", "tq2_0", Options(round_scales=True))
    assert done.lost() == ["1 scales rounded to float16, as asked"]
    convert(source, tmp_path / "n.gguf", "iq2_bn", Options())


def test_a_row_of_zeros_among_several_scales_says_nothing(tmp_path: Path) -> None:
    _, model = unpacked(tmp_path, "F16")
    values = matrix(model, "F16")
    values[: len(values) // 2] *= 2
    values[[0, -1]] = 0
    source = open_checkpoint(altered(model, "F16", values).write(tmp_path / "floats"))
    scale = source.weights.layers[0].q.ternary().scale
    assert scale[[0, -1], 0].tolist() == [2 * SCALE, 2 * SCALE]
    convert(source, tmp_path / "m.gguf", "iq1_bn", Options())
    assert open_checkpoint(tmp_path / "m.gguf").model_hash() == source.model_hash()


@pytest.mark.parametrize("quantize", [False, True])
def test_scales_of_blocks_of_columns_are_refused_by_name(tmp_path: Path, quantize: bool) -> None:
    """As a shard of o or down keeps its own where a model was trained on several devices."""
    _, model = unpacked(tmp_path, "F16")
    values = matrix(model, "F16")
    values[:, values.shape[1] // 2 :] *= 2
    error = refusal(
        lambda: open_checkpoint(altered(model, "F16", values).write(tmp_path / "floats"), quantize=quantize)
    )
    assert error.kind == "several-scales"
    assert f"{Q}: trits times 2 scales, 0.476562 to 0.953125, which are not those of rows" in str(error)


def traced(opened: Checkpoint) -> dict[str, np.ndarray]:
    trace = Trace()
    forward([1, 2, 3], opened.weights, opened.config, trace=trace)
    return dict(trace.arrays)


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
