"""ModelConfig -> GGUF metadata, the inverse of ``formats.gguf_config``; and the architecture of a model.

It has the keys that llama.cpp and bitnet.cpp need to build the graph, and tritgold's own keys that
``formats.gguf_config`` documents. Values are Python's: an int is written as uint32, a float as float32, which
is exact for ``norm_eps`` and ``rope_theta`` because ModelConfig has already rounded them.
"""

from typing import Any

import numpy as np

from tritgold.config import ModelConfig
from tritgold.errors import ConfigError
from tritgold.formats.gguf_config import ALL_EOS_KEY, ARCHITECTURES, BLOCK_KEY, BOS_KEY, EOS_KEYS, MASK_KEY

QUANTIZATION_VERSION = 2  # GGML_QNT_VERSION; the specification wants it in every file with quantised tensors


def default_architecture(config: ModelConfig) -> str:
    """The GGUF architecture that has this activation and these sub-norms.

    Raises ConfigError for squared ReLU without sub-norms, which no GGUF architecture has.
    """
    for name in ("bitnet-b1.58", "bitnet", "llama"):
        if (ARCHITECTURES[name].activation, ARCHITECTURES[name].sub_norms) == (config.activation, config.sub_norms):
            return name
    raise ConfigError(
        "no GGUF architecture has this graph",
        kind="architecture",
        got=f"{config.activation} without sub-norms",
        expected="relu2 with sub-norms, silu with sub-norms, or silu without",
    )


def gguf_metadata(config: ModelConfig, architecture: str, name: str, file_type: int | None = None) -> dict[str, Any]:
    """The metadata of a model, without its tokenizer: key -> int, float, str, or NumPy array (an array of ids).

    architecture: one of ARCHITECTURES. An activation that it does not imply is written as ``<arch>.hidden_activation``;
    squared ReLU always is, since llama.cpp's newer bitnet graph takes SiLU where the key is missing (microsoft/BitNet
    issue 602). name, file_type: ``general.name`` and ``general.file_type``.

    Raises ConfigError for an unknown architecture, for one whose sub-norms differ from the model's, and for scales that
    divide, which GGUF cannot express: invert them first.
    """
    if architecture not in ARCHITECTURES:
        raise _refusal("is unknown", architecture, ", ".join(ARCHITECTURES))
    kind = ARCHITECTURES[architecture]
    if kind.sub_norms is not config.sub_norms:
        has = "has sub-norms" if kind.sub_norms else "has no sub-norms"
        raise _refusal(f"{has}, unlike the model", architecture, default_architecture(config))
    if config.scale_rule != "multiply":
        hint = "store the reciprocal scales of a configuration with scale_rule multiply"
        raise ConfigError("GGUF scales multiply", kind="scale-rule", got=config.scale_rule, hint=hint)
    own: dict[str, Any] = {
        "vocab_size": config.vocab,
        "context_length": config.context,
        "embedding_length": config.hidden,
        "block_count": config.layers,
        "feed_forward_length": config.inter,
        "attention.head_count": config.heads,
        "attention.head_count_kv": config.kv_heads,
        "attention.layer_norm_rms_epsilon": config.norm_eps,
        "rope.dimension_count": config.head_dim,
        "rope.freq_base": config.rope_theta,
    }
    if config.q_width != config.hidden:
        own |= {"attention.key_length": config.head_dim, "attention.value_length": config.head_dim}
    if config.activation != kind.activation or config.activation == "relu2":
        own["hidden_activation"] = config.activation
    general: dict[str, Any] = {
        "general.architecture": architecture,
        "general.name": name,
        "general.quantization_version": QUANTIZATION_VERSION,
    }
    if file_type is not None:
        general["general.file_type"] = file_type
    return general | {f"{architecture}.{key}": value for key, value in own.items()} | _tokens(config)


def _tokens(config: ModelConfig) -> dict[str, Any]:
    named = dict(zip(EOS_KEYS, config.eos, strict=False))
    found: dict[str, Any] = {BOS_KEY: config.bos, **named, BLOCK_KEY: config.block, MASK_KEY: config.mask}
    found = {key: value for key, value in found.items() if value is not None}
    if len(config.eos) > len(EOS_KEYS) or len(set(config.eos)) < len(config.eos):
        found[ALL_EOS_KEY] = np.array(config.eos, np.uint32)
    return found


def _refusal(message: str, got: str, expected: str) -> ConfigError:
    return ConfigError(message, kind="architecture", thing=f"architecture {got!r}", expected=expected)
