"""The door, Hugging Face folders: scales, payloads, float types, and whether the linears are packed or masters."""

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_models import (
    EMBEDDING,
    TOKENS,
    Entry,
    HfModel,
    Q,
    bf16_entry,
    hf_error,
    hf_logits,
    packed_entries,
    seeded,
)

from tritgold.checkpoint import open_checkpoint
from tritgold.errors import ConfigError, PackingError, TritgoldWarning
from tritgold.model import forward
from tritgold.quantize import absmean_ternary
from tritgold.trace import Trace


@pytest.fixture
def model(tmp_path: Path) -> HfModel:
    return seeded(tmp_path)


def set_scale(model: HfModel, values: list[float], shape: tuple[int, ...]) -> None:
    model.entries[f"{Q}.weight_scale"] = bf16_entry(np.array(values, np.float32).reshape(shape))


def test_a_scale_may_have_no_one_or_two_dimensions(model: HfModel, tmp_path: Path) -> None:
    """Bug case B14."""
    results = []
    for shape in ((), (1,), (1, 1)):
        set_scale(model, [0.75], shape)
        results.append(hf_logits(model, tmp_path))
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])
    set_scale(model, [0.5], ())
    assert not np.array_equal(hf_logits(model, tmp_path), results[0])


@pytest.mark.parametrize(("values", "shape"), [([0.5] * 4, (4,)), ([], (0,)), ([0.5] * 4, (2, 2)), ([0.5] * 2, (2, 1))])
def test_a_scale_is_one_number(model: HfModel, tmp_path: Path, values: list[float], shape: tuple[int, ...]) -> None:
    set_scale(model, values, shape)
    error = hf_error(model, tmp_path)
    assert error.kind == "scale-shape"
    assert f"{Q}.weight_scale: found BF16 {list(shape)}" in str(error)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_scale_that_is_not_finite_is_refused(model: HfModel, tmp_path: Path, value: float) -> None:
    """Bug case B63."""
    set_scale(model, [value], (1,))
    error = hf_error(model, tmp_path)
    assert error.kind == "scale-non-finite"
    assert f"{Q}.weight_scale: found {value}" in str(error)


def test_odd_scales_load_with_a_warning_when_the_file_is_opened(model: HfModel, tmp_path: Path) -> None:
    set_scale(model, [-0.5], (1,))
    with pytest.warns(TritgoldWarning, match=r"q_proj\.weight.*negative scale -0.5"):
        open_checkpoint(model.write(tmp_path))
    set_scale(model, [0.0], (1,))
    with pytest.warns(TritgoldWarning, match=r"q_proj\.weight.*scale of 0"):
        open_checkpoint(model.write(tmp_path))
    model.entries |= packed_entries(Q, np.zeros((16, 16), np.int8), np.float32(0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_checkpoint(model.write(tmp_path))


def test_a_scale_of_zero_cannot_divide(model: HfModel, tmp_path: Path) -> None:
    model.config["quantization_config"] = {"quant_method": "bitnet", "linear_class": "bitlinear"}
    set_scale(model, [0.0], (1,))
    error = hf_error(model, tmp_path)
    assert error.kind == "scale-zero"
    assert f"{Q}.weight" in str(error)


def test_the_class_decides_between_multiplying_and_dividing(model: HfModel, tmp_path: Path) -> None:
    """Bug case B09: out(multiply) / out(divide) = scale squared."""
    scale = np.float32(1.2109375)
    trace = {}
    for linear_class in ("autobitlinear", "bitlinear"):
        model.config["quantization_config"] = {"quant_method": "bitnet", "linear_class": linear_class}
        set_scale(model, [float(scale)], (1,))
        opened = open_checkpoint(model.write(tmp_path))
        recorded = Trace()
        forward(TOKENS, opened.weights, opened.config, trace=recorded)
        trace[linear_class] = recorded["layers.0.q.out"]
    ratio = trace["autobitlinear"] / trace["bitlinear"]
    assert np.allclose(ratio[np.isfinite(ratio)], 1.4664, atol=1e-4)


# ---- payloads and floats -----------------------------------------------------------------------------------------


def test_code_3_is_refused_when_the_file_is_opened(model: HfModel, tmp_path: Path) -> None:
    """Bug case B08; transformers loads it as +2 without a word."""
    entry = model.entries[f"{Q}.weight"]
    model.entries[f"{Q}.weight"] = replace(entry, data=entry.data[:17] + b"\xff" + entry.data[18:])
    error = hf_error(model, tmp_path)
    assert isinstance(error, PackingError)
    assert error.kind == "code-3"
    assert all(part in str(error) for part in ("model.safetensors", f"tensor '{Q}.weight'", "4 times", "byte 17"))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_gain_that_is_not_finite_is_refused(model: HfModel, tmp_path: Path, value: float) -> None:
    gain = model.floats("model.norm.weight").copy()
    gain[3] = value
    model.entries["model.norm.weight"] = bf16_entry(gain)
    assert hf_error(model, tmp_path).kind == "weight-non-finite"


@pytest.mark.parametrize("dtype", ["F32", "F16"])
def test_floats_may_be_wider(model: HfModel, tmp_path: Path, dtype: str) -> None:
    """bf16 gains and scales of this model are exact in f16 too; the embedding is exact in f32 only."""
    expected = hf_logits(model, tmp_path)
    for name, entry in model.entries.items():
        if entry.dtype == "BF16" and not (dtype == "F16" and name == EMBEDDING):
            wide = model.floats(name).astype("<f4" if dtype == "F32" else "<f2")
            if np.array_equal(wide.astype(np.float32), model.floats(name)):
                model.entries[name] = Entry(dtype, entry.shape, wide.tobytes())
    assert sum(e.dtype == dtype for e in model.entries.values()) > 7
    assert np.array_equal(hf_logits(model, tmp_path), expected)


# ---- modes -------------------------------------------------------------------------------------------------------


def test_packed_weights_without_a_mode_ask_for_it(model: HfModel, tmp_path: Path) -> None:
    """Bug case B09: no quantization_config, yet U8 weights: an error that asks, never a default."""
    expected = hf_logits(model, tmp_path)
    del model.config["quantization_config"]
    error = hf_error(model, tmp_path)
    assert isinstance(error, ConfigError)
    assert error.kind == "quantization-missing"
    assert "--linear-class autobitlinear" in str(error)
    assert "config.json" in str(error)
    assert np.array_equal(hf_logits(model, tmp_path, linear_class="autobitlinear"), expected)
    assert not np.array_equal(hf_logits(model, tmp_path, linear_class="bitlinear"), expected)


def masters(model: HfModel) -> dict[str, np.ndarray]:
    """The model with float masters in the place of packed weights; returns them."""
    model.config["quantization_config"] |= {"quantization_mode": "online"}
    random = np.random.default_rng(5)
    made = {}
    for name in [n for n in model.entries if n.endswith("_proj.weight")]:
        del model.entries[f"{name}_scale"]
        model.entries[name] = bf16_entry(random.normal(size=(model.entries[name].shape[0] * 4, 16)).astype(np.float32))
        made[name] = model.floats(name)
    return made


def test_online_masters_are_quantised_by_absmean(model: HfModel, tmp_path: Path) -> None:
    expected = absmean_ternary(masters(model)[f"{Q}.weight"])
    opened = open_checkpoint(model.write(tmp_path))
    weight = opened.weights.layers[0].q
    assert np.array_equal(weight.ternary().trits, expected.trits)
    assert weight.ternary().scale == expected.scale
    assert weight.master is not None
    assert np.array_equal(weight.master.rows(slice(None)), model.floats(f"{Q}.weight"))


def test_a_master_that_is_not_finite_is_refused_by_name(model: HfModel, tmp_path: Path) -> None:
    values = masters(model)[f"{Q}.weight"].copy()
    values[3, 3] = np.inf
    model.entries[f"{Q}.weight"] = bf16_entry(values)
    error = hf_error(model, tmp_path)
    assert error.kind == "weight-non-finite"
    assert f"tensor '{Q}.weight'" in str(error)


def test_masters_and_packed_weights_are_not_confused(model: HfModel, tmp_path: Path) -> None:
    packed = HfModel(dict(model.config), dict(model.entries), model.tokenizer)
    packed.config["quantization_config"] = packed.config["quantization_config"] | {"quantization_mode": "online"}
    assert "expected a float master [16, 16] (online mode)" in str(hf_error(packed, tmp_path))
    masters(model)
    model.config["quantization_config"]["quantization_mode"] = "offline"
    assert "expected packed U8 [4, 16]" in str(hf_error(model, tmp_path))
    del model.config["quantization_config"]
    error = hf_error(model, tmp_path)
    assert error.kind == "quantization-missing"
    assert "not a ternary model" in str(error)
