"""Faults of the activation quantiser: how float32 channels become int8 codes and a scale."""

import numpy as np

from tritgold.config import ScaleRule
from tritgold.layers.q8_k import BLOCK, accumulate_blocks, apply_block_scales, quantize_q8_k
from tritgold.quantize import ABSMAX_FLOOR
from tritgold.rounding import bf16_to_f32, f32_to_bf16
from tritgold_conformance.faults.fault import EDGE_INPUTS, OPERATIONS, TRACE, Mutant
from tritgold_conformance.faults.library import known_fault
from tritgold_conformance.faults.mutate import Function, replaces, with_arithmetic, wraps
from tritgold_conformance.faults.rules.accumulator import exact, scale_floats

Quantized = tuple[np.ndarray, np.ndarray]  # codes int8 [tokens, width], scale float32 [tokens]


def _absmax(x: np.ndarray) -> np.ndarray:
    return np.abs(x).max(axis=1, initial=0.0)


def _scale(x: np.ndarray, largest: float = 127) -> np.ndarray:
    return (np.float32(largest) / np.maximum(_absmax(x), ABSMAX_FLOOR)).astype(np.float32)


def _int8(rounded: np.ndarray) -> np.ndarray:
    return np.clip(np.nan_to_num(rounded), -128, 127).astype(np.int8)


def _codes(x: np.ndarray, scale: np.ndarray) -> Quantized:
    return _int8(np.rint(x * scale[:, None])), scale


@known_fault(OPERATIONS, replaces("quantize"), invisible_on=("position-0",))
def per_tensor(x: np.ndarray) -> Quantized:
    """One scale for all tokens of a pass.

    Looks like: single steps right, prompts coarse: a large token silences the others"""
    scale = np.full(len(x), np.float32(127) / np.maximum(np.abs(x).max(initial=0.0), ABSMAX_FLOOR), np.float32)
    return _codes(x, scale)


@known_fault(TRACE)
def per_256_block(s: Mutant) -> Mutant | None:
    """A scale for each 256 channels, as Q8_K has it.

    Looks like: close to right; llama.cpp's own arithmetic on TQ1_0 and TQ2_0, a mode and not a bug there
    Seen in: ggml-org/llama.cpp TQ2_0"""

    def apply_scales(acc: np.ndarray, scale: np.ndarray, weight_scale: np.ndarray, rule: ScaleRule) -> np.ndarray:
        if scale.ndim == 1:  # of a golden input, one a token, which divides: then each block has its reciprocal
            scale = np.repeat((np.float32(1) / scale)[:, None], acc.shape[2], axis=1)
        return apply_block_scales(acc, scale, weight_scale, rule)

    if any(width % BLOCK for width in (s.config.hidden, s.config.inter, s.config.q_width)):
        return None
    return with_arithmetic(s, quantize=quantize_q8_k, accumulate=accumulate_blocks, apply_scales=apply_scales)


@known_fault(OPERATIONS, replaces("quantize"))
def truncated(x: np.ndarray) -> Quantized:
    """Codes are cut off towards zero where they should be rounded.

    Looks like: codes off by one, always towards zero; small activations vanish
    Seen in: astramind-ai/BitMat #13"""
    scale = _scale(x)
    return _int8(np.trunc(x * scale[:, None])), scale


@known_fault(EDGE_INPUTS, replaces("quantize"))
def half_away(x: np.ndarray) -> Quantized:
    """Halves are rounded away from zero.

    Looks like: nothing, until an input has exact ties"""
    scale = _scale(x)
    scaled = x * scale[:, None]
    return _int8(np.sign(scaled) * np.floor(np.abs(scaled).astype(np.float64) + 0.5)), scale


@known_fault(EDGE_INPUTS, replaces("quantize"))
def half_up(x: np.ndarray) -> Quantized:
    """Halves are rounded up.

    Looks like: nothing, until an input has exact ties"""
    scale = _scale(x)
    return _int8(np.floor((x * scale[:, None]).astype(np.float64) + 0.5)), scale


@known_fault(EDGE_INPUTS, replaces("quantize"))
def no_floor(x: np.ndarray) -> Quantized:
    """The largest magnitude is not held above 1e-5.

    Looks like: tokens of almost nothing come out at full strength, zero tokens as NaN
    Seen in: microsoft/BitNet #123; pytorch/ao #193"""
    absmax = _absmax(x)
    with np.errstate(over="ignore"):  # a zero token keeps a scale of 1, or everything would end here
        scale = np.where(absmax > 0, np.float32(127) / np.maximum(absmax, np.float32(1e-36)), np.float32(1))
    return _codes(x, scale.astype(np.float32))


@known_fault(EDGE_INPUTS, replaces("quantize"))
def floor_added(x: np.ndarray) -> Quantized:
    """1e-5 is added to the largest magnitude, not a floor for it.

    Looks like: codes off by one here and there; the largest may be 126
    Seen in: pytorch/ao #193"""
    return _codes(x, (np.float32(127) / (_absmax(x) + ABSMAX_FLOOR)).astype(np.float32))


@known_fault(OPERATIONS, replaces("quantize"))
def largest_128(x: np.ndarray) -> Quantized:
    """Scaled to 128 and clamped, not to 127.

    Looks like: codes up to one larger, all scales larger by a constant ratio"""
    return _codes(x, _scale(x, 128))


@known_fault(OPERATIONS, replaces("quantize"))
def seven_bits(x: np.ndarray) -> Quantized:
    """Scaled to 63: a signed code in seven bits.

    Looks like: text a little worse, nothing broken"""
    return _codes(x, _scale(x, 63))


@known_fault(OPERATIONS, wraps("rms_norm"))
def quantised_before_the_norm(right: Function, x: np.ndarray, gain: np.ndarray, eps: float) -> np.ndarray:
    """Activations are quantised twice: before the norm as well.

    Looks like: norm outputs off by a percent, in every layer"""
    codes, scale = _codes(x, _scale(x))
    return right((codes / scale[:, None]).astype(np.float32), gain, eps)


@known_fault(TRACE)
def not_quantised(s: Mutant) -> Mutant:
    """Weights only: activations stay float32.

    Looks like: close to right, and better than it should be
    Seen in: ml-explore/mlx-lm BitLinear"""

    def quantize(x: np.ndarray) -> Quantized:
        return x, np.ones(len(x), np.float32)

    def accumulate(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
        return exact(codes.astype(np.float32), trits).astype(np.float32)

    return with_arithmetic(s, quantize=quantize, accumulate=accumulate, apply_scales=scale_floats)


def _bf16(x: np.ndarray) -> np.ndarray:
    return bf16_to_f32(f32_to_bf16(np.ascontiguousarray(x, np.float32)))


@known_fault(OPERATIONS, replaces("quantize"))
def bf16_codes(x: np.ndarray) -> Quantized:
    """x, s and x * s are bfloat16.

    Looks like: many codes off by one, also far from ties"""
    x = _bf16(x)
    scale = _bf16(_scale(x))
    return _int8(np.rint(_bf16(x * scale[:, None]))), scale


@known_fault(OPERATIONS, replaces("quantize"))
def f16_codes(x: np.ndarray) -> Quantized:
    """x and x * s are float16.

    Looks like: codes near a tie off by one"""
    with np.errstate(over="ignore"):
        x = x.astype(np.float16).astype(np.float32)
        scale = _scale(np.where(np.isfinite(x), x, 65504))
        return _int8(np.rint((x * scale[:, None]).astype(np.float16).astype(np.float32))), scale


@known_fault(OPERATIONS, replaces("quantize"), invisible_on=("position-0",))
def first_tokens_scale(x: np.ndarray) -> Quantized:
    """All tokens are scaled back by the scale of the first.

    Looks like: position 0 right, the others off by a ratio of their own"""
    codes, scale = _codes(x, _scale(x))
    return codes, np.full(len(x), scale[0], np.float32)


@known_fault(OPERATIONS, replaces("quantize"), invisible_on=("always",), harmless=True)
def clamp_127(x: np.ndarray) -> Quantized:
    """Codes are clamped to -127, not to -128.

    Looks like: nothing: no code of absmax is below -127"""
    scale = _scale(x)
    return np.clip(np.rint(x * scale[:, None]), -127, 127).astype(np.int8), scale
