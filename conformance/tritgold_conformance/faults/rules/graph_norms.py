"""Faults of the graph: a norm left out or in another place, its eps, its gains, its formula."""

from collections.abc import Mapping

import numpy as np

from tritgold.portable_math import dot
from tritgold.trace_names import TraceName
from tritgold_conformance.faults.fault import OPERATIONS, Mutant
from tritgold_conformance.faults.library import known_fault
from tritgold_conformance.faults.mutate import (
    Function,
    altered,
    from_layer,
    output_from,
    replaces,
    with_arithmetic,
    with_config,
    with_layers,
    wraps,
)

AREA = "graph"


@known_fault(OPERATIONS)
def attn_sub_norm_skipped(s: Mutant) -> Mutant | None:
    """The norm before o is left out.

    Looks like: codes of o_in as if by another scale"""
    return output_from(s, "attn_sub_norm", "attn_mix") if s.config.sub_norms else None


@known_fault(OPERATIONS)
def ffn_sub_norm_skipped(s: Mutant) -> Mutant | None:
    """The norm before down is left out.

    Looks like: codes of down_in without its gains"""
    return output_from(s, "ffn_sub_norm", "ffn_act") if s.config.sub_norms else None


@known_fault(OPERATIONS)
def attn_sub_norm_after_o(s: Mutant) -> Mutant | None:
    """The norm before o is applied to what o gives.

    Looks like: every layer adds a vector of the same size

    Its gain fits there only where q is as wide as the stream."""
    layers = s.checkpoint.weights.layers
    if not s.config.sub_norms or s.config.q_width != s.config.hidden:
        return None

    def alter(name: str, value: np.ndarray, seen: Mapping[str, np.ndarray]) -> np.ndarray | None:
        at = TraceName.of(name)
        if at.what == "attn_sub_norm":
            return from_layer(seen, name, "attn_mix")
        if at.layer is not None and at.inner == "o.out":
            return s.arithmetic.rms_norm(value, layers[at.layer].attn_sub_norm, s.config.norm_eps)
        return None

    return altered(s, alter)


@known_fault(OPERATIONS)
def sub_norm_gains_swapped(s: Mutant) -> Mutant:
    """attn_norm and ffn_norm are each other's.

    Looks like: babble"""
    return with_layers(s, lambda layer: {"attn_norm": layer.ffn_norm, "ffn_norm": layer.attn_norm})


@known_fault(OPERATIONS)
def norm_eps_1e_6(s: Mutant) -> Mutant | None:
    """Every norm has an eps of 1e-6.

    Looks like: off by a few units in the last place"""
    return with_config(s, norm_eps=1e-6)


@known_fault(OPERATIONS)
def norm_eps_1e_3(s: Mutant) -> Mutant | None:
    """Every norm has an eps of 1e-3.

    Looks like: small tokens come out smaller"""
    return with_config(s, norm_eps=1e-3)


@known_fault(OPERATIONS)
def sub_norm_eps_1e_2(s: Mutant) -> Mutant | None:
    """The sub-norms have an eps of their own, 1e-2.

    Looks like: tokens with little attention output come out smaller"""
    if not s.config.sub_norms:
        return None
    gains = {id(gain) for layer in s.checkpoint.weights.layers for gain in (layer.attn_sub_norm, layer.ffn_sub_norm)}

    def rms_norm(x: np.ndarray, gain: np.ndarray, eps: float) -> np.ndarray:
        return s.arithmetic.rms_norm(x, gain, 1e-2 if id(gain) in gains else eps)

    return with_arithmetic(s, rms_norm=rms_norm)


@known_fault(OPERATIONS, replaces("rms_norm"))
def norm_eps_after_the_root(x: np.ndarray, gain: np.ndarray, eps: float) -> np.ndarray:
    """eps is added to the root, not to the mean square.

    Looks like: off by a few units in the last place where tokens are small"""
    return (x / (np.sqrt(dot(x, x) / x.shape[1])[:, None] + eps) * gain).astype(np.float32)


@known_fault(OPERATIONS, wraps("rms_norm"))
def norm_gain_plus_one(right: Function, x: np.ndarray, gain: np.ndarray, eps: float) -> np.ndarray:
    """Norm gains are taken as 1 + w.

    Looks like: activations too large in every layer"""
    return right(x, 1 + gain, eps)


@known_fault(OPERATIONS, wraps("rms_norm"))
def norm_gain_ignored(right: Function, x: np.ndarray, gain: np.ndarray, eps: float) -> np.ndarray:
    """Norms have no gain.

    Looks like: babble, of the right size"""
    return right(x, np.ones_like(gain), eps)


@known_fault(OPERATIONS, replaces("rms_norm"))
def layer_norm(x: np.ndarray, gain: np.ndarray, eps: float) -> np.ndarray:
    """The mean is subtracted: LayerNorm for RMSNorm.

    Looks like: off by little where means are small"""
    centred = x.astype(np.float64) - x.mean(axis=1, dtype=np.float64, keepdims=True)
    return (centred / np.sqrt((centred * centred).mean(axis=1, keepdims=True) + eps) * gain).astype(np.float32)


@known_fault(OPERATIONS, replaces("rms_norm"))
def norm_of_the_sum(x: np.ndarray, gain: np.ndarray, eps: float) -> np.ndarray:
    """The root of the sum of squares, not of their mean.

    Looks like: every norm output is too small by the root of its width"""
    return (x / np.sqrt(dot(x, x) + eps)[:, None] * gain).astype(np.float32)
