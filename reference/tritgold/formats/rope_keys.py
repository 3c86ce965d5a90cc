"""RoPE in a config.json: theta and scaling, where transformers 4 has them and where transformers 5 does."""

from typing import Any

from tritgold.config import MAX_IN
from tritgold.errors import ConfigError
from tritgold.formats.json_keys import JsonKeys
from tritgold.formats.rope_formulas import rope_scaling
from tritgold.formats.untrusted_text import is_one_of
from tritgold.rope_scaling import RopeScaling

Rope = tuple[float, RopeScaling | None]
_POSITIVE, _LIST, _COUNT, _BOOL = (int, float), list, int, bool
# Of each kind: the keys that must be there, and those that may; all but the last group are positive numbers.
_ORIGINAL = "original_max_position_embeddings"
_NEEDED: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": _POSITIVE},
    "dynamic": {"factor": _POSITIVE},
    "llama3": {"factor": _POSITIVE, "low_freq_factor": _POSITIVE, "high_freq_factor": _POSITIVE, _ORIGINAL: _COUNT},
    "yarn": {"factor": _POSITIVE, _ORIGINAL: _COUNT},
    "longrope": {"short_factor": _LIST, "long_factor": _LIST, _ORIGINAL: _COUNT},
}
_OPTIONAL: dict[str, dict[str, Any]] = {
    "yarn": {
        **dict.fromkeys(("beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim"), _POSITIVE),
        "truncate": _BOOL,
    },
    "longrope": {"factor": _POSITIVE, "attention_factor": _POSITIVE},
    "dynamic": {_ORIGINAL: _COUNT},
}
_NEUTRAL = {"attention_factor": (1, 1.0, None), "attn_factor": (1, 1.0, None), "partial_rotary_factor": (1, 1.0, None)}
_WHY = {
    "proportional": "it turns a part of each head",
}


def read_rope(keys: JsonKeys, head_dim: int, context: int) -> Rope:
    """(theta, scaling). transformers 5 has both in ``rope_parameters``, 4 at the top and in ``rope_scaling``; where all
    are there they must agree.

    Raises ConfigError: ``config-missing``, ``config-type``, ``config-value``, ``config-contradiction``,
    ``config-unknown-key`` and, for a scaling of another kind, ``config-unsupported``.
    """
    top = keys.number("rope_theta", None)
    section = keys.take("rope_parameters", dict, None)
    old = keys.left.pop("rope_scaling", None)
    if section is None:
        if top is None:
            keys.refuse("is missing", "config-missing", "rope_theta")
        return top, scaling_of(keys, "rope_scaling", old, top, head_dim, context)
    theta, scaling = rope_section(keys, "rope_parameters", section, head_dim, context)
    if top not in (None, theta):
        keys.refuse("contradicts rope_parameters", "config-contradiction", "rope_theta", top, theta)
    if old is not None and scaling_of(keys, "rope_scaling", old, theta, head_dim, context) != scaling:
        keys.refuse("contradicts rope_parameters", "config-contradiction", "rope_scaling", repr(old), repr(section))
    return theta, scaling


def rope_section(keys: JsonKeys, name: str, section: dict[str, Any], head_dim: int, context: int) -> Rope:
    """(theta, scaling) of an object that has both, as ``rope_parameters``."""
    inner = keys.inside(name, section)
    theta = inner.number("rope_theta")
    if inner.left.get("rope_type", inner.left.get("type")) in (None, "default"):
        inner.neutral({"rope_type": ("default", None), "type": ("default", None), **_NEUTRAL})
        inner.finish(frozenset())
        return theta, None
    return theta, scaling_of(keys, name, inner.left, theta, head_dim, context)


def scaling_of(keys: JsonKeys, name: str, section: object, theta: float, head_dim: int, context: int) -> Any:
    """The scaling that an object of kind and numbers stands for; None for null and for what scales nothing."""
    if section is None:
        return None
    kind = _kind(keys, name, section)
    assert isinstance(section, dict)
    inner = keys.inside(name, {k: v for k, v in section.items() if k not in ("rope_type", "type")})
    if kind == "default":
        inner.left.pop("factor", None) if is_one_of(section.get("factor"), (1, 1.0, None)) else None
    numbers = {key: inner.take(key, of) for key, of in _NEEDED[kind].items()}
    for key, of in _OPTIONAL.get(kind, {}).items():
        if (value := inner.take(key, of, None)) is not None:
            numbers[key] = value
    for key, allowed in _NEUTRAL.items():
        if is_one_of(inner.left.get(key), allowed):
            inner.left.pop(key, None)
    if inner.left:
        keys.unsupported(name, section, None)
    _check(inner, numbers, head_dim)
    original = numbers.get(_ORIGINAL, context)
    if kind in ("longrope", "dynamic") and context > original:
        hint = "beyond the original context its frequencies change with the length of the text; set both to it"
        got = f"{original} below max_position_embeddings {context}"
        inner.refuse("is too short", "config-unsupported", _ORIGINAL, got, f"at least {context}", hint)
    # Within the original context dynamic scaling scales nothing.
    if (
        kind in ("default", "dynamic") or not 0 < head_dim <= MAX_IN or head_dim % 2
    ):  # such a size is refused by ModelConfig
        return None
    try:
        return rope_scaling(kind, numbers, head_dim, theta)
    except (ConfigError, OverflowError) as error:
        shown = error.got if isinstance(error, ConfigError) else "a number beyond float64"
        return keys.refuse("makes no divisors", "config-value", name, shown, "positive finite numbers")


def _kind(keys: JsonKeys, name: str, section: object) -> str:
    names = [section[key] for key in ("rope_type", "type") if key in section] if isinstance(section, dict) else []
    kind = names[0] if names and all(other == names[0] for other in names) else None
    if not isinstance(kind, str) or kind not in _NEEDED:
        hint = _WHY.get(kind) if isinstance(kind, str) else None
        what = repr(section) if len(repr(section)) < 200 else repr(kind)
        keys.refuse("is not supported", "config-unsupported", name, what, " or ".join(_NEEDED), hint)
    return kind


def _check(inner: JsonKeys, numbers: dict[str, Any], head_dim: int) -> None:
    """Positive finite numbers, and as many divisors as there are frequencies."""
    for key, value in numbers.items():
        listed = value if isinstance(value, list) else [value]
        good = [type(v) in (int, float) and 0 < v < 2**63 for v in listed if type(value) is not bool]
        if not all(good):
            inner.refuse("is not usable", "config-value", key, repr(value), "positive finite numbers")
        if isinstance(value, list):
            if len(value) != head_dim // 2:
                inner.refuse("has another length", "config-value", key, len(value), f"head_dim / 2 = {head_dim // 2}")
            numbers[key] = [float(v) for v in value]
        elif type(value) is int and key != _ORIGINAL:
            numbers[key] = float(value)
    low, high = numbers.get("low_freq_factor", 0), numbers.get("high_freq_factor", 1)
    if low >= high:
        inner.refuse("is not usable", "config-value", "high_freq_factor", high, f"above low_freq_factor = {low}")
