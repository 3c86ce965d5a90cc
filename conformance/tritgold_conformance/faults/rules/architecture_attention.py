"""Faults of architectures: biases of q, k and v, norms of heads, and the layers and the size of a window."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tritgold.layers.rms_norm import normed_by
from tritgold.trace_names import TraceName
from tritgold.weights import LayerWeights
from tritgold_conformance.faults.fault import Mutant, Witness
from tritgold_conformance.faults.library import known_fault
from tritgold_conformance.faults.mutate import altered, from_layer, with_arithmetic, with_config, with_layers

AREA = "architecture"
_QWEN, _GEMMA = (Witness("operations", name) for name in ("qwen", "gemma"))
_BIASED = ("q", "k", "v")


def _without(layer: LayerWeights, *names: str) -> dict[str, Any]:
    """Biases of zero."""
    return {f"{name}_bias": np.zeros_like(layer.bias(name)) for name in names}


@known_fault(_QWEN)
def qkv_bias_dropped(s: Mutant) -> Mutant | None:
    """The biases of q, k and v are not added.

    Looks like: babble; accumulators right"""
    return with_layers(s, lambda layer: _without(layer, *_BIASED)) if s.config.qkv_bias else None


@known_fault(_QWEN)
def v_bias_dropped(s: Mutant) -> Mutant | None:
    """The bias of v is not added.

    Looks like: attention right; a constant is missing in what it gives"""
    return with_layers(s, lambda layer: _without(layer, "v")) if s.config.qkv_bias else None


@known_fault(_QWEN)
def k_bias_on_q(s: Mutant) -> Mutant | None:
    """q has the bias of k: a fused vector is cut in the wrong place.

    Looks like: attention wrong from position 1 on; k and v right"""

    def changed(layer: LayerWeights) -> dict[str, Any]:
        assert layer.q_bias is not None
        assert layer.k_bias is not None
        return {"q_bias": np.resize(layer.k_bias, layer.q_bias.shape)}

    return with_layers(s, changed) if s.config.qkv_bias else None


@known_fault(_QWEN)
def qkv_bias_scaled(s: Mutant) -> Mutant | None:
    """Biases are added before the weight's scale, which multiplies or divides them too.

    Looks like: biases too small by a factor that differs from matrix to matrix"""

    def changed(layer: LayerWeights) -> dict[str, Any]:
        found = {}
        for name in _BIASED:
            bias, scale = layer.bias(name), layer.linear(name).ternary().scale.reshape(-1)
            found[f"{name}_bias"] = bias * scale if s.config.scale_rule == "multiply" else bias / scale
        return found

    return with_layers(s, changed) if s.config.qkv_bias else None


@known_fault(_QWEN)
def qkv_bias_after_rope(s: Mutant) -> Mutant | None:
    """The biases of q and k are added after RoPE.

    Looks like: position 0 right after RoPE, all others not"""
    if not s.config.qkv_bias:
        return None
    layers = s.checkpoint.weights.layers

    def alter(name: str, value: np.ndarray, seen: Mapping[str, np.ndarray]) -> np.ndarray | None:
        at = TraceName.of(name)
        if at.layer is None or at.inner not in ("q_rope", "k_rope"):
            return None
        bias = layers[at.layer].bias(at.inner[0])
        return None if bias is None else value + bias.reshape(value.shape[1:])

    return altered(with_layers(s, lambda layer: _without(layer, "q", "k")), alter)


@known_fault(_GEMMA)
def qk_norms_dropped(s: Mutant) -> Mutant | None:
    """q and k are not normed.

    Looks like: attention too sharp or too flat in every layer"""
    return _normed(s) if s.config.qk_norms else None


@known_fault(_GEMMA)
def qk_norms_after_rope(s: Mutant) -> Mutant | None:
    """q and k are rotated first, and normed then.

    Looks like: gains lie on the wrong side of the rotation; right where all gains of a head are equal"""
    if not s.config.qk_norms:
        return None
    layers, eps = s.checkpoint.weights.layers, s.config.norm_eps

    def alter(name: str, value: np.ndarray, seen: Mapping[str, np.ndarray]) -> np.ndarray | None:
        at = TraceName.of(name)
        if at.layer is None or at.inner not in ("q_rope", "k_rope"):
            return None
        return normed_by(s.arithmetic.rms_norm, value, getattr(layers[at.layer], f"{at.inner[0]}_norm"), eps)

    return altered(_normed(s), alter)


def _normed(s: Mutant, over_width: bool = False) -> Mutant:
    """q and k without their norms; or with one over all heads of a token together."""
    layers, eps = s.checkpoint.weights.layers, s.config.norm_eps

    def alter(name: str, value: np.ndarray, seen: Mapping[str, np.ndarray]) -> np.ndarray | None:
        at = TraceName.of(name)
        if at.layer is None or at.inner not in ("q_norm", "k_norm"):
            return None
        x = from_layer(seen, name, f"{at.inner[0]}.out")
        if x is None or not over_width:
            return None if x is None else x.reshape(value.shape)
        rows = x.reshape(len(value), -1)
        gain = np.tile(getattr(layers[at.layer], at.inner), value.shape[1])
        return s.arithmetic.rms_norm(rows, gain, eps).reshape(value.shape)

    return altered(s, alter)


@known_fault(_GEMMA)
def qk_norms_over_the_width(s: Mutant) -> Mutant | None:
    """q and k are normed over all heads of a token together, not head by head.

    Looks like: heads of unusual size get too much or too little attention"""
    return _normed(s, over_width=True) if s.config.qk_norms else None


@known_fault(_GEMMA)
def qk_norm_gains_swapped(s: Mutant) -> Mutant | None:
    """The norm of q has the gains of k's, and the other way round.

    Looks like: scores right where RoPE turns nothing: position 0 against itself"""
    if not s.config.qk_norms:
        return None
    return with_layers(s, lambda layer: {"q_norm": layer.k_norm, "k_norm": layer.q_norm})


@known_fault(_QWEN, invisible_on=("position-0",))
def window_ignored(s: Mutant) -> Mutant | None:
    """Layers with a window see everything.

    Looks like: texts shorter than the window right"""
    return None if s.config.window is None else with_config(s, window=s.config.context)


@known_fault(_QWEN, invisible_on=("position-0",))
def window_one_too_wide(s: Mutant) -> Mutant | None:
    """A window of n lets a token see the n before it and itself, one more than it has.

    Looks like: texts up to the window right; off by little after it"""
    return None if s.config.window is None else with_config(s, window=s.config.window + 1)


@known_fault(_QWEN, invisible_on=("position-0",))
def window_one_too_narrow(s: Mutant) -> Mutant | None:
    """A window of n lets a token see itself and the n - 2 before it.

    Looks like: texts below the window right; off by little after it"""
    window = s.config.window
    return None if window is None or window < 2 else with_config(s, window=window - 1)


@known_fault(_QWEN, invisible_on=("position-0",))
def window_in_every_layer(s: Mutant) -> Mutant | None:
    """Layers that see everything have the window as well.

    Looks like: texts shorter than the window right; long ones lose the thread"""
    window, right = s.config.window, s.arithmetic.softmax_weights
    if window is None or not s.config.full_layers:
        return None

    def softmax_weights(q: np.ndarray, k: np.ndarray, start: int, **options: Any) -> np.ndarray:
        return right(q, k, start, **{**options, "window": window})

    return with_arithmetic(s, softmax_weights=softmax_weights)


@known_fault(_GEMMA, invisible_on=("position-0",))
def window_period_off_by_one(s: Mutant) -> Mutant | None:
    """The layers that see everything are counted from 1 where they are counted from 0: each is one layer early.

    Looks like: texts shorter than the window right where all layers have one theta"""
    if s.config.window is None:
        return None
    full = sorted((n - 1) % s.config.layers for n in s.config.full_layers)
    made = replace(s.config, full_layers=tuple(full))
    return None if made == s.config else with_config(s, full_layers=made.full_layers)
