"""The ternary linear layer of llama.cpp: activations as Q8_K (int8, one scale per 256 channels), sums in float32.

``vec_dot`` of TQ1_0 and TQ2_0 multiplies with Q8_K. BitNet has one scale per token, so llama.cpp is not bit-equal to it
even with perfect weights. In ``Arithmetic`` these functions replace ``absmax_int8``, ``accumulate`` and
``apply_scales``; axis ``blocks`` is in / 256.
Source: ggml ``ggml-quants.c`` (quantize_row_q8_K_ref) and ``ggml-cpu/quants.c`` (ggml_vec_dot_tq2_0_q8_K_generic).
"""

import numpy as np
from jaxtyping import Float32, Int8, Int32

from tritgold.config import ScaleRule
from tritgold.errors import ConfigError
from tritgold.quantize import check_activations

BLOCK = 256


def quantize_q8_k(
    x: Float32[np.ndarray, "tokens in"],
) -> tuple[Int8[np.ndarray, "tokens in"], Float32[np.ndarray, "tokens blocks"]]:
    """Quantise activations, one scale per 256 consecutive channels of a token. Here x is about codes * scale.

        m = the element with the largest magnitude, with its sign, the first if several;  i = -127 / m
        code = half_even(x * i);  scale = 1 / i

    each a single float32 operation. So m becomes -127 for either sign, and the scale is negative if m is positive.
    |x * i| stays below 127.5, so ggml's upper clamp at 127 has no effect. A block whose i is not finite (all zeros, or
    |m| below 3.8e-37) gives codes 0 and scale 0. Raises NonFiniteError for inf or NaN, from which ggml would make
    meaningless codes, and ConfigError if ``in`` is not a multiple of 256.

    >>> x = np.zeros((1, 256), np.float32); x[0, :5] = [254, -127, 1, 3, 5]
    >>> codes, scale = quantize_q8_k(x)
    >>> codes[0, :5].tolist(), scale.tolist()
    ([-127, 64, 0, -2, -2], [[-2.0]])
    """
    check_activations(np.abs(x).max(axis=-1, initial=0.0))
    blocks = _blocks(x)
    largest = np.take_along_axis(blocks, np.argmax(np.abs(blocks), axis=2, keepdims=True), axis=2)
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.float32(-127) / largest
    silent = ~np.isfinite(inverse)
    inverse[silent] = 0
    codes = np.rint(blocks * inverse).astype(np.int8).reshape(x.shape)
    scale = np.divide(np.float32(1), inverse, out=np.zeros_like(inverse), where=~silent)
    return codes, scale[..., 0]


def accumulate_blocks(
    codes: Int8[np.ndarray, "tokens in"], trits: Int8[np.ndarray, "out in"]
) -> Int32[np.ndarray, "tokens out blocks"]:
    """The exact dot products of codes and trits, block by block; at most 127 * 256, so exact in float32 in any order.

    >>> codes, trits = np.zeros((1, 512), np.int8), np.zeros((2, 512), np.int8)
    >>> codes[0, [0, 255, 256]], trits[0, [0, 255, 256]], trits[1, 256] = [-127, 64, 3], [1, -1, 1], -1
    >>> accumulate_blocks(codes, trits)
    array([[[-191,    3],
            [   0,   -3]]], dtype=int32)
    """
    by_block = _blocks(codes).astype(np.float32).transpose(1, 0, 2)
    acc = by_block @ _blocks(trits).astype(np.float32).transpose(1, 2, 0)
    return np.ascontiguousarray(acc.transpose(1, 2, 0)).astype(np.int32)


def apply_block_scales(
    acc: Int32[np.ndarray, "tokens out blocks"],
    activation_scale: Float32[np.ndarray, "tokens blocks"],
    weight_scale: Float32[np.ndarray, "..."],
    rule: ScaleRule,
) -> Float32[np.ndarray, "tokens out"]:
    """The sum over blocks of f32(acc) * (activation scale * weight scale), first block first, all in float32.

    The order is that of ggml's generic kernel; its AVX2 kernel sums eight lanes separately and rounds differently. The
    weight scale is used unchanged: a TQ file stores float16, so a model read from one has float16 values here. If the
    checkpoint's scales divide, 1 / w multiplies here, which is what a converter writes.

    >>> acc, scale = np.array([[[-191, 3]]], np.int32), np.array([[-2, 0.25]], np.float32)
    >>> float(apply_block_scales(acc, scale, np.array(0.5, np.float32), "multiply")[0, 0])
    191.375
    """
    multiplier = weight_scale if rule == "multiply" else np.float32(1) / weight_scale
    multiplier = multiplier.reshape(-1)  # one, or one per row
    total = np.zeros(acc.shape[:2], np.float32)
    for block in range(acc.shape[2]):
        total += acc[:, :, block].astype(np.float32) * (activation_scale[:, block, None] * multiplier)
    return total


def _blocks(rows: np.ndarray) -> np.ndarray:
    """[rows, in] -> [rows, blocks, 256]."""
    if rows.shape[1] % BLOCK:
        raise ConfigError(
            f"Q8_K quantises blocks of {BLOCK} channels",
            kind="block-width",
            thing="a linear's input",
            got=f"{rows.shape[1]} channels",
            expected=f"a multiple of {BLOCK}",
            hint="TQ1_0 and TQ2_0 cannot hold such rows either; judge this model in another arithmetic",
        )
    return rows.reshape(rows.shape[0], -1, BLOCK)
