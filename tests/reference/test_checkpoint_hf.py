"""The door, Hugging Face folders: every tensor of the model set exactly once, every tensor of the file used once."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from refusals import refusal
from small_models import EMBEDDING, HEAD, LAYER, Entry, HfModel, Q, bf16_entry, hf_error, hf_logits, seeded

from tritgold.checkpoint import open_checkpoint
from tritgold.errors import ConfigError, FormatError, WeightsError


@pytest.fixture
def model(tmp_path: Path) -> HfModel:
    return seeded(tmp_path)


def test_the_untouched_model_opens(model: HfModel, tmp_path: Path) -> None:
    assert np.isfinite(hf_logits(model, tmp_path)).all()


def names_of_the_tiny_model() -> list[str]:
    gains = ["input_layernorm", "post_attention_layernorm", "self_attn.attn_sub_norm", "mlp.ffn_sub_norm"]
    linears = [f"self_attn.{p}_proj" for p in "qkvo"] + [f"mlp.{p}_proj" for p in ("gate", "up", "down")]
    in_layer = [f"{n}.weight" for n in gains + linears] + [f"{n}.weight_scale" for n in linears]
    return [EMBEDDING, "model.norm.weight", *(f"{LAYER}.{n}" for n in in_layer)]


def test_the_list_of_names_is_complete(model: HfModel) -> None:
    assert sorted(model.entries) == sorted(names_of_the_tiny_model())


@pytest.mark.parametrize("name", names_of_the_tiny_model())
def test_each_tensor_is_needed(model: HfModel, tmp_path: Path, name: str) -> None:
    """Bug cases B13, B62: nothing is filled in with ones, zeros or whatever lay in memory."""
    del model.entries[name]
    error = hf_error(model, tmp_path)
    assert isinstance(error, WeightsError)
    assert error.kind == ("scale-missing" if "scale" in name else "missing-tensor")
    assert name.removesuffix("_scale") in str(error)


@pytest.mark.parametrize("name", names_of_the_tiny_model())
def test_each_tensor_has_one_shape_and_a_dtype(model: HfModel, tmp_path: Path, name: str) -> None:
    entry = model.entries[name]
    changed = replace(entry, shape=(*entry.shape[:-1], entry.shape[-1] * 2), data=entry.data * 2)
    error = hf_error(HfModel(model.config, {**model.entries, name: changed}, model.tokenizer), tmp_path)
    assert isinstance(error, WeightsError)
    assert error.kind == ("scale-shape" if "scale" in name else "tensor-shape")
    assert name in str(error)
    changed = Entry("I16" if entry.dtype == "BF16" else "I8", entry.shape, entry.data)
    error = hf_error(HfModel(model.config, {**model.entries, name: changed}, model.tokenizer), tmp_path)
    assert isinstance(error, WeightsError)
    assert name in str(error)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        (f"{Q}.bias", (16,)),
        (f"{LAYER}.mlp.down_proj.bias", (16,)),
        (f"{LAYER}.self_attn.q_norm.weight", (8,)),
        (f"{LAYER}.self_attn.rope.weight", (8,)),
        (f"{LAYER}.mlp.up_proj.input_scale", (1,)),
        (f"{LAYER}.mlp.weight_scale", (1,)),
        (f"{Q}.weight_scale_2", (1,)),
        ("model.layers.1.input_layernorm.weight", (16,)),
        ("norm.weight", (16,)),
        (f"{EMBEDDING}_scale", (1,)),
    ],
)
def test_a_tensor_without_a_place_is_refused(model: HfModel, tmp_path: Path, name: str, shape: tuple[int, ...]) -> None:
    """Bug cases B13, B38: a bias or a scale that no rule consumed is not dropped as an unexpected key."""
    model.entries[name] = bf16_entry(np.ones(shape, np.float32))
    error = hf_error(model, tmp_path)
    assert error.kind == "unused-tensor"
    assert f"unused: {name}" in str(error)
    assert ("a scale that no weight uses" in str(error)) is ("scale" in name)


def test_all_problems_are_reported_at_once(model: HfModel, tmp_path: Path) -> None:
    del model.entries[f"{Q}.weight_scale"], model.entries["model.norm.weight"]
    model.entries[f"{Q}.bias"] = bf16_entry(np.ones(16, np.float32))
    text = str(hf_error(model, tmp_path))
    assert "3 problems" in text
    assert all(part in text for part in (f"{Q}.weight", "missing: model.norm.weight", f"unused: {Q}.bias"))


def test_a_long_list_of_problems_is_cut(model: HfModel, tmp_path: Path) -> None:
    for index in range(5000):
        model.entries[f"extra.{index}"] = bf16_entry(np.ones(1, np.float32))
    assert "and 4988 more" in str(hf_error(model, tmp_path))


def test_half_a_surrogate_is_printed_harmlessly(model: HfModel, tmp_path: Path) -> None:
    """JSON can spell it, UTF-8 cannot: the writers refuse it, a hostile file may hold it."""
    model.entries["@@@@@@"] = bf16_entry(np.ones(1, np.float32))
    file = model.write(tmp_path / "m") / "model.safetensors"
    file.write_bytes(file.read_bytes().replace(b"@@@@@@", rb"\ud800"))
    assert refusal(lambda: open_checkpoint(tmp_path / "m")).kind == "unused-tensor"


@pytest.mark.parametrize("name", ["\x1b[2J", "a\nb", "x" * 100_000])
def test_hostile_names_are_printed_harmlessly(model: HfModel, tmp_path: Path, name: str) -> None:
    model.entries[name] = bf16_entry(np.ones(1, np.float32))
    assert hf_error(model, tmp_path).kind == "unused-tensor"


def test_old_names_of_the_sub_norms_are_read_and_never_both(model: HfModel, tmp_path: Path) -> None:
    new = hf_logits(model, tmp_path)
    pairs = {"self_attn.attn_sub_norm": "self_attn.inner_attn_ln", "mlp.ffn_sub_norm": "mlp.ffn_layernorm"}
    old = HfModel(model.config, dict(model.entries), model.tokenizer)
    for now, then in pairs.items():
        old.entries[f"{LAYER}.{then}.weight"] = old.entries.pop(f"{LAYER}.{now}.weight")
    assert np.array_equal(hf_logits(old, tmp_path), new)
    model.entries |= old.entries
    assert hf_error(model, tmp_path).kind == "duplicate-tensor"


def test_saved_rope_frequencies_are_passed_over(model: HfModel, tmp_path: Path) -> None:
    expected = hf_logits(model, tmp_path)
    model.entries[f"{LAYER}.self_attn.rotary_emb.inv_freq"] = bf16_entry(np.ones(4, np.float32))
    assert np.array_equal(hf_logits(model, tmp_path), expected)


# ---- the head ----------------------------------------------------------------------------------------------------


def test_a_tied_head_is_the_embedding_bit_for_bit(model: HfModel, tmp_path: Path) -> None:
    """Bug case B59."""
    tied = hf_logits(model, tmp_path)
    model.entries[HEAD] = model.entries[EMBEDDING]
    assert np.array_equal(hf_logits(model, tmp_path), tied)
    model.config["tie_word_embeddings"] = False
    assert np.array_equal(hf_logits(model, tmp_path), tied)
    model.entries[HEAD] = bf16_entry(model.floats(EMBEDDING)[::-1])
    assert np.array_equal(hf_logits(model, tmp_path), tied[:, ::-1])


def test_a_tied_head_that_differs_is_refused(model: HfModel, tmp_path: Path) -> None:
    embedding = model.entries[EMBEDDING]
    one_bit = bytes([embedding.data[0] ^ 1]) + embedding.data[1:]
    for head in (
        replace(embedding, data=one_bit),
        replace(embedding, dtype="F16"),
        replace(embedding, shape=embedding.shape[::-1]),
    ):
        model.entries[HEAD] = head
        assert hf_error(model, tmp_path).kind == "tied-head"


def test_an_untied_head_must_be_there(model: HfModel, tmp_path: Path) -> None:
    for tie in ({"tie_word_embeddings": False}, {}):  # transformers' default is untied
        model.config.pop("tie_word_embeddings", None)
        model.config |= tie
        error = hf_error(model, tmp_path)
        assert error.kind == "missing-tensor"
        assert HEAD in str(error)


# ---- the configuration and the path ------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [2, 10**9, 10**18])
def test_more_layers_than_the_file_can_hold_are_refused_soon(model: HfModel, tmp_path: Path, layers: int) -> None:
    model.config["num_hidden_layers"] = layers
    error = hf_error(model, tmp_path)
    assert isinstance(error, WeightsError)
    assert "layers.1." in str(error) or str(layers) in str(error)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"hidden_size": 32}, "tensor-shape"),
        ({"vocab_size": 260}, "tensor-shape"),
        ({"intermediate_size": 12}, "tensor-shape"),
        ({"head_dim": 4}, "tensor-shape"),
        ({"num_hidden_layers": 2}, "missing-tensor"),
        ({"architectures": ["LlamaForCausalLM"], "model_type": "llama"}, "unused-tensor"),
        ({"hidden_act": "gelu"}, "config-unsupported"),
        ({"rope_scaling": {"factor": 2}}, "config-unsupported"),
        ({"unheard_of": 1}, "config-unknown-key"),
    ],
)
def test_config_and_tensors_must_agree(model: HfModel, tmp_path: Path, change: dict[str, object], kind: str) -> None:
    """A Llama loader given 2B-4T would drop both sub-norms; here they are tensors without a place."""
    model.config |= change
    assert hf_error(model, tmp_path).kind == kind


def test_an_ignored_key_reaches_the_config_reader(model: HfModel, tmp_path: Path) -> None:
    model.config["unheard_of"] = 1
    assert open_checkpoint(model.write(tmp_path), ignore_keys=("unheard_of",)).config.layers == 1


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


@pytest.mark.parametrize(
    ("damage", "error_type", "kind"),
    [
        (remove("config.json"), ConfigError, "no-config"),
        (remove("model.safetensors"), FormatError, "no-weights"),
        (lambda folder: (folder / "config.json").write_text("{"), ConfigError, "config-unreadable"),
        (lambda folder: (folder / "config.json").write_bytes(b""), ConfigError, "config-unreadable"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b""), FormatError, "truncated"),
    ],
)
def test_damaged_folders(
    model: HfModel, tmp_path: Path, damage: Callable[[Path], None], error_type: type, kind: str
) -> None:
    damage(model.write(tmp_path))
    error = refusal(lambda: open_checkpoint(tmp_path))
    assert isinstance(error, error_type)
    assert error.kind == kind


def test_paths_that_are_no_checkpoint(model: HfModel, tmp_path: Path) -> None:
    model.write(tmp_path)
    for path, kind in {
        "none": "unreadable",
        "n" * 300: "unreadable",
        "model.safetensors": "no-config",
        "config.json": "not-gguf",
    }.items():
        assert refusal(lambda path=path: open_checkpoint(tmp_path / path)).kind == kind
    with pytest.raises(FormatError, match="does not exist"):
        open_checkpoint("a\0b")
    assert open_checkpoint(str(tmp_path)).config.layers == 1
