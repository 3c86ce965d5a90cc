"""Faults of the weight scale, the one number of a ternary matrix that is no trit."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tritgold.errors import PackingError
from tritgold.formats.packings import packing
from tritgold.rounding import bf16_to_f32, f32_to_bf16
from tritgold.ternary import TernaryTensor
from tritgold.weights import LINEARS, LayerWeights
from tritgold_conformance.faults.fault import (
    Change,
    ChangedWeight,
    Fault,
    Subject,
    Witness,
    arithmetic_of,
    config,
    linears,
    with_weights,
)

# Whose scale each linear gets where one is read too few, and where one is kept for a fused projection.
_NEIGHBOUR = dict(zip(LINEARS, (LINEARS[-1], *LINEARS[:-1]), strict=True))
_FUSED_QKV = {"k": "q", "v": "q"}
_FUSED_GATE_UP = {"up": "gate"}


def _scale(change: Callable[[np.ndarray], np.ndarray], only: str = "") -> Change:
    """The scale of every linear, or of one."""

    def changed(name: str, t: TernaryTensor) -> TernaryTensor:
        if only and name != only:
            return t
        return TernaryTensor(t.trits, np.asarray(change(t.scale), np.float32))

    return linears(changed)


def _of(sources: Mapping[str, str]) -> Change:
    """The scales of some linears from others of their layer."""

    def faulty(s: Subject) -> Subject:
        return with_weights(s, layers=tuple(_borrowing(layer, sources) for layer in s.checkpoint.weights.layers))

    return faulty


def _borrowing(layer: LayerWeights, sources: Mapping[str, str]) -> LayerWeights:
    def change(name: str, t: TernaryTensor) -> TernaryTensor:
        return TernaryTensor(t.trits, layer.linear(sources[name]).ternary().scale)

    changed: dict[str, Any] = {name: ChangedWeight(layer.linear(name), name, change) for name in sources}
    return replace(layer, **changed)


def _from_the_next_layer(s: Subject) -> Subject | None:
    layers = s.checkpoint.weights.layers
    if len(layers) < 2:
        return None

    def changed(index: int) -> LayerWeights:
        following = layers[(index + 1) % len(layers)]

        def change(name: str, t: TernaryTensor) -> TernaryTensor:
            return TernaryTensor(t.trits, following.linear(name).ternary().scale)

        weights: dict[str, Any] = {n: ChangedWeight(layers[index].linear(n), n, change) for n in LINEARS}
        return replace(layers[index], **weights)

    return with_weights(s, layers=tuple(changed(i) for i in range(len(layers))))


def _half(scale: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.clip(scale.astype(np.float16), -65504, 65504).astype(np.float32)


def _other_rule(s: Subject) -> Subject | None:
    rule = "divide" if s.config.scale_rule == "multiply" else "multiply"
    return config(scale_rule=rule)(s)


def _multiplied_by_s(s: Subject) -> dict[str, Any]:
    """The activation scale multiplies where it must divide."""

    def apply_scales(acc: np.ndarray, scale: np.ndarray, weight_scale: np.ndarray, rule: str) -> np.ndarray:
        with np.errstate(over="ignore", divide="ignore"):
            return s.arithmetic.apply_scales(acc, (np.float32(1) / scale).astype(np.float32), weight_scale, rule)

    return {"apply_scales": apply_scales}


def _activation_scale_missing(s: Subject) -> dict[str, Any]:
    def apply_scales(acc: np.ndarray, scale: np.ndarray, weight_scale: np.ndarray, rule: str) -> np.ndarray:
        return s.arithmetic.apply_scales(acc, np.ones_like(scale), weight_scale, rule)

    return {"apply_scales": apply_scales}


def _previous_block(s: Subject) -> Subject:
    """Each block of a TQ file is scaled by the block before it; the first by its own."""
    before = s.unpack

    def unpack(name: str, data: bytes, shape: tuple[int, int]) -> np.ndarray | None:
        if name not in ("tq1_0", "tq2_0"):
            return before(name, data, shape) if before else None
        layout = packing(name)
        scales = layout.scales(data, shape).reshape(-1)
        shifted = np.concatenate([scales[:1], scales[:-1]]).reshape(shape[0], -1)
        try:
            return TernaryTensor(layout.codes(data, shape).view(np.int8) - np.int8(1), shifted).dense()
        except PackingError:
            return None

    return replace(s, unpack=unpack)


_OPERATIONS = Witness("operations")

FAULTS = (
    Fault(
        "scale-divided", "scale", "The weight scale divides where it must multiply, or the other way round.",
        "every linear off by the square of its scale; sub-norms hide it on v, gate and up",
        _other_rule, _OPERATIONS, ("ml-explore/mlx-lm #268", "Blaizzy/mlx-lm #1"),
    ),
    Fault(
        "scale-twice", "scale", "The weight scale is applied twice.", "every linear off by its scale",
        _scale(np.square), _OPERATIONS,
    ),
    Fault(
        "scale-never", "scale", "The weight scale is not applied.", "every linear off by its scale",
        _scale(np.ones_like), _OPERATIONS, ("microsoft/BitNet #468, #469, #533", "Comfy-Org/ComfyUI #15520"),
    ),
    Fault(
        "scale-sign-flipped", "scale", "The weight scale has lost its sign or gained one.", "outputs negated",
        _scale(np.negative), _OPERATIONS,
    ),
    *(
        Fault(
            f"scale-never-on-{name}", "scale", f"The weight scale of {name} is not applied.",
            "nothing in the text: the norm behind it takes a constant factor out again",
            _scale(np.ones_like, only=name), _OPERATIONS, (), ("logits",),
        )
        for name in ("v", "gate", "up")
    ),
    Fault(
        "scale-of-the-neighbour", "scale", "Each linear has the scale of the tensor before it in its layer.",
        "outputs off by constant ratios near 1",
        _of(_NEIGHBOUR), _OPERATIONS,
    ),
    Fault(
        "scale-of-the-next-layer", "scale", "Each linear has the scale of the same one in the next layer.",
        "outputs off by constant ratios near 1, another in each layer",
        _from_the_next_layer, _OPERATIONS,
    ),
    Fault(
        "one-scale-for-qkv", "scale", "A fused q, k, v projection keeps the scale of q for all three.",
        "k and v off by a constant ratio, q right",
        _of(_FUSED_QKV), _OPERATIONS, ("vllm-project/vllm #43297",),
    ),
    Fault(
        "one-scale-for-gate-and-up", "scale", "A fused gate and up projection keeps the scale of gate for both.",
        "up off by a constant ratio; a sub-norm hides it from the text",
        _of(_FUSED_GATE_UP), _OPERATIONS, (), ("logits",),
    ),
    Fault(
        "scale-in-f16", "scale", "The weight scale is rounded to float16.", "outputs off by up to 5e-4",
        _scale(_half), Witness("operations", "float-scales"), ("ggml-org/llama.cpp TQ2_0",), ("bf16-scales",),
    ),
    Fault(
        "scale-in-bf16", "scale", "The weight scale is rounded to bfloat16.", "outputs off by up to 4e-3",
        _scale(lambda s: bf16_to_f32(f32_to_bf16(s))), Witness("operations", "float-scales"), (), ("bf16-scales",),
    ),
    Fault(
        "activation-scale-multiplied", "scale", "The activation scale multiplies where it must divide.",
        "outputs off by the square of a scale of their own for each token",
        arithmetic_of(_multiplied_by_s), _OPERATIONS,
    ),
    Fault(
        "activation-scale-missing", "scale", "Sums are not scaled back by the activation scale.",
        "outputs too large by a factor of their own for each token",
        arithmetic_of(_activation_scale_missing), _OPERATIONS,
    ),
    Fault(
        "scale-of-the-previous-block", "scale", "Blocks of a TQ file have the scale of the block before.",
        "nothing in a BitNet file, whose blocks agree; garbage in others",
        _previous_block, Witness("files"), (), ("one-scale",),
    ),
)  # fmt: skip
