"""ModelConfig -> config.json, the inverse of ``formats.hf_config``, as transformers writes and reads it."""

import json
from typing import Any

import numpy as np

from tritgold.architectures import Architecture, architecture_of
from tritgold.config import ModelConfig
from tritgold.errors import ConfigError
from tritgold.formats.hf_config import QuantizationMode
from tritgold.formats.hf_families import FULL, SLIDING

_ACTIVATIONS = {"gelu_tanh": "gelu_pytorch_tanh"}
_LINEAR_CLASS = {"multiply": "autobitlinear", "divide": "bitlinear"}


def hf_config(config: ModelConfig, mode: QuantizationMode = "offline", dtype: str = "bfloat16") -> dict[str, Any]:
    """The object of config.json, keys in the order of published files.

    The class is that of ``architecture_of``: of a model with sub-norms ``BitNetForCausalLM``, of one without any parts
    of its own ``LlamaForCausalLM``; both take either activation.
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
    entry = architecture_of(config)
    if config.qkv_bias and (mode, config.scale_rule) == ("offline", "multiply"):
        what = "transformers multiplies biases by the scale too, where scales multiply"
        raise ConfigError(what, kind="scale-rule", got="multiply", expected="divide", hint="--to tq2_0 keeps the bias")
    found: dict[str, Any] = {
        "architectures": [entry.classes[0]],
        "model_type": entry.model_type,
        "vocab_size": config.vocab,
        "hidden_size": config.hidden,
        "intermediate_size": config.inter,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": _ACTIVATIONS.get(config.activation, config.activation),
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
    if entry.name == "gemma3":
        del found["hidden_act"]  # it has another name there
    return found | _of_family(config, entry)


def _of_family(config: ModelConfig, entry: Architecture) -> dict[str, Any]:
    """Scaling of RoPE, windows and constant factors. ConfigError for a scaling of which only the divisors are known."""
    found: dict[str, Any] = {}
    if config.rope_scaling is not None:
        if not config.rope_scaling.source:
            what = "config.json has no place for divisors of RoPE whose formula is not known"
            raise ConfigError(
                what, kind="rope-scaling", thing="rope_scaling", hint="GGUF of architecture llama has one"
            )
        found["rope_scaling"] = json.loads(config.rope_scaling.source)
    types = [SLIDING if config.window_of(n) is not None else FULL for n in range(config.layers)]
    if entry.name == "gemma3":
        found |= {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": _scalar(config)}
        found |= {"layer_types": types, "sliding_window": config.window or 4096}
        local = config.rope_theta if config.local_rope_theta is None else config.local_rope_theta
        return found | {"rope_local_base_freq": _shortest(local)}
    if config.window is not None:
        found |= {"use_sliding_window": True, "sliding_window": config.window, "max_window_layers": 0}
        found["layer_types"] = types
    if entry.scales:
        found |= {
            "embedding_multiplier": _shortest(config.embedding_scale),
            "residual_multiplier": _shortest(config.residual_scale),
            "logits_scaling": _shortest(config.logit_divisor),
            "attention_multiplier": config.query_scale * config.head_dim**-0.5,
        }
    return found


def _scalar(config: ModelConfig) -> float:
    """What scores are divided by the root of; an integer where that is the number, as in published files."""
    exact = config.head_dim / config.query_scale**2
    whole = round(exact)
    same = whole > 0 and np.float32((config.head_dim / whole) ** 0.5) == np.float32(config.query_scale)
    return whole if same else exact


def _shortest(value: float) -> float:
    return float(str(np.float32(value)))


def _one_or_list(tokens: tuple[int, ...]) -> int | list[int] | None:
    if len(tokens) == 1:
        return tokens[0]
    return list(tokens) or None
