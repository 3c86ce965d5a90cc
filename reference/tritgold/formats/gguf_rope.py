"""RoPE's scaling in GGUF: the keys ``rope.scaling.*``, and the tensor ``rope_freqs.weight`` of Llama 3.1.

Source: llama.cpp ``convert_hf_to_gguf.py`` and ``llama_model_base::load_hparams``.
"""

import json
from typing import Any

import numpy as np

from tritgold.config import ModelConfig
from tritgold.errors import ConfigError
from tritgold.formats.rope_formulas import rope_scaling, yarn_magnitude
from tritgold.formats.untrusted_text import is_one_of
from tritgold.rope_scaling import RopeScaling

TYPE, FACTOR, ORIGINAL = "rope.scaling.type", "rope.scaling.factor", "rope.scaling.original_context_length"
_ATTENTION = "rope.scaling.attn_factor"
_BETAS = {"rope.scaling.yarn_beta_fast": "beta_fast", "rope.scaling.yarn_beta_slow": "beta_slow"}
ROPE_TENSOR = "rope_freqs.weight"


def is_scaled(left: dict[str, Any]) -> bool:
    """Whether the keys of an architecture, without its name, ask for a scaling that is more than neutral.

    A factor without a type is linear, as llama.cpp has it.
    """
    kind, factor = left.get(TYPE, "linear"), left.get(FACTOR, 1.0)
    return is_one_of(kind, ("yarn",)) or (is_one_of(kind, ("linear",)) and not is_one_of(factor, (0.0, 1.0)))


def read_scaling(left: dict[str, Any], head_dim: int, theta: float) -> RopeScaling | None:
    """Take ``linear`` or ``yarn`` from the keys. ConfigError, whose ``thing`` is the key, for numbers that are none."""
    kind = left.pop(TYPE, "linear")
    numbers: dict[str, Any] = {"factor": _number(left, FACTOR, float)}
    if kind == "yarn":
        numbers["original_max_position_embeddings"] = _number(left, ORIGINAL, int)
        attention = _number(left, _ATTENTION, float) if _ATTENTION in left else 1.0
        if attention != 1:
            numbers["attention_factor"] = attention * yarn_magnitude(numbers["factor"])
        numbers |= {name: _number(left, key, float) for key, name in _BETAS.items() if key in left}
    left.pop("rope.scaling.finetuned", None)
    return rope_scaling(kind, numbers, head_dim, theta)


def _number(left: dict[str, Any], key: str, kind: type) -> Any:
    value: Any = left.pop(key, None)
    if type(value) is not kind or not 0 < value < 2**63:
        got = repr(value)
        raise ConfigError("is not usable", kind="config-value", thing=key, got=got, expected="a positive number")
    return value


def scaling_of_factors(factors: np.ndarray, head_dim: int) -> RopeScaling | None:
    """Of the tensor, float32 [head_dim / 2]. ConfigError where its numbers are not positive or not as many."""
    if factors.shape != (head_dim // 2,):
        expected = f"head_dim / 2 = {head_dim // 2}"
        raise ConfigError(
            "has another length", kind="config-value", thing=ROPE_TENSOR, got=factors.shape, expected=expected
        )
    return None if (factors == 1).all() else RopeScaling(tuple(factors.astype(np.float32).tolist()))


def scaling_keys(config: ModelConfig, permuted: bool) -> tuple[dict[str, Any], np.ndarray | None]:
    """(keys without the architecture's name, the tensor or None) that say the scaling of a model.

    permuted: of an architecture for which llama.cpp reads the tensor. ConfigError ``rope-scaling`` where GGUF has no
    place for it.
    """
    scaling = config.rope_scaling
    if scaling is None:
        return {}, None
    said = json.loads(scaling.source or "{}")
    if said.get("rope_type") == "linear":
        return {TYPE: "linear", FACTOR: float(said["factor"])}, None
    if said.get("rope_type") == "yarn" and not {"mscale", "mscale_all_dim", "truncate"} & said.keys():
        factor = float(np.float32(said["factor"]))
        keys = {TYPE: "yarn", FACTOR: factor, ORIGINAL: said["original_max_position_embeddings"]}
        if scaling.magnitude != float(np.float32(yarn_magnitude(factor))):
            keys[_ATTENTION] = scaling.magnitude / yarn_magnitude(factor)
        return keys | {key: float(said[name]) for key, name in _BETAS.items() if name in said}, None
    if permuted and scaling.magnitude == 1:
        return {}, np.array(scaling.divisors, np.float32)
    raise ConfigError(
        "GGUF has no place for this scaling of RoPE in this architecture",
        kind="rope-scaling",
        got=scaling.source or "divisors alone",
        expected="linear, yarn, or llama3 in architecture llama",
        hint="--to hf keeps it",
    )
