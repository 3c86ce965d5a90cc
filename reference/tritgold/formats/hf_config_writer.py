"""ModelConfig -> config.json, the inverse of ``formats.hf_config``, as transformers writes and reads it."""

from typing import Any

import numpy as np

from tritgold.config import ModelConfig
from tritgold.errors import ConfigError
from tritgold.formats.hf_config import QuantizationMode

_LINEAR_CLASS = {"multiply": "autobitlinear", "divide": "bitlinear"}


def hf_config(config: ModelConfig, mode: QuantizationMode = "offline", dtype: str = "bfloat16") -> dict[str, Any]:
    """The object of config.json, keys in the order of published files.

    A model with sub-norms is a ``BitNetForCausalLM``, one without a ``LlamaForCausalLM``; both take either activation.
    mode: linears packed (``offline``) or float masters (``online``). dtype: of the unpacked tensors, ``bfloat16``,
    ``float16`` or ``float32``. Floats are the shortest decimals of their float32: 1e-05, not 9.999999747378752e-06.
    Raises ConfigError for dividing scales online: a ``bitlinear`` checkpoint is packed.

    >>> tiny = ModelConfig(vocab=9, hidden=8, inter=12, layers=1, heads=2, kv_heads=1, head_dim=4, context=16,
    ...     norm_eps=1e-5, rope_theta=1e4, activation="silu", sub_norms=False, tied_head=True, scale_rule="divide")
    >>> found = hf_config(tiny)
    >>> found["architectures"], found["rms_norm_eps"], found["quantization_config"]["linear_class"]
    (['LlamaForCausalLM'], 1e-05, 'bitlinear')
    """
    if mode == "online" and config.scale_rule != "multiply":
        what = "float masters are quantised by autobitlinear, whose scales multiply"
        raise ConfigError(what, kind="scale-rule", got=config.scale_rule, expected="multiply")
    found: dict[str, Any] = {
        "architectures": ["BitNetForCausalLM" if config.sub_norms else "LlamaForCausalLM"],
        "model_type": "bitnet" if config.sub_norms else "llama",
        "vocab_size": config.vocab,
        "hidden_size": config.hidden,
        "intermediate_size": config.inter,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": config.activation,
        "max_position_embeddings": config.context,
        "rms_norm_eps": _shortest(config.norm_eps),
        "rope_theta": _shortest(config.rope_theta),
        "tie_word_embeddings": config.tied_head,
        # null where the model has none: transformers puts 128000 and 128001 in the place of a missing key.
        "bos_token_id": config.bos,
        "eos_token_id": _one_or_list(config.eos),
        "dtype": dtype,
        "quantization_config": {
            "quant_method": "bitnet",
            "linear_class": _LINEAR_CLASS[config.scale_rule],
            "quantization_mode": mode,
        },
    }
    if config.block is not None:
        found |= {"bd_size": config.block, "mask_token_id": config.mask}
    return found


def _shortest(value: float) -> float:
    return float(str(np.float32(value)))


def _one_or_list(tokens: tuple[int, ...]) -> int | list[int] | None:
    if len(tokens) == 1:
        return tokens[0]
    return list(tokens) or None
