"""RMSNorm: x / sqrt(mean(x^2) + eps) * gain. Source: arXiv 1910.07467."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float32

from tritgold.portable_math import dot


def rms_norm(
    x: Float32[np.ndarray, "tokens width"], gain: Float32[np.ndarray, " width"], eps: float
) -> Float32[np.ndarray, "tokens width"]:
    """Normalise each token by its root mean square, then scale each channel by its gain.

    Computed in float64, rounded once; transformers rounds x / rms to float32 before it multiplies by the gain. A zero
    token gives zeros (eps keeps the root positive). A NaN makes all values of its token NaN.

    3 and 4 have a mean square of 12.5: 3 / sqrt(12.5) = 0.8485, 4 / sqrt(12.5) * 2 = 2.2627.

    >>> rms_norm(np.array([[3, 4]], np.float32), np.array([1, 2], np.float32), eps=1e-12).round(4)
    array([[0.8485, 2.2627]], dtype=float32)
    """
    mean_square = dot(x, x) / x.shape[1]
    rms = np.sqrt(mean_square + eps)
    return (x / rms[:, None] * gain).astype(np.float32)


def normed_by(
    norm: Callable[..., np.ndarray],
    x: Float32[np.ndarray, "tokens ..."],
    gain: Float32[np.ndarray, " width"],
    eps: float,
) -> Float32[np.ndarray, "tokens ..."]:
    """``norm`` over each run of as many channels as the gain has: a token, or a head of it. Same shape as x."""
    return norm(x.reshape(-1, gain.size), gain, eps).reshape(x.shape)
