"""config.json: what is understood, what is refused, and that nothing is passed over."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import frugal, refusal

from tritgold.errors import ConfigError, TritgoldWarning
from tritgold.formats.hf_config import HfConfig, read_hf_config

QUANTIZATION = {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline"}
GOOD: dict[str, Any] = {
    "architectures": ["BitNetForCausalLM"],
    "vocab_size": 259,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "hidden_act": "relu2",
    "max_position_embeddings": 32,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "bos_token_id": 256,
    "eos_token_id": 257,
    "quantization_config": QUANTIZATION,
}
ABSENT = object()


def read(
    tmp_path: Path, content: str | bytes | None = None, changes: dict[str, Any] | None = None, **options: Any
) -> HfConfig:
    """Read the good configuration with some keys changed, or any text."""
    values = {k: v for k, v in (GOOD | (changes or {})).items() if v is not ABSENT}
    raw = json.dumps(values) if content is None else content
    (tmp_path / "config.json").write_bytes(raw.encode() if isinstance(raw, str) else raw)
    return read_hf_config(tmp_path / "config.json", **options)


def error_of(tmp_path: Path, content: str | bytes | None = None, **changes: Any) -> ConfigError:
    with frugal():
        error = refusal(lambda: read(tmp_path, content, changes))
    assert isinstance(error, ConfigError)
    assert error.file == str(tmp_path / "config.json")
    return error


def test_the_good_configuration(tmp_path: Path) -> None:
    model = read(tmp_path).model
    assert (model.vocab, model.hidden, model.inter, model.layers) == (259, 16, 24, 2)
    assert (model.heads, model.kv_heads, model.head_dim, model.context) == (2, 1, 8, 32)
    assert (model.activation, model.sub_norms, model.tied_head, model.scale_rule) == ("relu2", True, True, "multiply")
    assert (model.norm_eps, model.rope_theta) == (float(np.float32(1e-5)), 500000.0)
    assert (model.bos, model.eos) == (256, (257,))
    assert read(tmp_path).mode == "offline"


@pytest.mark.parametrize("name", ["BitNetForCausalLM", "BitnetForCausalLM"])
def test_both_spellings_are_one_graph(tmp_path: Path, name: str) -> None:
    """Bug case B66."""
    assert read(tmp_path, changes={"architectures": [name]}).model == read(tmp_path).model


def test_special_tokens_outside_the_vocabulary_are_left_out_with_a_warning(tmp_path: Path) -> None:
    """transformers saves BitNetConfig's 128000 and 128001 into every small model."""
    with pytest.warns(TritgoldWarning, match="128000 lies outside the vocabulary of 259"):
        model = read(tmp_path, changes={"bos_token_id": 128_000}).model
    assert model.bos is None
    with pytest.warns(TritgoldWarning, match="eos_token_id -1 lies outside"):
        assert read(tmp_path, changes={"eos_token_id": [257, -1]}).model.eos == (257,)


def test_an_unknown_architecture_suggests_the_nearest(tmp_path: Path) -> None:
    error = error_of(tmp_path, architectures=["BitNet158ForCausalLM"])
    assert error.hint == "the nearest is 'BitNetForCausalLM'"


def test_the_llama_family_has_no_sub_norms(tmp_path: Path) -> None:
    changes = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_act": "silu",
        "quantization_config": {"quant_method": "bitnet"},
    }
    model = read(tmp_path, changes=changes).model
    assert (model.sub_norms, model.activation, model.scale_rule) == (False, "silu", "divide")


@pytest.mark.parametrize(
    ("section", "rule", "mode"),
    [
        (QUANTIZATION, "multiply", "offline"),
        ({"quant_method": "bitnet", "linear_class": "bitlinear"}, "divide", "offline"),
        ({"quant_method": "bitnet"}, "divide", "offline"),  # transformers' default class
        (
            {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "online"},
            "multiply",
            "online",
        ),
    ],
)
def test_the_linear_class_decides_the_scale_rule(tmp_path: Path, section: dict[str, str], rule: str, mode: str) -> None:
    """Bug case B09: only the config tells; a scale of 1.555 and its inverse are both plausible."""
    config = read(tmp_path, changes={"quantization_config": section})
    assert (config.model.scale_rule, config.mode) == (rule, mode)


def test_without_a_section_the_mode_is_open_until_somebody_says(tmp_path: Path) -> None:
    changes = {"quantization_config": ABSENT}
    assert read(tmp_path, changes=changes).mode is None
    config = read(tmp_path, changes=changes, linear_class="bitlinear")
    assert (config.model.scale_rule, config.mode) == ("divide", "offline")
    assert refusal(lambda: read(tmp_path, changes=changes, linear_class="linear")).kind == "config-unsupported"
    assert refusal(lambda: read(tmp_path, linear_class="bitlinear")).kind == "config-contradiction"
    assert read(tmp_path, linear_class="autobitlinear").mode == "offline"


def test_1bitllm_masters_are_online(tmp_path: Path) -> None:
    config = read(tmp_path, changes={"quantization_config": ABSENT, "weight_bits": 1, "input_bits": 8})
    assert (config.mode, config.model.scale_rule) == ("online", "multiply")


@pytest.mark.parametrize(
    "place",
    [
        {"rope_theta": 500000.0},
        {"rope_theta": 500000},
        {"rope_theta": ABSENT, "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
        {"rope_theta": 500000.0, "rope_parameters": {"rope_theta": 500000.0}},
        {"rope_scaling": None},
    ],
)
def test_theta_may_stand_in_either_place(tmp_path: Path, place: dict[str, Any]) -> None:
    assert read(tmp_path, changes=place).model.rope_theta == 500000.0


@pytest.mark.parametrize(
    "key", ["transformers_version", "torch_dtype", "dtype", "use_cache", "model_type", "_name_or_path"]
)
def test_bookkeeping_changes_nothing(tmp_path: Path, key: str) -> None:
    assert read(tmp_path, changes={key: "anything"}).model == read(tmp_path).model


@pytest.mark.parametrize("names", [ABSENT, None, []])
def test_without_architectures_the_model_type_decides(tmp_path: Path, names: object) -> None:
    """As in transformers, whose automatic classes go by it."""
    assert read(tmp_path, changes={"architectures": names, "model_type": "bitnet"}) == read(tmp_path)
    for unknown in ("mamba", ABSENT, ["bitnet"]):
        found = error_of(tmp_path, architectures=names, model_type=unknown)
        assert (found.kind, found.thing) == ("architecture", "key 'architectures'")


def test_a_model_type_of_another_architecture_is_said(tmp_path: Path) -> None:
    with pytest.warns(TritgoldWarning, match="say BitNetForCausalLM, which is read, and model_type says llama"):
        assert read(tmp_path, changes={"model_type": "llama"}) == read(tmp_path)
    masters = {"architectures": ["BitnetForCausalLM"], "quantization_config": ABSENT, "weight_bits": 1}
    assert read(tmp_path, changes={**masters, "model_type": "llama"}).mode == "online"  # as 1bitLLM wrote it


def test_an_unknown_key_can_be_passed_over_by_name(tmp_path: Path) -> None:
    changes = {"unheard_of": 32}
    assert refusal(lambda: read(tmp_path, changes=changes, ignore_keys=("other",))).kind == "config-unknown-key"
    assert read(tmp_path, changes=changes, ignore_keys=("unheard_of",)).model == read(tmp_path).model


def test_block_and_mask_make_a_model_one_of_block_diffusion(tmp_path: Path) -> None:
    model = read(tmp_path, changes={"bd_size": 8, "mask_token_id": 258}).model
    assert (model.block, model.mask) == (8, 258)
    for changes in ({}, {"bd_size": None, "mask_token_id": None}):
        assert read(tmp_path, changes=changes).model == replace(model, block=None, mask=None)


@pytest.mark.parametrize(
    ("eos", "expected"), [(257, (257,)), ([257, 258], (257, 258)), (None, ()), ([], ()), (ABSENT, ())]
)
def test_several_eos_or_none(tmp_path: Path, eos: object, expected: tuple[int, ...]) -> None:
    assert read(tmp_path, changes={"eos_token_id": eos}).model.eos == expected


THETA = {"rope_theta": 10000.0}
REFUSED: list[tuple[str, str, dict[str, Any]]] = [
    # contradictions
    ("config-contradiction", "rope_theta", {"rope_parameters": THETA}),
    ("config-contradiction", "quantization_mode", {"quantization_config": {**QUANTIZATION, "linear_class": "bitlinear",
                                                                          "quantization_mode": "online"}}),
    # arithmetic that we do not have
    ("config-unsupported", "hidden_act", {"hidden_act": "gelu"}),
    ("config-unsupported", "attention_bias", {"attention_bias": True}),
    ("config-unsupported", "mlp_bias", {"mlp_bias": True}),
    ("config-unsupported", "rope_scaling", {"rope_scaling": {"type": "linear", "factor": 2.0, "novel": 1}}),
    ("config-value", "factor", {"rope_scaling": {"type": "linear", "factor": -2.0}}),
    ("config-value", "factor", {"rope_scaling": {"type": "linear", "factor": 1e300}}),
    ("config-contradiction", "rope_scaling", {"rope_parameters": {"rope_theta": 5e5},
                                              "rope_scaling": {"type": "linear", "factor": 2.0}}),
    ("config-missing", "original_max_position_embeddings", {"rope_scaling": {"type": "yarn", "factor": 2.0}}),
    ("config-unsupported", "too short", {"rope_scaling": {"type": "longrope", "short_factor": [1.0] * 4,
                                         "long_factor": [2.0] * 4, "original_max_position_embeddings": 16}}),
    ("config-value", "another length", {"rope_scaling": {"type": "longrope", "short_factor": [1.0] * 3,
                                        "long_factor": [2.0] * 4, "original_max_position_embeddings": 32}}),
    ("config-unsupported", "sliding_window", {"sliding_window": 4096}),
    ("config-unsupported", "partial_rotary_factor", {"partial_rotary_factor": 0.5}),
    ("config-unsupported", "input_bits", {"input_bits": 4}),
    ("config-unsupported", "linear_class", {"quantization_config": {**QUANTIZATION, "linear_class": "linear"}}),
    ("config-unsupported", "quantization_mode", {"quantization_config": {**QUANTIZATION, "quantization_mode": "o"}}),
    ("config-unsupported", "quant_method", {"quantization_config": {**QUANTIZATION, "quant_method": "gptq"}}),
    ("config-unsupported", "use_rms_norm", {"quantization_config": {**QUANTIZATION, "use_rms_norm": True}}),
    ("config-unsupported", "not_convert", {"quantization_config": {"modules_to_not_convert": ["q_proj"]}}),
    ("config-missing", "factor", {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5}}),
    ("architecture", "architectures", {"architectures": ["MistralForCausalLM"]}),
    ("architecture", "architectures", {"architectures": ["BitNetForCausalLM", "LlamaForCausalLM"]}),
    ("architecture", "architectures", {"architectures": []}),
    ("architecture", "architectures", {"architectures": ABSENT}),
    ("architecture", "architectures", {"architectures": [["BitNetForCausalLM"]]}),
    ("architecture", "architectures", {"architectures": [{}]}),
    ("architecture", "architectures", {"architectures": [None]}),
    # keys nobody understands
    ("config-unknown-key", "rope_scale", {"rope_scale": 2}),
    ("config-unknown-key", "quantization_config.'group'", {"quantization_config": {**QUANTIZATION, "group": 1}}),
    ("config-unknown-key", "rope_parameters.'factor'", {"rope_parameters": {"rope_theta": 5e5, "factor": 2.0}}),
    # missing
    *(("config-missing", key, {key: ABSENT}) for key in GOOD
      if key.endswith("_size") or key in ("num_hidden_layers", "num_attention_heads", "hidden_act", "rms_norm_eps",
                                          "max_position_embeddings", "rope_theta")),
    ("config-missing", "hidden_size", {"hidden_size": None}),
    ("config-missing", "rope_theta", {"rope_parameters": {}, "rope_theta": ABSENT}),
    # types
    ("config-type", "hidden_size", {"hidden_size": True}),
    ("config-type", "hidden_size", {"hidden_size": 16.0}),
    ("config-type", "hidden_size", {"hidden_size": "16"}),
    ("config-type", "hidden_size", {"hidden_size": [16]}),
    ("config-type", "num_hidden_layers", {"num_hidden_layers": {"a": 1}}),
    ("config-type", "tie_word_embeddings", {"tie_word_embeddings": 1}),
    ("config-type", "tie_word_embeddings", {"tie_word_embeddings": "true"}),
    ("config-type", "rms_norm_eps", {"rms_norm_eps": "1e-5"}),
    ("config-type", "rope_theta", {"rope_theta": True}),
    ("config-type", "hidden_act", {"hidden_act": 1}),
    ("config-type", "architectures", {"architectures": "BitNetForCausalLM"}),
    ("config-type", "quantization_config", {"quantization_config": "bitnet"}),
    ("config-type", "rope_parameters", {"rope_parameters": []}),
    ("config-type", "bos_token_id", {"bos_token_id": True}),
    ("config-type", "bos_token_id", {"bos_token_id": [1]}),
    ("config-type", "eos_token_id", {"eos_token_id": True}),
    ("config-type", "eos_token_id", {"eos_token_id": "257"}),
    ("config-type", "eos_token_id", {"eos_token_id": ["257"]}),
    ("config-type", "eos_token_id", {"eos_token_id": [True]}),
    ("config-type", "eos_token_id", {"eos_token_id": [257.0]}),
    ("config-type", "eos_token_id", {"eos_token_id": [[257]]}),
    ("config-type", "eos_token_id", {"eos_token_id": [None]}),
    ("config-type", "bd_size", {"bd_size": 8.0, "mask_token_id": 258}),
    ("config-type", "bd_size", {"bd_size": True, "mask_token_id": 258}),
    ("config-type", "mask_token_id", {"bd_size": 8, "mask_token_id": "258"}),
    ("config-type", "mask_token_id", {"bd_size": 8, "mask_token_id": [258]}),
    # values
    ("config-value", "hidden", {"hidden_size": 0}),
    ("config-value", "hidden", {"hidden_size": -16}),
    ("config-value", "hidden", {"hidden_size": 132_106}),
    ("config-value", "hidden", {"hidden_size": 10**400}),
    ("config-value", "heads", {"num_attention_heads": 0}),
    ("config-value", "kv_heads", {"num_attention_heads": 4, "num_key_value_heads": 3}),
    ("config-value", "head_dim", {"head_dim": 7}),
    ("config-value", "norm_eps", {"rms_norm_eps": 0.0}),
    ("config-value", "norm_eps", {"rms_norm_eps": -1e-5}),
    ("config-value", "norm_eps", {"rms_norm_eps": float("nan")}),
    ("config-value", "norm_eps", {"rms_norm_eps": 1e-300}),
    ("config-value", "rope_theta", {"rope_theta": 0.5}),
    ("config-value", "rope_theta", {"rope_theta": float("inf")}),
    ("config-value", "rope_theta", {"rope_theta": 10**400}),
    ("config-value", "rope_theta", {"rope_parameters": {"rope_theta": 10**400}, "rope_theta": ABSENT}),
    ("config-missing", "key 'mask_token_id': is missing beside bd_size", {"bd_size": 8}),
    ("config-missing", "key 'bd_size': is missing beside mask_token_id", {"mask_token_id": 258}),
    ("config-value", "block is not usable: found 0", {"bd_size": 0, "mask_token_id": 258}),
    ("config-value", "block is not usable: found -8", {"bd_size": -8, "mask_token_id": 258}),
    ("config-value", "mask is not usable: found 257, expected no end", {"bd_size": 8, "mask_token_id": 257}),
    ("config-value", "mask is not usable: found 259", {"bd_size": 8, "mask_token_id": 259}),
    ("config-value", "mask is not usable: found -1", {"bd_size": 8, "mask_token_id": -1}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "says", "changes"), REFUSED)
def test_what_is_refused(tmp_path: Path, kind: str, says: str, changes: dict[str, Any]) -> None:
    error = error_of(tmp_path, **changes)
    assert error.kind == kind
    assert says in str(error)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        "1",
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"a":' + "9" * 5000 + "}",
        b"\xff",
        b"\xef\xbb\xbf{}",
        '{"rope_theta": 10000.0,' + json.dumps(GOOD)[1:],
        json.dumps(GOOD).replace('"linear_class"', '"linear_class": "bitlinear", "linear_class"'),
    ],
)
def test_what_is_no_configuration(tmp_path: Path, content: str | bytes) -> None:
    assert error_of(tmp_path, content).kind == "config-unreadable"


@pytest.mark.parametrize("text", ["\ud800", "\x1b[2J", "a\nb", "x" * 100_000])
def test_hostile_text_is_printed_harmlessly(tmp_path: Path, text: str) -> None:
    for changes in (
        {text: 1},
        {"hidden_act": text},
        {"architectures": [text]},
        {"hidden_size": text},
        {"rope_scaling": text},
        {"quantization_config": {**QUANTIZATION, "linear_class": text}},
        {"quantization_config": {**QUANTIZATION, "quantization_mode": text}},
        {"quantization_config": {**QUANTIZATION, text: 1}},
    ):
        error_of(tmp_path, **changes)


def test_keys_that_are_false_in_name_only_are_refused(tmp_path: Path) -> None:
    """0 == False and 1 == True in Python; in a configuration they are mistakes somewhere."""
    for changes in ({"attention_bias": 0}, {"pretraining_tp": True}, {"weight_bits": True}):
        assert error_of(tmp_path, **changes).kind == "config-unsupported"


def test_what_is_no_regular_file_or_too_large_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero")):
        assert refusal(lambda path=path: read_hf_config(path)).kind == "unreadable"
    (tmp_path / "config.json").write_bytes(b" " * ((1 << 20) + 1))
    error = refusal(lambda: read_hf_config(tmp_path / "config.json"))
    assert (error.kind, "1048577 bytes are too many" in error.message) == ("config-unreadable", True)
