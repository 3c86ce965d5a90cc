"""Faults of the activation quantiser: how float32 channels become int8 codes and a scale."""

from collections.abc import Callable

import numpy as np

from tritgold.config import ScaleRule
from tritgold.layers.q8_k import BLOCK, accumulate_blocks, apply_block_scales, quantize_q8_k
from tritgold.quantize import ABSMAX_FLOOR
from tritgold.rounding import bf16_to_f32, f32_to_bf16
from tritgold_conformance.faults.accumulator import exact, scale_floats
from tritgold_conformance.faults.fault import Fault, Subject, Witness, arithmetic, arithmetic_of

Quantized = tuple[np.ndarray, np.ndarray]
_127 = np.float32(127)


def _absmax(x: np.ndarray) -> np.ndarray:
    return np.abs(x).max(axis=1, initial=0.0)


def _scale(x: np.ndarray, largest: float = 127) -> np.ndarray:
    return (np.float32(largest) / np.maximum(_absmax(x), ABSMAX_FLOOR)).astype(np.float32)


def _int8(rounded: np.ndarray) -> np.ndarray:
    return np.clip(np.nan_to_num(rounded), -128, 127).astype(np.int8)


def _rounding(rounded: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], Quantized]:
    def quantize(x: np.ndarray) -> Quantized:
        scale = _scale(x)
        return _int8(rounded(x * scale[:, None])), scale

    return quantize


def half_away(scaled: np.ndarray) -> np.ndarray:
    """Halves away from zero."""
    return np.sign(scaled) * np.floor(np.abs(scaled).astype(np.float64) + 0.5)


def half_up(scaled: np.ndarray) -> np.ndarray:
    """Halves towards plus infinity."""
    return np.floor(scaled.astype(np.float64) + 0.5)


def per_tensor(x: np.ndarray) -> Quantized:
    """One scale for all tokens."""
    scale = np.full(len(x), np.float32(127) / np.maximum(np.abs(x).max(initial=0.0), ABSMAX_FLOOR), np.float32)
    return _int8(np.rint(x * scale[:, None])), scale


def first_tokens_scale(x: np.ndarray) -> Quantized:
    """Each token by its own scale, and scaled back by the first one's."""
    scale = _scale(x)
    return _int8(np.rint(x * scale[:, None])), np.full(len(x), scale[0], np.float32)


def without_floor(x: np.ndarray) -> Quantized:
    """127 / absmax, whatever absmax; a zero token keeps a scale of 1, or everything would end here."""
    absmax = _absmax(x)
    with np.errstate(over="ignore"):
        scale = np.where(absmax > 0, _127 / np.maximum(absmax, np.float32(1e-36)), np.float32(1)).astype(np.float32)
    return _int8(np.rint(x * scale[:, None])), scale


def floor_added(x: np.ndarray) -> Quantized:
    """127 / (absmax + 1e-5)."""
    scale = (_127 / (_absmax(x) + ABSMAX_FLOOR)).astype(np.float32)
    return _int8(np.rint(x * scale[:, None])), scale


def clamped_at_127(x: np.ndarray) -> Quantized:
    """-128 never comes out of absmax: this changes nothing."""
    scale = _scale(x)
    return np.clip(np.rint(x * scale[:, None]), -127, 127).astype(np.int8), scale


def largest_128(x: np.ndarray) -> Quantized:
    """128 / absmax, clamped."""
    scale = _scale(x, 128)
    return _int8(np.rint(x * scale[:, None])), scale


def seven_bits(x: np.ndarray) -> Quantized:
    """63 / absmax: half of the range is left unused."""
    scale = _scale(x, 63)
    return _int8(np.rint(x * scale[:, None])), scale


def _bf16(x: np.ndarray) -> np.ndarray:
    return bf16_to_f32(f32_to_bf16(np.ascontiguousarray(x, np.float32)))


def in_bf16(x: np.ndarray) -> Quantized:
    """x, s and their product rounded to bfloat16; the scale is handed on in bfloat16 too."""
    x = _bf16(x)
    scale = _bf16(_scale(x))
    return _int8(np.rint(_bf16(x * scale[:, None]))), scale


def in_f16(x: np.ndarray) -> Quantized:
    """x and their product rounded to float16; the scale stays float32."""
    with np.errstate(over="ignore"):
        x = x.astype(np.float16).astype(np.float32)
        scale = _scale(np.where(np.isfinite(x), x, 65504))
        return _int8(np.rint((x * scale[:, None]).astype(np.float16).astype(np.float32))), scale


def _before_the_norm(s: Subject) -> dict[str, object]:
    def rms_norm(x: np.ndarray, gain: np.ndarray, eps: float) -> np.ndarray:
        codes, scale = _rounding(np.rint)(x)
        return s.arithmetic.rms_norm((codes / scale[:, None]).astype(np.float32), gain, eps)

    return {"rms_norm": rms_norm}


def _not_at_all() -> dict[str, object]:
    def quantize(x: np.ndarray) -> Quantized:
        return x, np.ones(len(x), np.float32)

    def accumulate(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
        return exact(codes.astype(np.float32), trits).astype(np.float32)

    return {"quantize": quantize, "accumulate": accumulate, "apply_scales": scale_floats}


def _by_blocks(s: Subject) -> dict[str, object] | None:
    if any(width % BLOCK for width in (s.config.hidden, s.config.inter, s.config.q_width)):
        return None
    return {"quantize": quantize_q8_k, "accumulate": accumulate_blocks, "apply_scales": _block_scales}


def _block_scales(acc: np.ndarray, scale: np.ndarray, weight_scale: np.ndarray, rule: ScaleRule) -> np.ndarray:
    """On golden inputs the scale is one a token and divides: then each block has its reciprocal."""
    if scale.ndim == 1:
        scale = np.repeat((np.float32(1) / scale)[:, None], acc.shape[2], axis=1)
    return apply_block_scales(acc, scale, weight_scale, rule)


_OPERATIONS, _VECTORS = Witness("operations"), Witness("vectors")

FAULTS = (
    Fault(
        "per-tensor", "activation", "One scale for all tokens of a pass.",
        "single steps right, prompts coarse: a large token silences the others",
        arithmetic(quantize=per_tensor), _OPERATIONS, (), ("position-0",),
    ),
    Fault(
        "per-256-block", "activation", "A scale for each 256 channels, as Q8_K has it.",
        "close to right; llama.cpp's own arithmetic on TQ1_0 and TQ2_0, a mode and not a bug there",
        arithmetic_of(_by_blocks), Witness("trace"), ("ggml-org/llama.cpp TQ2_0",),
    ),
    Fault(
        "truncated", "activation", "Codes are cut off towards zero where they should be rounded.",
        "codes off by one, always towards zero; small activations vanish",
        arithmetic(quantize=_rounding(np.trunc)), _OPERATIONS, ("astramind-ai/BitMat #13",),
    ),
    Fault(
        "half-away", "activation", "Halves are rounded away from zero.",
        "nothing, until an input has exact ties",
        arithmetic(quantize=_rounding(half_away)), _VECTORS,
    ),
    Fault(
        "half-up", "activation", "Halves are rounded up.",
        "nothing, until an input has exact ties",
        arithmetic(quantize=_rounding(half_up)), _VECTORS,
    ),
    Fault(
        "no-floor", "activation", "The largest magnitude is not held above 1e-5.",
        "tokens of almost nothing come out at full strength, zero tokens as NaN",
        arithmetic(quantize=without_floor), _VECTORS, ("microsoft/BitNet #123", "pytorch/ao #193"),
    ),
    Fault(
        "floor-added", "activation", "1e-5 is added to the largest magnitude, not a floor for it.",
        "codes off by one here and there; the largest may be 126",
        arithmetic(quantize=floor_added), _VECTORS, ("pytorch/ao #193",),
    ),
    Fault(
        "largest-128", "activation", "Scaled to 128 and clamped, not to 127.",
        "codes up to one larger, all scales larger by a constant ratio",
        arithmetic(quantize=largest_128), _OPERATIONS,
    ),
    Fault(
        "seven-bits", "activation", "Scaled to 63: a signed code in seven bits.",
        "text a little worse, nothing broken",
        arithmetic(quantize=seven_bits), _OPERATIONS,
    ),
    Fault(
        "quantised-before-the-norm", "activation", "Activations are quantised twice: before the norm as well.",
        "norm outputs off by a percent, in every layer",
        arithmetic_of(_before_the_norm), _OPERATIONS,
    ),
    Fault(
        "not-quantised", "activation", "Weights only: activations stay float32.",
        "close to right, and better than it should be",
        arithmetic(**_not_at_all()), Witness("trace"), ("ml-explore/mlx-lm BitLinear",),
    ),
    Fault(
        "bf16-codes", "activation", "x, s and x * s are bfloat16.",
        "many codes off by one, also far from ties",
        arithmetic(quantize=in_bf16), _OPERATIONS,
    ),
    Fault(
        "f16-codes", "activation", "x and x * s are float16.",
        "codes near a tie off by one",
        arithmetic(quantize=in_f16), _OPERATIONS,
    ),
    Fault(
        "first-tokens-scale", "activation", "All tokens are scaled back by the scale of the first.",
        "position 0 right, the others off by a ratio of their own",
        arithmetic(quantize=first_tokens_scale), _OPERATIONS, (), ("position-0",),
    ),
)  # fmt: skip

# Not a fault: engines differ in it, and nothing can show it.
HARMLESS = Fault(
    "clamp-127", "activation", "Codes are clamped to -127, not to -128.",
    "nothing: no code of absmax is below -127",
    arithmetic(quantize=clamped_at_127), _OPERATIONS, (), ("always",),
)  # fmt: skip
