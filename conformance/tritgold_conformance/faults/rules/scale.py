"""Faults of the weight scale, the one number of a ternary matrix that is not a trit."""

import numpy as np

from tritgold.errors import PackingError
from tritgold.formats.packings import packing
from tritgold.layers.arithmetic import Array
from tritgold.rounding import bf16_to_f32, f32_to_bf16
from tritgold.ternary import TernaryTensor
from tritgold.weights import LINEARS
from tritgold_conformance.faults.fault import FILES, OPERATIONS, Mutant, Witness
from tritgold_conformance.faults.library import known_fault
from tritgold_conformance.faults.mutate import (
    Function,
    Shape,
    with_config,
    with_largest_scale,
    with_scales,
    with_scales_of,
    wraps,
)
from tritgold_conformance.faults.packing import with_unpack

FLOAT_SCALES = Witness("operations", "float-scales")


@known_fault(OPERATIONS)
def scale_divided(s: Mutant) -> Mutant | None:
    """The weight scale divides where it must multiply, or the other way round.

    Looks like: every linear off by the square of its scale; sub-norms hide it on v, gate and up
    Seen in: ml-explore/mlx-lm #268; Blaizzy/mlx-lm #1"""
    return with_config(s, scale_rule="divide" if s.config.scale_rule == "multiply" else "multiply")


@known_fault(OPERATIONS)
def scale_twice(s: Mutant) -> Mutant | None:
    """The weight scale is applied twice.

    Looks like: every linear off by its scale"""
    return with_scales(s, np.square)


@known_fault(OPERATIONS)
def scale_never(s: Mutant) -> Mutant | None:
    """The weight scale is not applied.

    Looks like: every linear off by its scale
    Seen in: microsoft/BitNet #468, #469, #533; Comfy-Org/ComfyUI #15520"""
    return with_scales(s, np.ones_like)


@known_fault(OPERATIONS)
def scale_sign_flipped(s: Mutant) -> Mutant | None:
    """The weight scale has lost its sign or gained one.

    Looks like: outputs negated"""
    return with_scales(s, np.negative)


@known_fault(OPERATIONS, invisible_on=("logits",))
def scale_never_on_v(s: Mutant) -> Mutant | None:
    """The weight scale of v is not applied.

    Looks like: nothing in the text: the norm after it takes a constant factor out again"""
    return with_scales(s, np.ones_like, only="v")


@known_fault(OPERATIONS, invisible_on=("logits",))
def scale_never_on_gate(s: Mutant) -> Mutant | None:
    """The weight scale of gate is not applied.

    Looks like: nothing in the text: the norm after it takes a constant factor out again"""
    return with_scales(s, np.ones_like, only="gate")


@known_fault(OPERATIONS, invisible_on=("logits",))
def scale_never_on_up(s: Mutant) -> Mutant | None:
    """The weight scale of up is not applied.

    Looks like: nothing in the text: the norm after it takes a constant factor out again"""
    return with_scales(s, np.ones_like, only="up")


@known_fault(OPERATIONS)
def scale_of_the_neighbour(s: Mutant) -> Mutant:
    """Each linear has the scale of the tensor before it in its layer.

    Looks like: outputs off by constant ratios near 1"""
    return with_scales_of(s, dict(zip(LINEARS, (LINEARS[-1], *LINEARS[:-1]), strict=True)))


@known_fault(OPERATIONS)
def scale_of_the_next_layer(s: Mutant) -> Mutant | None:
    """Each linear has the scale of the same one in the next layer.

    Looks like: outputs off by constant ratios near 1, another in each layer"""
    return None if s.config.layers < 2 else with_scales_of(s, {name: name for name in LINEARS}, layers_on=1)


@known_fault(OPERATIONS)
def one_scale_for_qkv(s: Mutant) -> Mutant:
    """A fused q, k, v projection keeps the scale of q for all three.

    Looks like: k and v off by a constant ratio, q right
    Seen in: vllm-project/vllm #43297"""
    return with_scales_of(s, {"k": "q", "v": "q"})


@known_fault(OPERATIONS, invisible_on=("logits",))
def one_scale_for_gate_and_up(s: Mutant) -> Mutant:
    """A fused gate and up projection keeps the scale of gate for both.

    Looks like: up off by a constant ratio; a sub-norm hides it from the text"""
    return with_scales_of(s, {"up": "gate"})


@known_fault(OPERATIONS)
def largest_scale_for_qkv(s: Mutant) -> Mutant:
    """A fused q, k, v projection keeps the largest of their scales for all three.

    Looks like: two of q, k and v off by constant ratios, other ones in each layer"""
    return with_largest_scale(s, ("q", "k", "v"))


@known_fault(OPERATIONS)
def largest_scale_for_gate_and_up(s: Mutant) -> Mutant:
    """A fused gate and up projection keeps the larger of their scales for both.

    Looks like: gate or up off by a constant ratio, which in some layers is 1"""
    return with_largest_scale(s, ("gate", "up"))


@known_fault(FLOAT_SCALES, invisible_on=("bf16-scales",))
def scale_in_f16(s: Mutant) -> Mutant | None:
    """The weight scale is rounded to float16.

    Looks like: outputs off by up to 5e-4
    Seen in: ggml-org/llama.cpp TQ2_0"""

    def half(scale: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return np.clip(scale.astype(np.float16), -65504, 65504).astype(np.float32)

    return with_scales(s, half)


@known_fault(FLOAT_SCALES, invisible_on=("bf16-scales",))
def scale_in_bf16(s: Mutant) -> Mutant | None:
    """The weight scale is rounded to bfloat16.

    Looks like: outputs off by up to 4e-3"""
    return with_scales(s, lambda scale: bf16_to_f32(f32_to_bf16(scale)))


@known_fault(OPERATIONS, wraps("apply_scales"))
def activation_scale_multiplied(right: Function, acc: Array, scale: Array, weight_scale: Array, rule: str) -> Array:
    """The activation scale multiplies where it must divide.

    Looks like: outputs off by the square of a scale of their own for each token"""
    with np.errstate(over="ignore", divide="ignore"):
        return right(acc, (np.float32(1) / scale).astype(np.float32), weight_scale, rule)


@known_fault(OPERATIONS, wraps("apply_scales"))
def activation_scale_missing(right: Function, acc: Array, scale: Array, weight_scale: Array, rule: str) -> Array:
    """Sums are not scaled back by the activation scale.

    Looks like: outputs too large by a factor of their own for each token"""
    return right(acc, np.ones_like(scale), weight_scale, rule)


@known_fault(FILES, invisible_on=("one-scale",))
def scale_of_the_previous_block(s: Mutant) -> Mutant:
    """Blocks of a TQ file have the scale of the block before.

    Looks like: nothing in a BitNet file, whose blocks agree; garbage in others"""

    def unpack(name: str, data: bytes, shape: Shape) -> np.ndarray | None:
        layout = packing(name)
        scales = layout.scales(data, shape).reshape(-1)
        shifted = np.concatenate([scales[:1], scales[:-1]]).reshape(shape[0], -1)
        try:
            return TernaryTensor(layout.codes(data, shape).view(np.int8) - np.int8(1), shifted).dense()
        except PackingError:
            return None

    return with_unpack(s, ("tq1_0", "tq2_0"), unpack)
