"""Conversion between float32 and the bf16 that checkpoints store, bit for bit and without a library.

bf16 is the upper half of a float32; widening is exact. Narrowing rounds half to even, as JAX, PyTorch and
ml_dtypes do (truncation, as in one engine, moves every weight towards zero).
"""

import numpy as np


def bf16_to_f32(bits: np.ndarray) -> np.ndarray:
    """uint16 bf16 bit patterns -> float32 of the same shape. Exact, including infinities and NaN.

    >>> bf16_to_f32(np.array([0x3F80, 0xC000], np.uint16))
    array([ 1., -2.], dtype=float32)
    """
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def f32_to_bf16(values: np.ndarray) -> np.ndarray:
    """float32 -> uint16 bf16 bit patterns of the same shape, half to even.

    Overflow goes to infinity, NaN stays NaN (quiet).

    1.00390625 = 1 + 2**-8 lies midway between two bf16 numbers and goes to the even one:

    >>> hex(f32_to_bf16(np.array([1.00390625], np.float32))[0])
    '0x3f80'
    """
    values = np.asarray(values, np.float32)
    # Flat, because for 0-dimensional arrays NumPy would warn of the integer overflow below (-NaN, intended).
    bits = np.ascontiguousarray(values).reshape(-1).view(np.uint32)
    # Adding 0x7FFF, plus one when the kept bit is odd, carries into the upper half exactly when rounding goes up.
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet_nan = (bits >> np.uint32(16)) | np.uint32(0x0040)
    return np.where(np.isnan(values.reshape(-1)), quiet_nan, rounded).astype(np.uint16).reshape(values.shape)
