"""config.json of a Hugging Face checkpoint -> ModelConfig, refusing what would silently change the arithmetic.

Every key is either understood, or listed as one that changes nothing, or an error: an ignored ``rope_scaling``
loads and babbles. Defaults are used only where transformers' own class for the model has the same.
"""

import difflib
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tritgold.architectures import ARCHITECTURES, Architecture
from tritgold.config import Activation, ModelConfig, ScaleRule
from tritgold.errors import ConfigError, TritgoldWarning
from tritgold.formats.hf_families import family_fields
from tritgold.formats.json_keys import JsonKeys
from tritgold.formats.kept_modules import HEAD, first_dense, is_kept, is_plain
from tritgold.formats.special_tokens import inside, read_generation_eos, stop_ids
from tritgold.formats.untrusted_text import parse_json, printable, read_text

QuantizationMode = Literal["offline", "online"]

_MOST_LAYERS = 10_000
MOST_BYTES = 1 << 20  # a thousand times a config.json; the labels of a classifier are the longest part of some

FAMILIES = {name: entry for entry in ARCHITECTURES for name in entry.classes}
_MODEL_TYPES = {entry.model_type: entry for entry in ARCHITECTURES}
_LLAMA_TYPED = "BitnetForCausalLM"  # 1bitLLM's own class, whose files say model_type llama
# Training, dropout at inference, bookkeeping, and generation defaults that live in generation_config.json.
_CHANGE_NOTHING = """
    _attn_implementation _attn_implementation_internal _name_or_path architectures attention_dropout auto_map
    bad_words_ids chunk_size_feed_forward dtype embd_pdrop finetuning_task hidden_dropout id2label
    initializer_range is_decoder is_encoder_decoder label2id layer_types model_type num_labels
    output_attentions output_hidden_states pad_token_id problem_type resid_pdrop return_dict sep_token_id
    torch_dtype transformers_version unsloth_version use_cache
"""
IGNORED_KEYS = frozenset(_CHANGE_NOTHING.split())
# Keys whose only supported value leaves the graph as it is.
NEUTRAL = {
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
    "pretraining_tp": (1, None),
    "sliding_window": (None,),
    "use_sliding_window": (False, None),
    "partial_rotary_factor": (1, 1.0, None),
    "logit_scale": (1, 1.0, None),
    "input_bits": (8,),
    "weight_bits": (1,),
}
NEUTRAL_QUANTIZATION = {
    "quant_method": ("bitnet",),
    "use_rms_norm": (False, None),
}


# Fields of a ModelConfig -> keys that say them, where an error names the field.
_KEYS_OF = {
    "vocab": ("vocab_size",), "hidden": ("hidden_size",), "inter": ("intermediate_size",),
    "layers": ("num_hidden_layers",), "heads": ("num_attention_heads",), "kv_heads": ("num_key_value_heads",),
    "context": ("max_position_embeddings",), "norm_eps": ("rms_norm_eps",), "block": ("bd_size",),
    "window": ("sliding_window",), "embedding_scale": ("embedding_multiplier", "scale_emb"),
    "residual_scale": ("residual_multiplier", "scale_depth"), "logit_divisor": ("logits_scaling", "dim_model_base"),
    "query_scale": ("attention_multiplier", "query_pre_attn_scalar"), "local_rope_theta": ("rope_local_base_freq",),
}  # fmt: skip


@dataclass(frozen=True)
class HfConfig:
    """model: what the arithmetic needs. mode: how the linears are stored; None where config.json does not say."""

    model: ModelConfig
    mode: QuantizationMode | None


def read_hf_config(path: Path, linear_class: str | None = None, ignore_keys: tuple[str, ...] = ()) -> HfConfig:
    """Read config.json. Raises ConfigError naming the key, what it holds, and what is supported.

    The stop ids are those of ``generation_config.json`` beside it, where that gives any (``special_tokens``).
    A file that is not a regular one is refused before it is opened (FormatError ``unreadable``), one larger than 1 MiB
    before it is parsed.

    linear_class: ``autobitlinear`` or ``bitlinear``, for a config without ``quantization_config``; it decides
    whether weight scales multiply or divide, so there is no default. ignore_keys: further keys to pass over; one of an
    object by its whole name, as ``quantization_config.NAME``.
    """
    return parse_hf_config(path, _load(path), linear_class, ignore_keys, read_generation_eos(path.parent))


def parse_hf_config(
    path: Path,
    values: dict[str, Any],
    linear_class: str | None = None,
    ignore_keys: tuple[str, ...] = (),
    generation_eos: list[int] | None = None,
) -> HfConfig:
    """The same for the content of a config.json that lies inside ``path``, which errors name.

    generation_eos: the stop ids of the generation_config.json beside it, which go before those of config.json.
    """
    keys = JsonKeys(path, values, ignore=frozenset(ignore_keys))
    entry = _family(keys)
    scale_rule, mode = _quantization(keys, linear_class)
    heads = keys.take("num_attention_heads", int)
    hidden = keys.take("hidden_size", int)
    fields: dict[str, Any] = {
        "vocab": keys.take("vocab_size", int),
        "hidden": hidden,
        "inter": keys.take("intermediate_size", int),
        "layers": keys.take("num_hidden_layers", int),
        "heads": heads,
        "kv_heads": keys.take("num_key_value_heads", int, heads),
        "head_dim": keys.take("head_dim", int, hidden // max(heads, 1)),
        "context": keys.take("max_position_embeddings", int),
        "norm_eps": float(keys.take("rms_norm_eps", float)),
        "activation": _activation(keys, entry),
        **entry.fields(),
        "tied_head": keys.take("tie_word_embeddings", bool, entry.name == "gemma3"),  # transformers' defaults
        "scale_rule": scale_rule,
    }
    fields |= family_fields(keys, entry, fields)
    bos = keys.take("bos_token_id", int, None)
    eos = keys.take("eos_token_id", (int, list), [])
    eos = eos if isinstance(eos, list) else [eos]
    if not all(type(token) is int for token in eos):
        keys.refuse("has the wrong type", "config-type", "eos_token_id", repr(eos), "int or list of int")
    fields["bos"] = next(iter(inside(path, "bos_token_id", [] if bos is None else [bos], fields["vocab"])), None)
    fields["eos"] = stop_ids(path, eos, generation_eos, fields["vocab"])
    # Fast-dLLM v2's name of the block; its mask id stands in its code, here it is a key.
    fields["block"] = keys.take("bd_size", int, None)
    fields["mask"] = keys.take("mask_token_id", int, None)
    if (fields["block"] is None) is not (fields["mask"] is None):
        names = ("bd_size", "mask_token_id") if fields["block"] is None else ("mask_token_id", "bd_size")
        keys.refuse(f"is missing beside {names[1]}", "config-missing", names[0])
    keys.neutral(NEUTRAL)
    keys.finish(IGNORED_KEYS)
    try:
        return HfConfig(ModelConfig(**fields), mode)
    except ConfigError as error:
        keys_of = [key for key in _KEYS_OF.get(str(error.thing), ()) if key in values]
        error.thing = f"key {keys_of[0]!r}" if keys_of else error.thing
        raise error.located(file=path) from None


def _load(path: Path) -> dict[str, Any]:
    try:
        values = parse_json(read_text(path, MOST_BYTES))
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot be read: {error}", kind="config-unreadable", file=path) from error
    if not isinstance(values, dict):
        raise ConfigError("is not a JSON object", kind="config-unreadable", file=path, got=type(values).__name__)
    return values


def _family(keys: JsonKeys) -> Architecture:
    """By ``architectures``; by ``model_type``, as transformers goes, where it is missing or null.

    A model_type of another architecture is a TritgoldWarning: transformers would build that one.
    """
    typed = keys.left.get("model_type")
    of_type = _MODEL_TYPES.get(typed) if isinstance(typed, str) else None
    names = keys.take("architectures", list, [])
    if not names and of_type is not None:
        return of_type
    if len(names) != 1 or not isinstance(names[0], str) or names[0] not in FAMILIES:
        near = difflib.get_close_matches(str(names[:1]), FAMILIES, n=1, cutoff=0.4)
        hint = f"the nearest is {near[0]!r}" if near else None
        what = "names no architecture that tritgold knows"
        keys.refuse(what, "architecture", "architectures", names, ", ".join(FAMILIES), hint)
    found = FAMILIES[names[0]]
    if of_type not in (None, found) and names[0] != _LLAMA_TYPED:
        what = f"architectures say {names[0]}, which is read, and model_type says {typed}, which transformers builds"
        warnings.warn(printable(f"{keys.path}: {what}"), TritgoldWarning, stacklevel=4)
    return found


def _quantization(keys: JsonKeys, linear_class: str | None) -> tuple[ScaleRule, QuantizationMode | None]:
    """The scale rule, and whether the linears are packed (offline) or bf16 masters (online)."""
    section = keys.take("quantization_config", dict, None)
    if section is None:
        if linear_class is None and "weight_bits" in keys.left:  # 1bitLLM: masters, quantised at run time
            return "multiply", "online"
        return _rule(keys, linear_class or "autobitlinear"), "offline" if linear_class else None
    inner = keys.inside("quantization_config", section)
    stored = inner.take("linear_class", str, "bitlinear")
    if linear_class not in (None, stored):
        inner.refuse("contradicts the class asked for", "config-contradiction", "linear_class", stored, linear_class)
    mode = inner.take("quantization_mode", str, "offline")
    if mode not in ("offline", "online"):
        inner.refuse("is unknown", "config-unsupported", "quantization_mode", mode, "offline or online")
    if mode == "online" and stored != "autobitlinear":
        inner.refuse("needs autobitlinear", "config-contradiction", "quantization_mode", mode, "offline")
    _kept_dense(inner, keys.left.get("num_hidden_layers"), mode)
    if inner.left.get("use_rms_norm") is True:
        hint = (
            "it norms the input of each linear by itself, so q, k and v have codes of their own; here they share them"
        )
        inner.refuse("is not supported", "config-unsupported", "use_rms_norm", True, False, hint)
    inner.neutral(NEUTRAL_QUANTIZATION)
    inner.finish(frozenset(["rms_norm_eps"]))  # read only with use_rms_norm
    return _rule(inner, stored), mode


def _kept_dense(keys: JsonKeys, layers: object, mode: str) -> None:
    """Refuse a list that keeps a linear of a layer dense, or leaves out a head that is quantised at run time."""
    names = keys.take("modules_to_not_convert", list, None)
    if names is None:
        return
    if not all(isinstance(name, str) and is_plain(name) for name in names):
        keys.refuse("holds what is not a name", "config-unsupported", "modules_to_not_convert", repr(names), "names")
    count = layers if type(layers) is int and 0 < layers <= _MOST_LAYERS else 0
    if (dense := first_dense(names, count)) is not None:
        hint = "tritgold has no arithmetic for dense linears"
        what = f"keeps {dense} dense"
        keys.refuse(what, "config-unsupported", "modules_to_not_convert", repr(names), "embedding, head, norms", hint)
    if mode == "online" and not is_kept(names, HEAD):
        what = f"leaves out {HEAD}, which transformers then makes ternary"
        keys.refuse(what, "config-unsupported", "modules_to_not_convert", repr(names), repr([HEAD]))


def _rule(keys: JsonKeys, linear_class: str) -> ScaleRule:
    rules: dict[str, ScaleRule] = {"autobitlinear": "multiply", "bitlinear": "divide"}
    if linear_class not in rules:
        keys.refuse("is unknown", "config-unsupported", "linear_class", linear_class, " or ".join(rules))
    return rules[linear_class]


def _activation(keys: JsonKeys, entry: Architecture) -> Activation:
    known: dict[str, Activation] = {"relu2": "relu2", "silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh"}
    key = "hidden_act" if entry.name != "gemma3" or "hidden_activation" not in keys.left else "hidden_activation"
    name = keys.take(key, str)
    if name not in known:
        keys.refuse("is not supported", "config-unsupported", key, name, ", ".join(known))
    if entry.name == "gemma3" and (other := keys.left.pop("hidden_act", name)) != name:
        keys.refuse(f"contradicts {key}", "config-contradiction", "hidden_act", repr(other), name)
    return known[name]
