"""The formulas behind the names of RoPE's scalings: a kind and its numbers -> the divisors of the frequencies.

Numbers are rounded to float32 first, as GGUF stores them, so that one model read from two containers is one model.
Sources: transformers 5.24 ``modeling_rope_utils``; llama.cpp's ``convert_hf_to_gguf.py`` and ``rope_yarn``; arXiv
2309.00071 (yarn).
"""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tritgold.portable_math import inverse_powers
from tritgold.rope_scaling import RopeScaling

Numbers = Mapping[str, Any]  # of a config.json, by its names: floats, integers, lists of floats, bools


def rope_scaling(kind: str, numbers: Numbers, head_dim: int, theta: float) -> RopeScaling | None:
    """``linear``, ``llama3``, ``yarn`` or ``longrope``; None where nothing is scaled.

    ConfigError for numbers that make a divisor that is not positive and finite.

    >>> rope_scaling("linear", {"factor": 4.0}, 4, 1e4).divisors
    (4.0, 4.0)
    """
    rounded = {key: _single(value) for key, value in numbers.items()}
    with np.errstate(all="ignore"):
        divisors, magnitude = _FORMULAS[kind](rounded, head_dim, theta)
        divisors, magnitude = np.asarray(divisors, np.float32), float(np.float32(magnitude))
    if magnitude == 1 and (divisors == 1).all():
        return None
    source = json.dumps({"rope_type": kind, **numbers}, sort_keys=True)
    return RopeScaling(tuple(divisors.tolist()), magnitude, source)


def yarn_magnitude(factor: float) -> float:
    """What yarn multiplies sines and cosines by where nothing else is said.

    >>> yarn_magnitude(1.0), round(yarn_magnitude(4.0), 4)
    (1.0, 1.1386)
    """
    return 1.0 if factor <= 1 else 0.1 * math.log(factor) + 1.0


def _single(value: Any) -> Any:
    if isinstance(value, list):
        return [_single(item) for item in value]
    with np.errstate(over="ignore"):
        return float(np.float32(value)) if isinstance(value, float) else value


def _linear(n: Numbers, head_dim: int, theta: float) -> tuple[Any, float]:
    return np.full(head_dim // 2, n["factor"]), 1.0


def _llama3(n: Numbers, head_dim: int, theta: float) -> tuple[Any, float]:
    """Long waves are divided by the factor, short ones by 1, those between by something between."""
    factor, low, high = n["factor"], n["low_freq_factor"], n["high_freq_factor"]
    wavelength = 2 * math.pi / inverse_powers(theta, tuple(2 * i / head_dim for i in range(head_dim // 2)))
    turns = n["original_max_position_embeddings"] / wavelength
    share = np.clip((turns - low) / np.float64(high - low), 0.0, 1.0)
    between = 1.0 / ((1.0 - share) / np.float64(factor) + share)
    return np.where(turns < low, factor, np.where(turns > high, 1.0, between)), 1.0


def _yarn(n: Numbers, head_dim: int, theta: float) -> tuple[Any, float]:
    """Slow dimensions are divided by the factor, fast ones by 1, along a ramp between two dimensions."""
    factor, magnitude = n["factor"], n.get("attention_factor")
    bounds = [_dimension(n.get(key, default), n, head_dim, theta) for key, default in _BETAS.items()]
    if n.get("truncate", True):
        bounds = [float(math.floor(bounds[0])), float(math.ceil(bounds[1]))]
    low, high = max(bounds[0], 0.0), min(bounds[1], float(head_dim - 1))
    ramp = np.clip((np.arange(head_dim // 2) - low) / (high - low if high != low else 0.001), 0.0, 1.0)
    if magnitude is None:
        magnitude = yarn_magnitude(factor)
        if n.get("mscale") and n.get("mscale_all_dim"):
            scales = (n["mscale"], n["mscale_all_dim"])
            first, second = (1.0 if factor <= 1 else 0.1 * s * math.log(factor) + 1.0 for s in scales)
            magnitude = first / second
    return 1.0 / (ramp / np.float64(factor) + (1.0 - ramp)), magnitude


_BETAS = {"beta_fast": 32.0, "beta_slow": 1.0}


def _dimension(turns: float, n: Numbers, head_dim: int, theta: float) -> float:
    """The dimension, not a whole one, that turns so often in the original context; 0 where no logarithm is."""
    ratio = n["original_max_position_embeddings"] / (turns * 2 * math.pi)
    if not 0 < ratio < math.inf or theta <= 1:
        return 0.0
    return head_dim * math.log(ratio) / (2 * math.log(theta))


def _longrope(n: Numbers, head_dim: int, theta: float) -> tuple[Any, float]:
    """The divisors as listed for texts within the original context; a model of a longer one is refused before."""
    factor, original = n.get("factor", 1.0), n["original_max_position_embeddings"]
    usual = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 and original > 1 else 1.0
    return n["short_factor"], n.get("attention_factor", usual)


_FORMULAS = {"linear": _linear, "llama3": _llama3, "yarn": _yarn, "longrope": _longrope}
