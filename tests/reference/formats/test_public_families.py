"""docs/models.md: what is said of each public family, for a config.json of its form (sizes made small)."""

from pathlib import Path
from typing import Any

import pytest
from refusals import refusal

from tritgold.errors import ConfigError
from tritgold.formats.hf_config import parse_hf_config

PAGE = Path(__file__).parents[3] / "docs" / "models.md"
LLAMA: dict[str, Any] = {
    **{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 512, "hidden_size": 64},
    **{"intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2},
    **{"max_position_embeddings": 128, "rms_norm_eps": 1e-6, "rope_theta": 1000042.0, "hidden_act": "silu"},
    **{"tie_word_embeddings": False, "torch_dtype": "bfloat16", "use_cache": True, "bos_token_id": 1},
    **{"eos_token_id": 2, "attention_bias": False, "attention_dropout": 0.0, "mlp_bias": False, "pretraining_tp": 1},
    **{"rope_scaling": None, "initializer_range": 0.02},
}
BITNET = LLAMA | {"architectures": ["BitNetForCausalLM"], "model_type": "bitnet", "hidden_act": "relu2"}
AUTO = {"quant_method": "bitnet", "linear_class": "autobitlinear"}
DIVIDES: dict[str, Any] = {"quantization_config": {"quant_method": "bitnet", "modules_to_not_convert": None}}
QWEN = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 32}
LLAMA_3_1 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA_3_1 |= {"original_max_position_embeddings": 64}
CPM: dict[str, Any] = {"architectures": ["MiniCPMForCausalLM"], "model_type": "minicpm"}
CPM |= {"scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 16}
GEMMA: dict[str, Any] = {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text"}
GEMMA |= {"hidden_act": "gelu_pytorch_tanh", "query_pre_attn_scalar": 168}
GRANITE: dict[str, Any] = {"architectures": ["GraniteForCausalLM"], "model_type": "granite"}
GRANITE |= {"attention_multiplier": 0.0078125, "embedding_multiplier": 12.0}
FAST: dict[str, Any] = {"architectures": ["Fast_dLLM_QwenForCausalLM"], "model_type": "Fast_dLLM_Qwen"}
FAST |= {"bd_size": 32, "mask_token_id": 7}

# Family as on the page: its configuration, and (mode, scale rule, sub-norms) or the words of the refusal.
FAMILIES: dict[str, tuple[dict[str, Any], tuple[str | None, str, bool] | str]] = {
    "BitNet b1.58 2B-4T": (
        BITNET | {"quantization_config": {**AUTO, "quantization_mode": "offline"}},
        ("offline", "multiply", True),
    ),
    "its fine-tunes": (
        BITNET
        | {
            "quantization_config": {
                **AUTO,
                "quantization_mode": "online",
                "modules_to_not_convert": ["lm_head", "model.embed_tokens"],
            }
        },
        ("online", "multiply", True),
    ),
    "bitnet_b1_58-large, -3B, -xl": (
        LLAMA | {"architectures": ["BitnetForCausalLM"], "weight_bits": 1, "input_bits": 8},
        ("online", "multiply", True),
    ),
    "Llama3-8B-1.58": (LLAMA | DIVIDES, ("offline", "divide", False)),
    "Falcon3-1.58bit": (LLAMA | DIVIDES | {"head_dim": 32}, ("offline", "divide", False)),
    "Falcon-E (Falcon-Edge)": (LLAMA | DIVIDES | {"head_dim": 16}, ("offline", "divide", False)),
    "TriLM": (LLAMA, (None, "multiply", False)),
    "Qwen3 bodies, Bonsai among them": (LLAMA | DIVIDES | QWEN, ("offline", "divide", False)),
    "BitCPM4": (LLAMA | CPM, (None, "multiply", False)),
    "Qwen-based diffusion, Fast-dLLM v2": (LLAMA | DIVIDES | FAST, ("offline", "divide", False)),
    "Gemma 3": (LLAMA | GEMMA, (None, "multiply", False)),
    "Granite 3": (LLAMA | GRANITE, (None, "multiply", False)),
    "models with long contexts": (LLAMA | DIVIDES | {"rope_scaling": LLAMA_3_1}, ("offline", "divide", False)),
    "contexts beyond the original one of `longrope`, `dynamic`": (
        LLAMA | DIVIDES | {"rope_scaling": {"type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 64}},
        "original_max_position_embeddings': is too short: found 64 below max_position_embeddings 128",
    ),
    "`use_rms_norm`": (
        LLAMA | {"quantization_config": {"quant_method": "bitnet", "use_rms_norm": True}},
        "q, k and v have codes of their own",
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_said_of_a_family(family: str) -> None:
    config, expected = FAMILIES[family]
    if isinstance(expected, str):
        error = refusal(lambda: parse_hf_config(Path("config.json"), dict(config)))
        assert isinstance(error, ConfigError)
        assert expected in str(error)
    else:
        read = parse_hf_config(Path("config.json"), dict(config))
        assert (read.mode, read.model.scale_rule, read.model.sub_norms) == expected


def test_the_page_has_each_family_where_it_belongs() -> None:
    opens, refused = PAGE.read_text().split("## Opens")[1].split("## Refused, and why")
    for part, said in ((opens, tuple), (refused, str)):
        table = part.split("\n| family |", 1)[1].split("\n\n", 1)[0]
        shown = [line.split("|")[1].strip() for line in table.splitlines()[2:]]
        assert shown == [family for family, (_, expected) in FAMILIES.items() if isinstance(expected, said)]
