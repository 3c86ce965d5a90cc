"""GGUF metadata: what is understood, what is refused, and that nothing is passed over."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import frugal, refusal

from tritgold.architectures import GGUF_ARCHITECTURES
from tritgold.config import ModelConfig
from tritgold.errors import ConfigError, TritgoldWarning
from tritgold.formats.gguf_config import read_gguf_config
from tritgold.formats.gguf_rope import scaling_keys

ABSENT = object()
EPS = float(np.float32(1e-5))
# Keys without a dot belong to the architecture and get its prefix.
GOOD: dict[str, Any] = {
    "context_length": 32,
    "embedding_length": 16,
    "block_count": 2,
    "feed_forward_length": 24,
    "attention_head_count": 2,
    "attention_head_count_kv": 1,
    "attention_layer_norm_rms_epsilon": EPS,
    "rope_freq_base": 500000.0,
}


def metadata(arch: str, changes: dict[str, Any]) -> dict[str, Any]:
    own = {k.replace("attention_", "attention.").replace("rope_", "rope."): v for k, v in GOOD.items()}
    named = {f"{arch}.{k}": v for k, v in own.items()}
    full = {"general.architecture": arch, "general.file_type": 40, **named, "tokenizer.ggml.bos_token_id": 256}
    return {k: v for k, v in (full | changes).items() if v is not ABSENT}


def read(changes: dict[str, Any] | None = None, arch: str = "bitnet-b1.58") -> ModelConfig:
    return read_gguf_config(Path("m.gguf"), metadata(arch, changes or {}), 259, tied_head=True)


def error_of(changes: dict[str, Any]) -> ConfigError:
    with frugal():
        error = refusal(lambda: read(changes))
    assert isinstance(error, ConfigError)
    assert error.file == "m.gguf"
    return error


def test_the_good_metadata() -> None:
    model = read({"tokenizer.ggml.eos_token_id": 257})
    assert (model.vocab, model.hidden, model.inter, model.layers) == (259, 16, 24, 2)
    assert (model.heads, model.kv_heads, model.head_dim, model.context) == (2, 1, 8, 32)
    assert (model.norm_eps, model.rope_theta, model.tied_head) == (EPS, 500000.0, True)
    assert (model.bos, model.eos, model.scale_rule) == (256, (257,), "multiply")


@pytest.mark.parametrize(
    ("arch", "activation", "sub_norms"),
    [("bitnet", "silu", True), ("bitnet-25", "relu2", True), ("bitnet-b1.58", "relu2", True), ("llama", "silu", False)],
)
def test_each_architecture_has_its_prefix_and_its_graph(arch: str, activation: str, sub_norms: bool) -> None:
    """Bug cases B36 (SiLU in the place of squared ReLU) and B66."""
    model = read(arch=arch)
    assert (model.activation, model.sub_norms) == (activation, sub_norms)
    assert GGUF_ARCHITECTURES[arch].permuted is (arch == "llama")


@pytest.mark.parametrize(("name", "activation"), [("relu_sqr", "relu2"), ("silu", "silu"), ("swish", "silu")])
def test_a_file_that_names_its_activation_is_believed(name: str, activation: str) -> None:
    assert read({"bitnet-b1.58.hidden_activation": name}).activation == activation


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        ({"factor": 8.0}, "linear"),  # as llama.cpp reads a factor without a type
        ({"type": "linear", "factor": 2.5}, "linear"),
        ({"type": "yarn", "factor": 4.0, "original_context_length": 16, "attn_factor": 1.25}, "yarn"),
        ({"type": "yarn", "factor": 4.0, "original_context_length": 16, "yarn_beta_fast": 16.0}, "yarn"),
    ],
)
def test_scaled_rope_there_and_back(keys: dict[str, Any], kind: str) -> None:
    config = read({f"{P}rope.scaling.{key}": value for key, value in keys.items()})
    assert config.rope_scaling is not None
    assert f'"rope_type": "{kind}"' in config.rope_scaling.source
    found, factors = scaling_keys(config, permuted=False)
    assert factors is None
    assert read({f"{P}{key}": value for key, value in found.items()}) == config


def test_neutral_and_descriptive_keys_change_nothing() -> None:
    neutral = {
        "bitnet-b1.58.rope.scaling.type": "none",
        "bitnet-b1.58.rope.dimension_count": 8,
        "bitnet-b1.58.attention.key_length": 8,
        "bitnet-b1.58.vocab_size": 259,
        "bitnet-b1.58.expert_count": 0,
        "bitnet-b1.58.leading_dense_block_count": 0,
        "bitnet-b1.58.pooling_type": 3,
        "bitnet-b1.58.rope.scaling.finetuned": False,
        "general.name": "x",
        "tokenizer.ggml.tokens": ["a"],
        "quantize.imatrix.file": "x",
    }
    assert read(neutral) == read()


T = "tokenizer.ggml."


@pytest.mark.parametrize(
    ("keys", "eos"),
    [
        ({}, ()),
        ({f"{T}eos_token_id": 1}, (1,)),
        ({f"{T}eot_token_id": 2}, (2,)),
        ({f"{T}eom_token_id": 3, f"{T}eot_token_id": 2, f"{T}eos_token_id": 1}, (1, 2, 3)),
        ({f"{T}eos_token_id": 1, f"{T}eot_token_id": 1}, (1,)),  # as Llama 3's files have it
        ({f"{T}eos_token_id": 1, "tritgold.eos_token_ids": np.array([4, 4, 1, 3], np.uint32)}, (4, 4, 1, 3)),
    ],
)
def test_whatever_ends_a_text(keys: dict[str, Any], eos: tuple[int, ...]) -> None:
    assert read(keys).eos == eos


def test_a_mask_counts_only_beside_a_block() -> None:
    """Many vocabularies have a mask token; the model decodes blocks only where the file says how long."""
    assert (read({f"{T}mask_token_id": 3}).mask, read({f"{T}mask_token_id": 3}).block) == (None, None)
    both = read({f"{T}mask_token_id": 3, "tritgold.block_size": 8})
    assert (both.mask, both.block) == (3, 8)


P = "bitnet-b1.58."
REFUSED: list[tuple[str, str, dict[str, Any]]] = [
    *(("config-value", f"{P}{key}", {f"{P}{key}": ABSENT}) for key in (
        "attention.layer_norm_rms_epsilon", "context_length", "embedding_length", "block_count",
        "feed_forward_length", "attention.head_count")),
    ("config-value", "the nearest is 'bitnet-b1.58'", {"general.architecture": "bitnet-b158"}),
    ("config-value", "bitnet-b1.58, bitnet, bitnet-25, llama, qwen2", {"general.architecture": "falcon"}),
    ("config-value", "general.architecture", {"general.architecture": ABSENT}),
    ("config-value", "general.architecture", {"general.architecture": ["llama"]}),
    ("config-value", "general.architecture", {"general.architecture": np.array([1, 2])}),
    ("config-value", "general.architecture", {"general.architecture": 7}),
    ("config-value", "rope.scaling.attn_factor", {f"{P}rope.scaling.attn_factor": 1.1}),
    ("config-unknown-key", "vendor.rope.scaling.type", {"vendor.rope.scaling.type": "yarn"}),
    ("config-unknown-key", "llama.block_count", {"llama.block_count": 2}),
    ("config-unknown-key", "block_count", {"block_count": 7}),
    ("config-unknown-key", "rope.scaling.type", {"rope.scaling.type": "yarn"}),
    ("config-value", "rope.scaling.type", {f"{P}rope.scaling.type": "longrope", f"{P}rope.scaling.factor": 8.0}),
    ("config-value", "rope.scaling.factor", {f"{P}rope.scaling.type": "yarn"}),
    ("config-value", "original_context", {f"{P}rope.scaling.type": "yarn", f"{P}rope.scaling.factor": 8.0}),
    ("config-value", "rope.scaling.factor", {f"{P}rope.scaling.type": "linear", f"{P}rope.scaling.factor": -1.0}),
    ("config-value", "rope.scaling.factor", {f"{P}rope.scaling.factor": np.array([1.0, 2.0], np.float32)}),
    ("config-value", "sliding_window", {f"{P}attention.sliding_window": [1, 2]}),
    ("config-value", "expert_count", {f"{P}expert_count": 8}),
    ("config-value", "causal", {f"{P}attention.causal": False}),
    ("config-value", "hidden_activation", {f"{P}hidden_activation": "gelu"}),
    ("config-value", "hidden_activation", {f"{P}hidden_activation": 1}),
    ("config-value", "block_count", {f"{P}block_count": True}),
    ("config-value", "block_count", {f"{P}block_count": 2.0}),
    ("config-value", "attention.head_count", {f"{P}attention.head_count": np.array([2, 4])}),
    ("config-value", "attention.head_count", {f"{P}attention.head_count": ["x" * 100] * 1000}),
    ("config-value", "heads", {f"{P}attention.head_count": 0}),
    ("config-value", "kv_heads", {f"{P}attention.head_count": 4, f"{P}attention.head_count_kv": 3}),
    ("config-value", "rope.dimension_count", {f"{P}rope.dimension_count": 4}),
    ("config-value", "vocab_size", {f"{P}vocab_size": 260}),
    ("config-value", "rope_theta", {f"{P}rope.freq_base": float("nan")}),
    ("config-value", "rope.freq_base", {f"{P}rope.freq_base": 500000}),
    ("config-value", "norm_eps", {f"{P}attention.layer_norm_rms_epsilon": 0.0}),
    ("config-value", "bos_token_id", {"tokenizer.ggml.bos_token_id": "256"}),
    ("config-value", "bos_token_id", {"tokenizer.ggml.bos_token_id": 256.0}),
    ("config-value", "bos_token_id", {"tokenizer.ggml.bos_token_id": True}),
    ("config-value", "eos_token_id", {"tokenizer.ggml.eos_token_id": np.array([1])}),
    ("config-value", "eos_token_id", {"tokenizer.ggml.eos_token_id": ["1"]}),
    ("config-value", "eot_token_id", {f"{T}eot_token_id": 1.5}),
    ("config-value", "tritgold.eos_token_ids", {"tritgold.eos_token_ids": [1, 2]}),
    ("config-value", "tritgold.eos_token_ids", {"tritgold.eos_token_ids": np.array([1.0])}),
    ("config-value", "mask_token_id", {"tritgold.block_size": 8}),
    ("config-value", "tritgold.block_size", {"tritgold.block_size": "8", f"{T}mask_token_id": 3}),
    ("config-value", "block", {"tritgold.block_size": 0, f"{T}mask_token_id": 3}),
    ("config-value", "mask", {"tritgold.block_size": 8, f"{T}mask_token_id": 259}),
    ("config-unknown-key", "tritgold.blocks", {"tritgold.blocks": 8}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "says", "changes"), REFUSED)
def test_what_is_refused(kind: str, says: str, changes: dict[str, Any]) -> None:
    error = error_of(changes)
    assert error.kind == kind
    assert says in str(error)


@pytest.mark.parametrize("text", ["\x1b[2J", "a\nb", "\u202e", "x" * 100_000])
def test_hostile_text_is_printed_harmlessly(text: str) -> None:
    for changes in ({"general.architecture": text}, {P + "hidden_activation": text}, {P + text: 1},
                    {P + "block_count": text}, {P + "rope.scaling.type": text}):  # fmt: skip
        error_of(changes)
    with pytest.warns(TritgoldWarning, match="are passed over") as notes:
        read({text: 1})
    assert str(notes[0].message).isprintable()
    assert len(str(notes[0].message)) < 500


@pytest.mark.parametrize(
    ("changes", "bos", "eos"),
    [
        ({f"{T}bos_token_id": 259}, None, ()),
        ({f"{T}eos_token_id": 5, f"{T}eom_token_id": 259}, 256, (5,)),
        ({"tritgold.eos_token_ids": np.array([-1, 4])}, 256, (4,)),
    ],
)
def test_ids_outside_the_vocabulary_are_left_out_with_a_warning(
    changes: dict[str, Any], bos: int | None, eos: tuple[int, ...]
) -> None:
    """As from config.json, so that one model read from two containers stops at the same ids."""
    with pytest.warns(TritgoldWarning, match="lies outside the vocabulary of 259"):
        model = read(changes)
    assert (model.bos, model.eos) == (bos, eos)


def test_keys_of_who_published_the_file_are_passed_over_with_one_note() -> None:
    vendor = {f"mradermacher.key_{n}": "x" for n in range(6)}
    with pytest.warns(TritgoldWarning, match=r"mradermacher.key_0, .* and 2 more") as notes:
        assert read(vendor) == read({})
    assert len(notes) == 1
    assert read({"quantize.imatrix.file": "x", "quantize.imatrix.entries_count": 3}) == read({})
    assert read({f"{P}rope.scaling.attn_factor": 1.0, f"{P}rope.scaling.type": "default"}) == read({})


def test_a_missing_theta_is_llama_cpp_s_and_said() -> None:
    with pytest.warns(TritgoldWarning, match="freq_base' is missing: 10000 is taken, as llama.cpp does"):
        assert read({f"{P}rope.freq_base": ABSENT}).rope_theta == 10_000


@pytest.mark.parametrize("key", ["attention.head_count", "attention.head_count_kv", "feed_forward_length"])
def test_a_number_a_layer_is_one_where_all_are_the_same(key: str) -> None:
    value = int(metadata("bitnet-b1.58", {})[f"{P}{key}"])
    assert read({f"{P}{key}": np.array([value, value], np.uint32)}) == read()
    for other in ([value, value + 1], [value, float("nan")], []):
        error = error_of({f"{P}{key}": np.array(other)})
        assert (error.kind, error.thing) == ("config-value", f"key '{P}{key}'")


@pytest.mark.parametrize("key", [f"{P}novel", "llama.novel", "tritgold.novel", "vendor.key"])
def test_an_ignored_key_is_passed_over_without_a_note(key: str) -> None:
    assert read_gguf_config(Path("m"), metadata("bitnet-b1.58", {key: 1}), 259, True, (key,)) == read({})
