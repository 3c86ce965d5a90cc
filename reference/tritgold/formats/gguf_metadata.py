"""ModelConfig -> GGUF metadata, the inverse of ``formats.gguf_config``; and the architecture of a model.

It has the keys that llama.cpp and bitnet.cpp need to build the graph, and tritgold's own keys that
``formats.gguf_config`` documents. Values are Python's: an int is written as uint32, a float as float32, which
is exact for ``norm_eps`` and ``rope_theta`` because ModelConfig has already rounded them.
"""

from typing import Any

import numpy as np

from tritgold.architectures import GGUF_ARCHITECTURES, Architecture, architecture_of
from tritgold.config import ModelConfig
from tritgold.errors import ConfigError
from tritgold.formats.gguf_rope import scaling_keys
from tritgold.formats.gguf_special_tokens import ALL_EOS_KEY, BLOCK_KEY, BOS_KEY, EOS_KEYS, MASK_KEY
from tritgold.formats.hf_families import gemma_query_scale

QUANTIZATION_VERSION = 2  # GGML_QNT_VERSION; the specification wants it in every file with quantised tensors


def default_architecture(config: ModelConfig) -> str:
    """The GGUF architecture that has this activation and these sub-norms.

    Raises ConfigError for parts that no architecture has together, and for an activation that none with these parts
    has: squared ReLU without sub-norms.
    """
    entry = architecture_of(config)
    for name, activation in entry.gguf.items():
        if activation == config.activation:
            return name
    raise ConfigError(
        "no GGUF architecture has this graph",
        kind="architecture",
        got=f"{config.activation} in {entry.name}",
        expected=", ".join(f"{activation} in {name}" for name, activation in entry.gguf.items()),
    )


def gguf_metadata(config: ModelConfig, architecture: str, name: str, file_type: int | None = None) -> dict[str, Any]:
    """The metadata of a model, without its tokenizer: key -> int, float, str, or NumPy array (an array of ids).

    architecture: one of GGUF_ARCHITECTURES. An activation that it does not imply is written as
    ``<arch>.hidden_activation``; squared ReLU always is, since llama.cpp's newer bitnet graph takes SiLU where the key
    is missing (microsoft/BitNet issue 602). name, file_type: ``general.name`` and ``general.file_type``.

    Raises ConfigError for an unknown architecture, for one with other parts, for a window or a scaling
    of RoPE that it has no place for, and for scales that divide, of which
    GGUF has no notion: invert them first.
    """
    if architecture not in GGUF_ARCHITECTURES:
        raise _refusal("is unknown", architecture, ", ".join(GGUF_ARCHITECTURES))
    kind = GGUF_ARCHITECTURES[architecture]
    for part in kind.fields():
        if (has := getattr(kind, part)) is not getattr(config, part):
            what = f"has {'' if has else 'no '}{part.replace('_', '-')}, unlike the model"
            raise _refusal(what, architecture, default_architecture(config))
    if not kind.has(config):
        raise _refusal("has other windows or factors than the model", architecture, default_architecture(config))
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
    if config.q_width != config.hidden or kind.name == "gemma3":
        own |= {"attention.key_length": config.head_dim, "attention.value_length": config.head_dim}
    if config.activation != kind.gguf[architecture] or config.activation == "relu2":
        own["hidden_activation"] = config.activation
    own |= scaling_keys(config, kind.permuted)[0] | _of_family(config, kind)
    general: dict[str, Any] = {
        "general.architecture": architecture,
        "general.name": name,
        "general.quantization_version": QUANTIZATION_VERSION,
    }
    if file_type is not None:
        general["general.file_type"] = file_type
    return general | {f"{architecture}.{key}": value for key, value in own.items()} | _tokens(config)


def _of_family(config: ModelConfig, kind: Architecture) -> dict[str, Any]:
    """Constant factors and windows. ConfigError where llama.cpp has no place for a window."""
    if kind.name == "gemma3":
        return _gemma3(config)
    if config.window is not None:
        hint = "--to hf keeps it"
        raise ConfigError("GGUF has no window here", kind="window", thing=kind.name, got=config.window, hint=hint)
    if not kind.scales:
        return {}
    found: dict[str, Any] = {
        "embedding_scale": config.embedding_scale,
        "residual_scale": config.residual_scale,
        "logit_scale": config.logit_divisor,
    }
    return found | ({"attention.scale": config.query_scale * config.head_dim**-0.5} if kind.name == "granite" else {})


def _gemma3(config: ModelConfig) -> dict[str, Any]:
    layers, right = range(config.layers), gemma_query_scale(config.layers, config.hidden, config.heads, config.head_dim)
    if np.float32(right) != np.float32(config.query_scale):
        raise ConfigError(
            "GGUF has no place for this factor of q", kind="query-scale", thing="query_scale",
            got=config.query_scale, expected=right, hint="--to hf keeps it",
        )  # fmt: skip
    window, full = (config.context, tuple(layers)) if config.window is None else (config.window, config.full_layers)
    regular = (p for p in (6, *range(1, 65)) if tuple(n for n in layers if (n + 1) % p == 0) == full)
    if (pattern := next(regular, None)) is None:
        expected = "every nth layer"
        raise ConfigError(
            "GGUF has no place for these", kind="window", thing="full_layers", got=full, expected=expected
        )
    found: dict[str, Any] = {"attention.sliding_window": window}
    if pattern != 6:
        found["attention.sliding_window_pattern"] = pattern
    if config.local_rope_theta not in (None, 1e4):
        found["rope.freq_base_swa"] = config.local_rope_theta
    return found


def _tokens(config: ModelConfig) -> dict[str, Any]:
    named = dict(zip(EOS_KEYS, config.eos, strict=False))
    found: dict[str, Any] = {BOS_KEY: config.bos, **named, BLOCK_KEY: config.block, MASK_KEY: config.mask}
    found = {key: value for key, value in found.items() if value is not None}
    if len(config.eos) > len(EOS_KEYS) or len(set(config.eos)) < len(config.eos):
        found[ALL_EOS_KEY] = np.array(config.eos, np.uint32)
    return found


def _refusal(message: str, got: str, expected: str) -> ConfigError:
    return ConfigError(message, kind="architecture", thing=f"architecture {got!r}", expected=expected)
