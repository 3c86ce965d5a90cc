"""Each architecture from a checkpoint of transformers' own: read, converted and read again, damaged, and refused.

The checkpoints are the fixtures of tests/peers, where their logits are judged.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from architecture_files import FIXTURES, converted, edited
from refusals import refusal

from tritgold.architectures import ARCHITECTURES, GGUF_ARCHITECTURES, architecture_of
from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.config import OPTIONAL, ModelConfig
from tritgold.convert import Options, convert
from tritgold.errors import TritgoldError, TritgoldWarning
from tritgold.formats.gguf_file import GgufFile
from tritgold.formats.layouts import Layouts
from tritgold.graph import TracedShape, trace_names
from tritgold.kv_cache.float32 import Float32Cache
from tritgold.layers.attention import softmax_weights
from tritgold.model import forward
from tritgold.rope_scaling import RopeScaling
from tritgold.sparsity.attention import AttentionTopK
from tritgold.trace import Trace
from tritgold_conformance.inspecting.files import ReadOptions
from tritgold_conformance.inspecting.inspection import inspect_model

# The fixture, the architecture, and what of its configuration tells it from a plain one.
CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "bitnet-auto-offline-linear": ("bitnet", ("sub_norms", "rope_scaling")),
    "llama-bitlinear-llama3": ("llama", ("rope_scaling",)),
    "qwen2-bitlinear-yarn-window": ("qwen2", ("qkv_bias", "rope_scaling", "window", "full_layers")),
    "qwen3-bitlinear": ("qwen3", ("qk_norms",)),
    "qwen3-auto-offline-window": ("qwen3", ("qk_norms", "window", "full_layers")),
    "granite-auto-offline": ("granite", ("embedding_scale", "residual_scale", "logit_divisor")),
    "qwen2-auto-offline": ("qwen2", ("qkv_bias",)),
    "qwen2-auto-online": ("qwen2", ("qkv_bias",)),
    "granite-auto-offline-scores": (
        "granite",
        ("residual_scale", "logit_divisor", "query_scale"),
    ),
    "gemma3-auto-offline-scores": (
        "gemma3",
        (
            *("qk_norms", "post_norms", "window", "full_layers", "local_rope_theta", "embedding_scale"),
            "query_scale",
        ),
    ),
    "gemma3-auto-offline": (
        "gemma3",
        ("qk_norms", "post_norms", "rope_scaling", "window", "full_layers", "local_rope_theta", "embedding_scale"),
    ),
}
TOKENS = [3, 1, 41, 5, 9, 2, 6, 50, 30, 0, 7, 11]


@pytest.fixture(scope="module")
def models() -> dict[str, Checkpoint]:
    return {name: open_checkpoint(FIXTURES / name / "checkpoint") for name in CASES}


@pytest.mark.parametrize("case", CASES)
def test_the_entry_and_its_parts(models: dict[str, Checkpoint], case: str) -> None:
    name, parts = CASES[case]
    config = models[case].config
    assert architecture_of(config).name == name
    found = {field for field in config.as_dict() if field in OPTIONAL}
    assert set(parts) == found | ({"sub_norms"} if config.sub_norms else set())
    trace = Trace()
    forward(TOKENS, models[case].weights, config, trace=trace)
    assert list(trace.arrays) == trace_names(config) == trace_names(TracedShape.of(trace.arrays))


@pytest.mark.parametrize("case", CASES)
def test_chunks_and_steps_give_the_bits_of_the_whole(models: dict[str, Checkpoint], case: str) -> None:
    config, weights = models[case].config, models[case].weights
    whole, cache = forward(TOKENS, weights, config), Float32Cache(config, len(TOKENS))
    parts = [forward(part, weights, config, cache) for part in (TOKENS[:7], TOKENS[7:8], TOKENS[8:])]
    assert np.array_equal(np.concatenate(parts), whole)


# What each part is for: without it, logits are others. A fault that a reader may have.
CHANGES: dict[str, dict[str, Any]] = {
    "rope_scaling": {"rope_scaling": None},
    "window": {"window": None, "full_layers": (), "local_rope_theta": None},
    "full_layers": {"full_layers": ()},
    "local_rope_theta": {"local_rope_theta": None},
    "embedding_scale": {"embedding_scale": 1.0},
    "residual_scale": {"residual_scale": 1.0},
    "logit_divisor": {"logit_divisor": 1.0},
    "query_scale": {"query_scale": 1.0},
}


@pytest.mark.parametrize(("case", "part"), [(c, p) for c, (_, parts) in CASES.items() for p in parts if p in CHANGES])
def test_no_part_of_the_configuration_is_idle(models: dict[str, Checkpoint], case: str, part: str) -> None:
    config, weights = models[case].config, models[case].weights
    right, wrong = (forward(TOKENS, weights, c) for c in (config, replace(config, **CHANGES[part])))
    assert np.abs(right - wrong).max() > 1e-3 * np.abs(right).max()


VECTORS = {
    "qwen2-bitlinear-yarn-window": ("q_bias", "k_bias", "v_bias"),
    "qwen3-bitlinear": ("q_norm", "k_norm"),
    "gemma3-auto-offline": ("attn_post_norm", "ffn_post_norm"),
}


@pytest.mark.parametrize(("case", "vector"), [(case, v) for case, vectors in VECTORS.items() for v in vectors])
def test_no_vector_is_idle(models: dict[str, Checkpoint], case: str, vector: str) -> None:
    """A constant added to all keys changes no score, so that RoPE has to tell a dropped bias of k."""
    config, weights = models[case].config, models[case].weights
    layers = tuple(replace(layer, **{vector: np.roll(getattr(layer, vector), 1)}) for layer in weights.layers)
    right, wrong = (forward(TOKENS, w, config) for w in (weights, replace(weights, layers=layers)))
    assert np.abs(right - wrong).max() > 1e-4 * np.abs(right).max()


GGUF = {
    "bitnet-auto-offline-linear": "bitnet-b1.58",
    "llama-bitlinear-llama3": "llama",
    "qwen2-bitlinear-yarn-window": "qwen2",
    "qwen3-bitlinear": "qwen3",
    "granite-auto-offline": "granite",
    "granite-auto-offline-scores": "granite",
    "gemma3-auto-offline": "gemma3",
}


@pytest.mark.parametrize("case", GGUF)
def test_there_and_back_through_gguf(models: dict[str, Checkpoint], case: str, tmp_path: Path) -> None:
    """F32 keeps every scale. Those that divide are stored as reciprocals, which round: then trits and vectors agree."""
    model = models[case]
    if case.startswith("qwen2"):  # whose window GGUF has no place for
        model = replace(model, config=replace(model.config, window=None, full_layers=()))
    there = converted(model, tmp_path / "m.gguf", "gguf-f32")
    assert isinstance(there.container, GgufFile)
    assert there.container.architecture == GGUF[case]
    assert replace(there.config, scale_rule=model.config.scale_rule) == model.config
    if model.config.scale_rule == "multiply":
        assert there.model_hash() == model.model_hash()
    known = there.config.rope_scaling is None or there.config.rope_scaling.source
    if known and not model.config.qkv_bias:
        back = converted(there, tmp_path / "hf", "hf")
        assert back.model_hash() == there.model_hash()


def test_a_window_without_a_place_in_gguf_is_refused(models: dict[str, Checkpoint], tmp_path: Path) -> None:
    error = refusal(lambda: convert(models["qwen3-auto-offline-window"], tmp_path / "m.gguf", "gguf-f32", Options()))
    assert (error.kind, error.hint) == ("window", "--to hf keeps it")
    again = converted(models["qwen3-auto-offline-window"], tmp_path / "hf", "hf")
    assert again.model_hash() == models["qwen3-auto-offline-window"].model_hash()


def test_what_other_containers_cannot_hold(models: dict[str, Checkpoint], tmp_path: Path) -> None:
    error = refusal(lambda: convert(models["qwen3-bitlinear"], tmp_path / "m.bin", "sglbitnt", Options()))
    assert error.kind == "architecture"
    qwen = models["qwen2-bitlinear-yarn-window"]
    whole = replace(qwen, config=replace(qwen.config, window=None, full_layers=()))
    gguf = converted(whole, tmp_path / "m.gguf", "gguf-f32")
    error = refusal(lambda: convert(gguf, tmp_path / "hf", "hf", Options()))
    assert (error.kind, error.hint) == ("scale-rule", "--to tq2_0 keeps the bias")
    unknown = replace(models["llama-bitlinear-llama3"].config, rope_scaling=RopeScaling((2.0,) * 8))
    odd = replace(models["llama-bitlinear-llama3"], config=unknown)
    assert refusal(lambda: convert(odd, tmp_path / "hf", "hf", Options(ignore_keys=("x",)))).kind == "rope-scaling"


@pytest.mark.parametrize(
    ("case", "keys", "kind", "says"),
    [
        (
            "qwen2-bitlinear-yarn-window",
            {"layer_types": ["chunked"] * 3},
            "config-unsupported",
            "layer_types",
        ),
        ("qwen3-bitlinear", {"layer_types": ["sliding_attention"] * 2}, "config-unsupported", "layer_types"),
        ("qwen3-bitlinear", {"attention_bias": True}, "config-unsupported", "attention_bias"),
        ("granite-auto-offline", {"attention_multiplier": 0.0}, "config-value", "query_scale"),
        ("granite-auto-offline", {"attention_multiplier": -0.25}, "config-value", "query_scale"),
        ("granite-auto-offline", {"embedding_multiplier": -1.0}, "config-value", "embedding_scale"),
        ("gemma3-auto-offline", {"query_pre_attn_scalar": 0}, "config-value", "query_pre_attn_scalar"),
        ("gemma3-auto-offline", {"query_pre_attn_scalar": -24}, "config-value", "query_pre_attn_scalar"),
        ("gemma3-auto-offline", {"final_logit_softcapping": 30.0}, "config-unsupported", "final_logit_softcapping"),
        ("gemma3-auto-offline", {"use_bidirectional_attention": True}, "config-unsupported", "bidirectional"),
        ("gemma3-auto-offline", {"sliding_window": 0}, "config-value", "window"),
        ("llama-bitlinear-llama3", {"architectures": ["Qwen3ForCausalLM"]}, "missing-tensor", "q_norm"),
        ("qwen3-bitlinear", {"architectures": ["LlamaForCausalLM"]}, "unused-tensor", "q_norm"),
        (
            "qwen2-bitlinear-yarn-window",
            {"architectures": ["LlamaForCausalLM"], "use_sliding_window": False},
            "unused-tensor",
            "bias",
        ),
        ("granite-auto-offline", {"architectures": ["LlamaForCausalLM"]}, "config-unknown-key", "multiplier"),
        ("qwen3-bitlinear", {"architectures": ["Qwen3MoeForCausalLM"]}, "architecture", "Qwen3MoeForCausalLM"),
    ],
)
def test_what_is_not_covered_is_refused_by_name(
    tmp_path: Path, case: str, keys: dict[str, Any], kind: str, says: str
) -> None:
    error = refusal(lambda: open_checkpoint(edited(case, tmp_path / "m", keys)))
    assert isinstance(error, TritgoldError)
    assert error.kind == kind
    assert says in str(error)


def test_stored_scales_that_multiply_multiply_the_bias_too(tmp_path: Path) -> None:
    """As transformers' AutoBitLinear does; with scales that divide, or of masters, biases are as the file has them."""
    section = {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline"}
    plain = open_checkpoint(FIXTURES / "qwen2-bitlinear-yarn-window" / "checkpoint")
    folder = edited("qwen2-bitlinear-yarn-window", tmp_path / "m", {"quantization_config": section})
    for right, scaled in zip(plain.weights.layers, open_checkpoint(folder).weights.layers, strict=True):
        for name in "qkv":
            stored, bias = right.bias(name), scaled.bias(name)
            assert stored is not None
            assert np.array_equal(bias, stored * scaled.linear(name).ternary().scale)  # type: ignore[arg-type]


def test_a_factor_of_the_scores_is_kept_or_refused(models: dict[str, Checkpoint], tmp_path: Path) -> None:
    gemma = models["gemma3-auto-offline-scores"]
    again = converted(gemma, tmp_path / "hf", "hf")
    assert again.model_hash() == gemma.model_hash()
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["query_pre_attn_scalar"] == 21
    regular = replace(gemma, config=replace(gemma.config, full_layers=()))
    error = refusal(lambda: convert(regular, tmp_path / "m.gguf", "gguf-f32", Options()))
    assert (error.kind, error.hint) == ("query-scale", "--to hf keeps it")


def test_gemma_27b_is_known_by_its_layers(models: dict[str, Checkpoint], tmp_path: Path) -> None:
    """Its scores are divided by the root of hidden / heads, here 16 where head_dim is 24: llama.cpp's rule."""
    tiny = models["gemma3-auto-offline"]
    c = replace(tiny.config, layers=62, full_layers=tuple(range(5, 62, 6)), query_scale=float(np.sqrt(24 / 16)))
    layers = tuple(tiny.weights.layers[0] for _ in range(62))
    whole = replace(tiny, config=c, weights=replace(tiny.weights, layers=layers))
    there = converted(whole, tmp_path / "m.gguf", "gguf-f32")
    assert there.config == c
    error = refusal(
        lambda: convert(replace(whole, config=replace(c, query_scale=1.0)), tmp_path / "n.gguf", "gguf-f32", Options())
    )
    assert error.kind == "query-scale"


def test_dynamic_rope_is_plain_within_the_original_context(tmp_path: Path) -> None:
    folder = FIXTURES / "llama-bitlinear-dynamic" / "checkpoint"
    assert open_checkpoint(folder).config.rope_scaling is None
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4, "original_max_position_embeddings": 32}
    error = refusal(
        lambda: open_checkpoint(edited("llama-bitlinear-dynamic", tmp_path / "m", {"rope_parameters": rope}))
    )
    assert error.kind == "config-unsupported"
    assert "32 below max_position_embeddings 64" in str(error)
    shorter = {"rope_parameters": rope, "max_position_embeddings": 32}  # what the hint says
    assert open_checkpoint(edited("llama-bitlinear-dynamic", tmp_path / "n", shorter)).config.context == 32


def test_a_bitnet_without_sub_norms_is_read_as_one(tmp_path: Path) -> None:
    folder = edited("llama-bitlinear-llama3", tmp_path / "m", {"architectures": ["BitNetForCausalLM"]})
    with pytest.warns(TritgoldWarning, match="holds no sub-norms"):
        found = open_checkpoint(folder)
    plain = open_checkpoint(FIXTURES / "llama-bitlinear-llama3" / "checkpoint")
    assert found.model_hash() == plain.model_hash()


def test_inspection_names_the_architecture() -> None:
    said = inspect_model(FIXTURES / "gemma3-auto-offline" / "checkpoint", ReadOptions(Layouts()))
    assert said["architecture"] == "gemma3"
    assert said["config"]["window"] == 6


def test_names_of_the_table_are_unique() -> None:
    assert len(GGUF_ARCHITECTURES) == sum(len(entry.gguf) for entry in ARCHITECTURES)
    classes = [name for entry in ARCHITECTURES for name in entry.classes]
    assert len(classes) == len(set(classes))


def test_parts_that_no_architecture_has_together(models: dict[str, Checkpoint]) -> None:
    config = replace(models["qwen3-bitlinear"].config, qkv_bias=True)
    assert refusal(lambda: architecture_of(config)).kind == "architecture"


def test_a_window_by_hand() -> None:
    q = k = np.ones((4, 1, 2), np.float32)
    third = np.float32(1 / 3)
    expected = [[1, 0, 0, 0], [0.5, 0.5, 0, 0], [third, third, third, 0], [0, third, third, third]]
    assert np.array_equal(softmax_weights(q, k, 0, window=3)[0], np.array(expected, np.float32))
    assert np.array_equal(softmax_weights(q[:1], k, 3, window=2)[0], np.array([[0, 0, 0.5, 0.5]], np.float32))


def test_attention_sparsity_refuses_a_window(models: dict[str, Checkpoint]) -> None:
    model = models["qwen3-auto-offline-window"]
    arithmetic = AttentionTopK(k=2).arithmetic()
    error = refusal(lambda: forward(TOKENS, model.weights, model.config, arithmetic=arithmetic))
    assert error.kind == "attention-window"


def test_a_configuration_survives_json(models: dict[str, Checkpoint]) -> None:
    """As the command protocol and reports hold it."""
    for model in models.values():
        read = json.loads(json.dumps(model.config.as_dict()))
        assert ModelConfig(**{**read, "eos": tuple(read["eos"])}) == model.config
