"""What a config.json says under keys of its own architecture: sliding windows, and constant factors."""

import math
from typing import Any

from tritgold.architectures import Architecture
from tritgold.formats.json_keys import JsonKeys
from tritgold.formats.rope_keys import Rope, read_rope, rope_section, scaling_of
from tritgold.rope_scaling import RopeScaling

SLIDING, FULL = "sliding_attention", "full_attention"
_GEMMA_PATTERN = 6  # every sixth layer sees everything, as transformers and llama.cpp have it
_GEMMA_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "final_logit_softcapping": (None,),
    "attn_logit_softcapping": (None,),
    "use_bidirectional_attention": (False, None),
}


def family_fields(keys: JsonKeys, entry: Architecture, fields: dict[str, Any]) -> dict[str, Any]:
    """RoPE, window and factors. fields: those that are known already, of the sizes above all.

    Raises ConfigError as ``JsonKeys`` does.
    """
    if entry.name == "gemma3":
        return _gemma3(keys, fields)
    theta, scaling = read_rope(keys, fields["head_dim"], fields["context"])
    found: dict[str, Any] = {"rope_theta": theta, "rope_scaling": scaling}
    if entry.windows:
        found |= _qwen_window(keys, fields["layers"])
    elif keys.left.get("use_sliding_window") is False:  # transformers reads neither of the two then
        keys.left.pop("sliding_window", None)
        keys.left.pop("max_window_layers", None)
    if entry.name == "granite":
        found |= _granite(keys, fields["head_dim"])
    if entry.name == "minicpm":
        found |= _minicpm(keys, fields)
    return found


def _qwen_window(keys: JsonKeys, layers: int) -> dict[str, Any]:
    """``layer_types`` decides; without it, layers from ``max_window_layers`` on have the window."""
    used, window = keys.take("use_sliding_window", bool, False), keys.take("sliding_window", int, None)
    first, types = keys.take("max_window_layers", int, 28), keys.take("layer_types", list, None)
    if not used or window is None:
        if types is not None and any(kind != FULL for kind in types):
            keys.unsupported("layer_types", types, f"{FULL} alone, without use_sliding_window")
        return {}
    full = _full_layers(keys, types, layers) if types is not None else tuple(range(min(first, max(layers, 0))))
    return {} if len(full) == layers else {"window": window, "full_layers": full}


def _full_layers(keys: JsonKeys, types: list[Any], layers: int) -> tuple[int, ...]:
    if len(types) != layers or any(kind not in (SLIDING, FULL) for kind in types):
        keys.unsupported("layer_types", types[:8], f"{layers} of {SLIDING} or {FULL}")
    return tuple(n for n, kind in enumerate(types) if kind == FULL)


def _granite(keys: JsonKeys, head_dim: int) -> dict[str, Any]:
    return {
        "query_scale": query_scale(keys.number("attention_multiplier", 1.0), head_dim),
        "embedding_scale": keys.number("embedding_multiplier", 1.0),
        "residual_scale": keys.number("residual_multiplier", 1.0),
        "logit_divisor": keys.number("logits_scaling", 1.0),
    }


def query_scale(scale: float, head_dim: int) -> float:
    """The factor of q for scores multiplied by ``scale``, exactly 1 for 1 / sqrt(head_dim) as files round it.

    >>> query_scale(0.25, 16), query_scale(0.5, 16), query_scale(0.0883883, 128)
    (1.0, 2.0, 1.0)
    """
    factor = scale * math.sqrt(max(head_dim, 1))
    return 1.0 if math.isclose(factor, 1.0, rel_tol=1e-6) else factor


def _minicpm(keys: JsonKeys, fields: dict[str, Any]) -> dict[str, Any]:
    """``scale_depth`` is shared out among the layers; the last hidden state is divided by hidden / dim_model_base."""
    depth, base = keys.number("scale_depth"), keys.number("dim_model_base")
    if not 0 < base < math.inf:
        keys.refuse("is not usable", "config-value", "dim_model_base", base, "a positive number")
    return {
        "embedding_scale": keys.number("scale_emb"),
        "residual_scale": depth / math.sqrt(max(fields["layers"], 1)),
        "logit_divisor": fields["hidden"] / base,
    }


def _gemma3(keys: JsonKeys, fields: dict[str, Any]) -> dict[str, Any]:
    """Of six layers five have the window and a theta of their own; the embedding is multiplied by sqrt(hidden)."""
    scalar = keys.number("query_pre_attn_scalar", 256.0)
    if not 0 < scalar < math.inf:
        keys.refuse("is not usable", "config-value", "query_pre_attn_scalar", scalar, "a positive number")
    keys.neutral(_GEMMA_NEUTRAL)
    layers, window = fields["layers"], keys.take("sliding_window", int, 4096)
    pattern = keys.take("sliding_window_pattern", int, keys.left.pop("_sliding_window_pattern", _GEMMA_PATTERN))
    types = keys.take("layer_types", list, None)
    if type(pattern) is not int or pattern < 1:
        keys.refuse("is not usable", "config-value", "sliding_window_pattern", repr(pattern), "a positive integer")
    regular = tuple(n for n in range(min(max(layers, 0), 10_000)) if (n + 1) % pattern == 0)
    full = regular if types is None else _full_layers(keys, types, layers)
    theta, scaling, local = _gemma_rope(keys, fields)
    factor = query_scale(1 / math.sqrt(scalar), fields["head_dim"])
    found: dict[str, Any] = {"rope_theta": theta, "rope_scaling": scaling, "query_scale": factor}
    if len(full) < layers:
        found |= {"window": window, "full_layers": full, "local_rope_theta": local}
    hidden = fields["hidden"]
    return found | {"embedding_scale": math.sqrt(hidden) if 0 < hidden < 2**53 else 1.0}


def _gemma_rope(keys: JsonKeys, fields: dict[str, Any]) -> tuple[float, RopeScaling | None, float]:
    sizes = fields["head_dim"], fields["context"]
    section = keys.take("rope_parameters", dict, None)
    if section is None:
        theta, local = keys.number("rope_theta", 1e6), keys.number("rope_local_base_freq", 1e4)
        return theta, scaling_of(keys, "rope_scaling", keys.left.pop("rope_scaling", None), theta, *sizes), local
    inner = keys.inside("rope_parameters", section)
    whole: Rope = rope_section(keys, f"rope_parameters.{FULL}", inner.take(FULL, dict), *sizes)
    local = rope_section(keys, f"rope_parameters.{SLIDING}", inner.take(SLIDING, dict), *sizes)
    if local[1] is not None:
        inner.unsupported(SLIDING, section[SLIDING], "rope_type default")
    inner.finish(frozenset())
    return *whole, local[0]
