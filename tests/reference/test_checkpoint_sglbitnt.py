"""The door, SGLBITNT files: the model that the Hugging Face folder holds, or an error that says what is wrong."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sglbitnt_bytes as s
from refusals import frugal, refusal
from small_models import EMBEDDING, HEAD, LAYER, TOKENS, Q, seeded

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.errors import ConfigError, FormatError, PackingError, TritgoldError, WeightsError
from tritgold.formats.names import HF, candidates
from tritgold.formats.sglbitnt_file import SglbitntFile
from tritgold.golden.seeded import Shape
from tritgold.model import forward

SHAPE = Shape(hidden=128, inter=128, layers=1, heads=2, kv_heads=1, context=16)
NORM = f"{LAYER}.input_layernorm.weight"


@dataclass
class SglModel:
    """Configuration and tensors; change them, then write."""

    config: dict[str, Any]
    tensors: dict[str, s.Tensor]
    always: bool = False

    def write(self, folder: Path) -> Path:
        path = folder / "m.bin"
        path.write_bytes(s.sglbitnt(self.config, self.tensors.values(), always=self.always))
        return path

    def alter(self, name: str, **fields: Any) -> None:
        self.tensors[name] = replace(self.tensors[name], **fields)


@pytest.fixture(scope="module")
def hf(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("hf")
    return open_checkpoint(seeded(folder, SHAPE).write(folder / "hf"))


@pytest.fixture(scope="module")
def parts(hf: Checkpoint) -> SglModel:
    """The same model as convert_to_sglkernel.py writes it: floats widened, trits repacked, names and config kept."""
    layer, gains = hf.weights.layers[0], ("attn_norm", "attn_sub_norm", "ffn_norm", "ffn_sub_norm")
    tensors = [s.f32(EMBEDDING, hf.weights.embedding.rows(slice(None)))]
    tensors += [s.f32(candidates(HF, f"layers.0.{ours}")[0], getattr(layer, ours)) for ours in gains]
    for ours in ("q", "k", "v", "o", "gate", "up", "down"):
        weight = layer.linear(ours).ternary()
        tensors.append(s.packed(candidates(HF, f"layers.0.{ours}")[0], weight.trits, float(weight.scale)))
    tensors.append(s.f32("model.norm.weight", hf.weights.final_norm))
    config = json.loads((hf.path / "config.json").read_text())
    return SglModel(config, {str(tensor.name): tensor for tensor in tensors})


@pytest.fixture
def model(parts: SglModel) -> SglModel:
    return SglModel(dict(parts.config), dict(parts.tensors))


def error_of(model: SglModel, folder: Path, **options: Any) -> TritgoldError:
    path = model.write(folder)
    with frugal():
        error = refusal(lambda: open_checkpoint(path, **options))
    assert error.file == str(path)
    return error


def logits(opened: Checkpoint) -> np.ndarray:
    return forward(TOKENS, opened.weights, opened.config)


# ---- right files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("always", [False, True])
def test_it_is_the_model_of_the_folder(hf: Checkpoint, model: SglModel, tmp_path: Path, always: bool) -> None:
    model.always = always
    opened = open_checkpoint(model.write(tmp_path))
    assert opened.config == hf.config
    assert opened.model_hash() == hf.model_hash()
    assert np.array_equal(logits(opened), logits(hf))
    assert isinstance(opened.container, SglbitntFile)
    assert opened.container.dialect == ("always" if always else "optional")


def test_scales_copied_along_are_read_where_they_agree(hf: Checkpoint, model: SglModel, tmp_path: Path) -> None:
    """The offline branch of the original converter copies every weight_scale: 542 tensors for 2B-4T."""
    scales = {n.replace(".weight", ".weight_scale"): t.scale for n, t in model.tensors.items() if t.scale is not None}
    model.tensors |= {n: s.f32(n, np.array([scale], np.float32)) for n, scale in scales.items()}
    assert len(scales) == 7
    assert open_checkpoint(model.write(tmp_path)).model_hash() == hf.model_hash()
    name = f"{Q}.weight_scale"
    model.tensors[name] = s.f32(name, np.array([scales[name]], np.float32) * np.float32(1 + 2**-20))
    error = error_of(model, tmp_path)
    assert (type(error), error.kind) == (WeightsError, "scale-mismatch")
    assert name in str(error)


def test_the_header_scale_multiplies(hf: Checkpoint, model: SglModel, tmp_path: Path) -> None:
    scale = model.tensors[f"{Q}.weight"].scale
    assert scale is not None
    model.alter(f"{Q}.weight", scale=scale / 2)
    opened = open_checkpoint(model.write(tmp_path))
    q, original = opened.weights.layers[0].q.ternary(), hf.weights.layers[0].q.ternary()
    assert np.array_equal(q.trits, original.trits)
    assert q.scale * 2 == original.scale


def test_a_head_of_its_own(hf: Checkpoint, model: SglModel, tmp_path: Path) -> None:
    model.config["tie_word_embeddings"] = False
    assert error_of(model, tmp_path).kind == "missing-tensor"
    embedding = hf.weights.embedding.rows(slice(None))
    model.tensors[HEAD] = s.f32(HEAD, embedding[::-1])
    assert np.array_equal(logits(open_checkpoint(model.write(tmp_path))), logits(hf)[:, ::-1])


# ---- the configuration -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["online", "offline", None])
def test_the_mode_of_the_original_does_not_matter(
    hf: Checkpoint, model: SglModel, tmp_path: Path, mode: str | None
) -> None:
    """The converter packs bf16 masters too, and copies their configuration."""
    if mode is None:
        del model.config["quantization_config"]
    else:
        model.config["quantization_config"] = {"linear_class": "autobitlinear", "quantization_mode": mode}
    assert open_checkpoint(model.write(tmp_path)).model_hash() == hf.model_hash()


@pytest.mark.parametrize("section", [{"quant_method": "bitnet"}, {"linear_class": "bitlinear"}])
def test_a_class_that_divides_is_refused(model: SglModel, tmp_path: Path, section: dict[str, str]) -> None:
    """Bug case B09: the converter copies a dividing scale into a field that multiplies."""
    model.config["quantization_config"] = section
    error = error_of(model, tmp_path)
    assert (type(error), error.kind) == (ConfigError, "config-contradiction")


def test_the_configuration_is_read_as_strictly_as_a_config_json(
    hf: Checkpoint, model: SglModel, tmp_path: Path
) -> None:
    model.config["rope_scaling"] = {"factor": 2}
    assert error_of(model, tmp_path).kind == "config-unsupported"
    del model.config["rope_scaling"]
    model.config["colour"] = 1
    assert error_of(model, tmp_path).kind == "config-unknown-key"
    assert open_checkpoint(model.write(tmp_path), ignore_keys=("colour",)).model_hash() == hf.model_hash()
    for key in ("hidden_size", "rms_norm_eps", "num_hidden_layers", "rope_theta", "architectures"):
        model.config = {k: v for k, v in model.config.items() if k != key}
        assert isinstance(error_of(model, tmp_path), ConfigError)


# ---- the tensors -------------------------------------------------------------------------------------------------


def remove(name: str) -> Callable[[SglModel], object]:
    return lambda model: model.tensors.pop(name)


def alter(name: str, **fields: Any) -> Callable[[SglModel], object]:
    return lambda model: model.alter(name, **fields)


def add(tensor: s.Tensor) -> Callable[[SglModel], object]:
    return lambda model: model.tensors.setdefault(str(tensor.name), tensor)


@pytest.mark.parametrize(
    ("damage", "kind", "says"),
    [
        (remove(f"{Q}.weight"), "missing-tensor", f"{Q}.weight"),
        (remove(NORM), "missing-tensor", NORM),
        (remove(EMBEDDING), "missing-tensor", EMBEDDING),
        (alter(f"{Q}.weight", scale=None), "scale-missing", f"{Q}.weight: packed, but without a scale"),
        (alter(NORM, scale=1.0), "scale-unused", f"tensor '{NORM}'"),
        (alter(EMBEDDING, scale=1.0), "scale-unused", f"tensor '{EMBEDDING}'"),
        (
            alter(f"{Q}.weight", shape=(32, 128)),
            "tensor-shape",
            f"{Q}.weight: found U8 [32, 128], expected packed U8 [128, 32]",
        ),
        (alter(f"{Q}.weight", shape=(4096,)), "tensor-shape", "found U8 [4096]"),
        (alter(f"{Q}.weight", dtype=s.F32, shape=(128, 8), scale=None), "tensor-shape", "found F32 [128, 8]"),
        (add(s.f32(f"{Q}.bias", np.ones(128))), "unused-tensor", f"{Q}.bias"),
        (add(s.f32("model.layers.0.mlp.weight_scale", np.ones(1))), "unused-tensor", "a scale that no weight uses"),
        # --pack-lm-head: the embedding made ternary for the head, which is another model
        (add(s.Tensor(HEAD, s.U8, (259, 32), bytes(259 * 32), 0.7)), "tied-head", HEAD),
        (add(s.f32(f"{Q}.weight_scale", np.array([np.nan]))), "scale-non-finite", f"{Q}.weight_scale"),
        (add(s.f32(f"{Q}.weight_scale", np.ones(2))), "scale-shape", f"{Q}.weight_scale"),
    ],
)
def test_tensors_that_are_not_the_models(
    model: SglModel, tmp_path: Path, damage: Callable[[SglModel], object], kind: str, says: str
) -> None:
    damage(model)
    error = error_of(model, tmp_path)
    assert (type(error), error.kind) == (WeightsError, kind)
    assert says in str(error)


def test_code_3_is_refused_when_the_file_is_opened(model: SglModel, tmp_path: Path) -> None:
    data = model.tensors[f"{Q}.weight"].data
    model.alter(f"{Q}.weight", data=data[:17] + b"\xff" + data[18:])
    error = error_of(model, tmp_path)
    assert (type(error), error.kind) == (PackingError, "code-3")
    assert all(part in str(error) for part in (f"tensor '{Q}.weight'", "4 times", "byte 17"))


def test_rows_that_are_no_whole_blocks(model: SglModel, tmp_path: Path) -> None:
    """convert_dlm_to_sglkernel.py pads such rows with trits that no input meets."""
    model.config["intermediate_size"] = 96
    text = str(error_of(model, tmp_path))
    assert "mlp.down_proj.weight: found U8 [128, 32], expected rows of 128s, not of 96 weights" in text


def test_no_prefix_loads(model: SglModel, tmp_path: Path) -> None:
    whole = model.write(tmp_path).read_bytes()
    path = tmp_path / "cut.bin"
    for length in [*range(1200), *range(1200, len(whole), 997), len(whole) - 1]:
        path.write_bytes(whole[:length])
        assert isinstance(refusal(lambda: open_checkpoint(path)), FormatError)
