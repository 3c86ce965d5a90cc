"""GGUF metadata -> ModelConfig, for every architecture of the table ``architectures``.

The file names its architecture, and every shape key begins with that name. As with config.json, a key of the
architecture that is not understood is an error; ``general.``, ``tokenizer.`` and ``quantize.`` keys describe
the file and are not read, except for special tokens (``gguf_special_tokens``). ``formats.gguf_metadata`` is the
inverse.
"""

import difflib
import math
import shlex
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tritgold.architectures import GGUF_ARCHITECTURES, Architecture
from tritgold.config import MAX_IN, Activation, ModelConfig
from tritgold.errors import ConfigError, TritgoldWarning
from tritgold.formats.container import FLOAT_BYTES, StoredTensor
from tritgold.formats.gguf_rope import ROPE_TENSOR, TYPE, is_scaled, read_scaling, scaling_of_factors
from tritgold.formats.gguf_special_tokens import ALL_EOS_KEY, BLOCK_KEY, refuse, special_tokens
from tritgold.formats.hf_families import query_scale
from tritgold.formats.untrusted_text import is_one_of, printable
from tritgold.rope_scaling import RopeScaling

_ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "relu2": "relu2",
    "relu_sqr": "relu2",
    "relu_squared": "relu2",
    "gelu_tanh": "gelu_tanh",
}
_OURS = (BLOCK_KEY, ALL_EOS_KEY)
_OF_LAYERS = ("attention.head_count", "attention.head_count_kv", "feed_forward_length")  # or a list of them, by layer
_FREQ_BASE = 10_000.0  # source: llama.cpp llama_model_base::load_hparams, of all architectures alike
_GEMMA_27B = 62  # layers, by which llama.cpp knows it
_DESCRIPTIVE = ("general.", "tokenizer.", "quantize.", "split.", "tritgold.tile.", "tritgold.text.", "tritgold.i2_s")
_GRAPH_KEYS = frozenset(
    (
        *("block_count", "context_length", "embedding_length", "expert_count"),
        *("feed_forward_length", "hidden_activation", "logit_scale", "vocab_size"),
    )
)
_GRAPH_PARTS = ("attention.", "rope.")
# Fields of a ModelConfig -> keys that say them, where an error names the field.
_KEYS_OF = {
    "vocab": "vocab_size", "hidden": "embedding_length", "inter": "feed_forward_length", "layers": "block_count",
    "heads": "attention.head_count", "kv_heads": "attention.head_count_kv", "head_dim": "attention.key_length",
    "context": "context_length", "norm_eps": "attention.layer_norm_rms_epsilon", "rope_theta": "rope.freq_base",
    "window": "attention.sliding_window", "local_rope_theta": "rope.freq_base_swa", "logit_divisor": "logit_scale",
    "embedding_scale": "embedding_scale", "residual_scale": "residual_scale", "query_scale": "attention.scale",
}  # fmt: skip
# Optional keys whose only supported values leave the graph as it is.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "rope.scaling.type": (
        "none",
        "linear",
        "default",
    ),  # linear by a factor of 1 is what llama.cpp's bitnet converter writes
    "rope.scaling.factor": (1.0, 0.0),
    "rope.scaling.attn_factor": (1.0,),
    "rope.scaling.finetuned": (False, True),
    "rope.scale_linear": (1.0,),
    "attention.causal": (True,),
    "attention.sliding_window": (0,),
    "attention.clamp_kqv": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "expert_shared_count": (0,),
    "leading_dense_block_count": (0,),
    "nextn_predict_layers": (0,),
    "pooling_type": (0, 1, 2, 3, 4),  # of embeddings, after the last layer
    "logit_scale": (1.0,),
    "use_parallel_residual": (True, False),
    "tensor_data_layout": ("Meta AI original pth", "reference"),
}


def read_gguf_config(
    path: Path,
    metadata: dict[str, Any],
    embedding_rows: int,
    tied_head: bool,
    ignore_keys: tuple[str, ...] = (),
    rope_factors: StoredTensor | None = None,
) -> ModelConfig:
    """Read the metadata of an opened GGUF file.

    embedding_rows: rows of token_embd, the vocabulary. tied_head: the file has no ``output.weight``. rope_factors: its
    ``rope_freqs.weight``. ignore_keys: whole names of unknown keys to ignore. Keys of another namespace (for example of
    the publisher) do not describe the graph and are ignored with a TritgoldWarning, unless they look like keys of a
    graph. Raises ConfigError, which names the key.
    """
    name = _architecture(path, metadata)
    kind = GGUF_ARCHITECTURES[name]
    if rope_factors is not None and (not kind.permuted or rope_factors.dtype not in FLOAT_BYTES):
        rope_factors = None  # llama.cpp ignores it for these
    left, unknown = _own_keys(path, metadata, name, ignore_keys)
    take = partial(_take, path, name, left)
    heads, hidden = take("attention.head_count", (int,)), take("embedding_length", (int,))
    head_dim = take("attention.key_length", (int,), hidden // max(heads, 1))
    for key in ("attention.value_length", "rope.dimension_count"):
        if (size := take(key, (int,), head_dim)) != head_dim:
            refuse(path, f"{name}.{key}", "differs from the head size", size, head_dim)
    if (vocab := take("vocab_size", (int,), embedding_rows)) != embedding_rows:
        refuse(path, f"{name}.vocab_size", "differs from the rows of token_embd", vocab, embedding_rows)
    activation = take("hidden_activation", (str,), kind.gguf[name])
    if activation not in _ACTIVATIONS:
        refuse(path, f"{name}.hidden_activation", "is not supported", activation, ", ".join(_ACTIVATIONS))
    fields: dict[str, Any] = {
        "vocab": embedding_rows,
        "hidden": hidden,
        "inter": take("feed_forward_length", (int,)),
        "layers": take("block_count", (int,)),
        "heads": heads,
        "kv_heads": take("attention.head_count_kv", (int,), heads),
        "head_dim": head_dim,
        "context": take("context_length", (int,)),
        # The file holds a float32: 1e-5 reads as 9.99999974e-06, which engines use, and so do we.
        "norm_eps": take("attention.layer_norm_rms_epsilon", (float,)),
        "rope_theta": _theta(path, name, take),
        "activation": _ACTIVATIONS[activation],
        **kind.fields(),
        "tied_head": tied_head,
        "scale_rule": "multiply",
        **special_tokens(path, metadata, embedding_rows),
    }
    fields |= _factors(kind, take, head_dim)
    if kind.name == "gemma3":
        fields |= _gemma3(path, take, fields)
    fields["rope_scaling"] = _scaling(path, name, left, fields, rope_factors)
    _require_understood(path, metadata, name, left, unknown)
    try:
        return ModelConfig(**fields)
    except ConfigError as error:
        key = f"{name}.{_KEYS_OF.get(str(error.thing), '')}"
        error.thing = f"key {key!r}" if key in metadata else error.thing
        raise error.located(file=path) from None


def _take(path: Path, name: str, left: dict[str, Any], key: str, kinds: tuple[type, ...], default: Any = ...) -> Any:
    """Remove a key of the architecture ``name`` from ``left``; its value. Without a default it must be there."""
    value = left.pop(key, default)
    if key in _OF_LAYERS and isinstance(value, np.ndarray) and value.size and (value == value[0]).all():
        value = value[0].item()
    if value is ...:
        refuse(path, f"{name}.{key}", "is missing", None, "a value; a default would be silently wrong")
    if value is not None and type(value) not in kinds:
        refuse(path, f"{name}.{key}", "has the wrong type", repr(value), " or ".join(k.__name__ for k in kinds))
    return value


def _theta(path: Path, name: str, take: Callable[..., Any]) -> Any:
    """rope.freq_base; where a writer left it out, llama.cpp's 10,000 with a TritgoldWarning."""
    theta = take("rope.freq_base", (float,), None)
    if theta is None:
        what = f"key '{name}.rope.freq_base' is missing: {_FREQ_BASE:g} is taken, as llama.cpp does"
        warnings.warn(printable(f"{path}: {what}"), TritgoldWarning, stacklevel=4)
    return _FREQ_BASE if theta is None else theta


def _factors(kind: Architecture, take: Callable[..., Any], head_dim: int) -> dict[str, float]:
    """The factors of embedding, residual, logits and scores, of architectures that have them."""
    fields: dict[str, float] = {}
    if kind.scales and kind.name != "gemma3":
        scales = {
            "embedding_scale": "embedding_scale",
            "residual_scale": "residual_scale",
            "logit_divisor": "logit_scale",
        }
        fields = {field: take(key, (float,)) for field, key in scales.items()}
    if kind.name == "granite":
        factor = take("attention.scale", (float,), 0.0)  # 0 is llama.cpp's word for the usual one
        fields["query_scale"] = query_scale(factor, head_dim) if factor else 1.0
    return fields


def _require_understood(
    path: Path, metadata: dict[str, Any], name: str, left: dict[str, Any], unknown: list[str]
) -> None:
    """Raises ConfigError for a key that was not read, unless its value leaves the graph as it is."""
    for key, allowed in _NEUTRAL.items():
        if not is_one_of(left.pop(key, allowed[0]), allowed):
            refuse(path, f"{name}.{key}", "is not supported", repr(metadata[f"{name}.{key}"]), allowed[0])
    if unknown := sorted(unknown + [f"{name}.{key}" for key in left]):
        names = " --ignore-key ".join(shlex.quote(key) for key in unknown[:8])
        hint = printable(f"if it changes no arithmetic, pass it over with --ignore-key {names}", 1000)
        expected = "a key tritgold understands"
        refuse(path, ", ".join(unknown), "is unknown", None, expected, kind="config-unknown-key", hint=hint)


def _scaling(
    path: Path, name: str, left: dict[str, Any], fields: dict[str, Any], factors: StoredTensor | None
) -> RopeScaling | None:
    head_dim, theta = fields["head_dim"], fields["rope_theta"]
    sizes = 0 < head_dim <= MAX_IN and head_dim % 2 == 0 and 1 <= theta < 1e12  # others are refused by ModelConfig
    try:
        if is_scaled(left):
            if factors is not None:
                refuse(
                    path, f"{name}.rope.scaling.type", "stands beside rope_freqs.weight", left.get(TYPE), "one of them"
                )
            return read_scaling(left, head_dim, theta) if sizes else None
        return scaling_of_factors(factors.floats(), head_dim) if sizes and factors is not None else None
    except ConfigError as error:
        if error.file is not None:
            raise
        of_tensor = error.thing == ROPE_TENSOR or (factors is not None and not is_scaled(left))
        key = ROPE_TENSOR if of_tensor else f"{name}.{error.thing}"
        return refuse(path, key, error.message, error.got, error.expected)


def _gemma3(path: Path, take: Callable[..., Any], fields: dict[str, Any]) -> dict[str, Any]:
    """Every sixth layer sees everything; the embedding is multiplied by sqrt(hidden), as llama.cpp does.

    27B, which it knows by its layers, divides scores by the root of hidden / heads.
    """
    layers, hidden = fields["layers"], fields["hidden"]
    pattern = take("attention.sliding_window_pattern", (int,), 6)
    window, local = take("attention.sliding_window", (int,)), take("rope.freq_base_swa", (float,), 1e4)
    if pattern < 1:
        refuse(path, "gemma3.attention.sliding_window_pattern", "is not usable", pattern, "a positive integer")
    full = tuple(n for n in range(min(max(layers, 0), 10_000)) if (n + 1) % pattern == 0)
    found: dict[str, Any] = {"embedding_scale": math.sqrt(hidden) if 0 < hidden < 2**53 else 1.0}
    found["query_scale"] = gemma_query_scale(layers, hidden, fields["heads"], fields["head_dim"])
    return found | ({"window": window, "full_layers": full, "local_rope_theta": local} if len(full) < layers else {})


def gemma_query_scale(layers: int, hidden: int, heads: int, head_dim: int) -> float:
    """llama.cpp's rule, for which a file has no key.

    >>> gemma_query_scale(48, 3840, 16, 256), round(gemma_query_scale(62, 5376, 32, 128), 4)
    (1.0, 0.8729)
    """
    divided = hidden // max(heads, 1) if layers == _GEMMA_27B else head_dim
    return query_scale(1 / math.sqrt(max(divided, 1)), head_dim)


def _architecture(path: Path, metadata: dict[str, Any]) -> str:
    name = metadata.get("general.architecture")
    if not isinstance(name, str) or name not in GGUF_ARCHITECTURES:
        near = difflib.get_close_matches(str(name), GGUF_ARCHITECTURES, n=1)
        refuse(path, "general.architecture", "is not supported", repr(name), ", ".join(GGUF_ARCHITECTURES), near)
    return name


def _own_keys(
    path: Path, metadata: dict[str, Any], name: str, ignore_keys: tuple[str, ...]
) -> tuple[dict[str, Any], list[str]]:
    """The architecture's own keys without its name, and those outside of it that are of a graph; warns of others."""
    prefix = f"{name}."
    left = {k.removeprefix(prefix): v for k, v in metadata.items() if k.startswith(prefix)}
    left = {k: v for k, v in left.items() if f"{prefix}{k}" not in ignore_keys or k in _NEUTRAL}
    outside = [k for k in metadata if not k.startswith((prefix, *_DESCRIPTIVE)) and k not in (*_OURS, *ignore_keys)]
    unknown = [k for k in outside if _is_of_a_graph(k)]
    if foreign := [k for k in outside if k not in unknown]:
        more = f" and {len(foreign) - 4} more" if len(foreign) > 4 else ""
        shown = ", ".join(key[:80] for key in foreign[:4])
        what = f"{path}: keys outside the namespace of {name!r} are passed over: {shown}{more}"
        warnings.warn(printable(what), TritgoldWarning, stacklevel=3)
    return left, unknown


def _is_of_a_graph(key: str) -> bool:
    """Whether a key outside the architecture's namespace looks as if it was meant for a graph: it is never passed over.

    >>> [_is_of_a_graph(key) for key in ("llama.block_count", "rope.scaling.type", "mradermacher.quantized_by")]
    [True, True, False]
    """
    own = key.startswith("tritgold.") or key.partition(".")[0] in GGUF_ARCHITECTURES
    return own or any(name in _GRAPH_KEYS or name.startswith(_GRAPH_PARTS) for name in (key, key.partition(".")[2]))
