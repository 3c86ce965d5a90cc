"""The ternary linear layer: int8 codes x trits -> exact int32 accumulators -> float32.

Source: arXiv 2402.17764; scale rules from transformers 5.24 (AutoBitLinear multiplies by the weight scale,
BitLinear divides by it).
"""

import numpy as np
from jaxtyping import Float32, Int8, Int32

from tritgold.config import MAX_IN, ScaleRule


def accumulate(
    codes: Int8[np.ndarray, "tokens in"], trits: Int8[np.ndarray, "out in"]
) -> Int32[np.ndarray, "tokens out"]:
    """The exact dot products of codes and trits.

    Summed in float32 by BLAS, which is exact in any order because no partial sum reaches 2**24, and about a hundred
    times faster than NumPy's integer product. Raises ValueError for in > MAX_IN; codes of -128 would need
    in < 131,072.

    >>> accumulate(np.array([[127, -3]], np.int8), np.array([[1, 1], [-1, 0]], np.int8))
    array([[ 124, -127]], dtype=int32)
    """
    if codes.shape[1] > MAX_IN:
        raise ValueError(f"in is {codes.shape[1]}; sums are exact up to {MAX_IN}")
    return (codes.astype(np.float32) @ trits.astype(np.float32).T).astype(np.int32)


def apply_scales(
    acc: Int32[np.ndarray, "tokens out"],
    activation_scale: Float32[np.ndarray, " tokens"],
    weight_scale: Float32[np.ndarray, "..."],
    rule: ScaleRule,
) -> Float32[np.ndarray, "tokens out"]:
    """acc / s * w, or acc / s / w if the checkpoint stores the inverse: two float32 operations, in this order.

    weight_scale: [], or [out, 1] if each row has its own.

    >>> args = np.array([[124]], np.int32), np.array([2], np.float32), np.array(0.5, np.float32)
    >>> float(apply_scales(*args, "multiply")[0, 0]), float(apply_scales(*args, "divide")[0, 0])
    (31.0, 124.0)
    """
    rescaled = acc.astype(np.float32) / activation_scale[:, None]
    scales = weight_scale.reshape(-1)
    return rescaled * scales if rule == "multiply" else rescaled / scales
