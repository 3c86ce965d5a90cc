"""The two quantisers of BitNet b1.58: weights to trits by absmean, activations to int8 by absmax.

Every step is one float32 operation in the order given, so any machine gets the same codes.
Source: "The Era of 1-bit LLMs" (arXiv 2402.17764), equations 1-3, as transformers 5.24 computes them
(``integrations/bitnet.py``: WeightQuant, ActQuant) in float32.
"""

import numpy as np

from tritgold.errors import NonFiniteError
from tritgold.portable_math import pairwise_sum
from tritgold.ternary import TernaryTensor

ABSMAX_FLOOR = np.float32(1e-5)
ABSMEAN_FLOOR = np.float32(1e-5)
_ROWS_AT_A_TIME = 1 << 20  # elements of float64 scratch in absmean: 8 MB for a matrix of any size


def absmax_int8(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Quantise activations to int8, with one scale per token.

    x: float32 [tokens, in]. Returns codes int8 [tokens, in] and scale float32 [tokens]; x is about codes / scale.

        s = 127 / max(max|x|, 1e-5);  code = clamp(half_even(x * s), -128, 127)

    A zero token gives codes 0 and s = 1.27e7, never 0/0. Raises NonFiniteError for inf or NaN.

    >>> codes, scale = absmax_int8(np.array([[127, .5, 1.5, 2.5, -.5, -1.5, -2.5]], np.float32))
    >>> codes[0].tolist(), scale.tolist()
    ([127, 0, 2, 2, 0, -2, -2], [1.0])
    """
    absmax = np.abs(x).max(axis=-1, initial=0.0)
    check_activations(absmax)
    scale = np.float32(127) / np.maximum(absmax, ABSMAX_FLOOR)
    codes = np.rint(x * scale[..., None])
    return np.clip(codes, -128, 127).astype(np.int8), scale


def check_activations(absmax: np.ndarray) -> None:
    """Raise NonFiniteError for the first token whose largest magnitude (absmax, float32 [tokens]) is inf or NaN."""
    if not np.isfinite(absmax).all():
        token = int(np.flatnonzero(~np.isfinite(absmax))[0])
        raise NonFiniteError(
            f"activations of token {token} are not finite",
            kind="activation-non-finite",
            got=absmax[token],
            hint="look for the first non-finite value upstream in the trace",
        )


def absmean_ternary(weight: np.ndarray) -> TernaryTensor:
    """Quantise a master weight matrix to trits with one scale.

    weight: float32 [out, in].

        a = max(mean|W|, 1e-5);  s = 1 / a;  trit = clamp(half_even(W * s), -1, 1);  scale = 1 / s, multiplying

    The mean is summed in float64 and rounded once. In engines that sum in float32, a may differ by an ulp, which can
    change the trit of a weight that is exactly +-a/2. A zero matrix gives zero trits. Raises NonFiniteError for inf or
    NaN.

    >>> t = absmean_ternary(np.array([[0.5, -2.0, 0.1, 1.4]], np.float32))
    >>> t.trits.tolist(), float(t.scale)
    ([[0, -1, 0, 1]], 1.0)
    """
    rows, columns = weight.shape
    step = max(1, _ROWS_AT_A_TIME // columns)
    sums = [pairwise_sum(np.abs(weight[r : r + step]).astype(np.float64)).reshape(-1) for r in range(0, rows, step)]
    mean = np.float32(pairwise_sum(np.concatenate(sums)) / weight.size)
    if not np.isfinite(mean):
        raise NonFiniteError("the master weights are not finite", kind="weight-non-finite", got=mean)
    inverse = np.float32(1) / np.maximum(mean, ABSMEAN_FLOOR)
    trits = np.clip(np.rint(weight * inverse), -1, 1).astype(np.int8)
    return TernaryTensor(trits, np.asarray(np.float32(1) / inverse))
