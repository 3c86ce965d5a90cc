"""BitNet a4.8: 4-bit codes for activations with a bell-shaped distribution, sparse 8-bit codes for the others.

Source: arXiv 2411.04965. The inputs of q, k, v and of gate, up are int4 by absmean; the input of o is int8, of which
the largest half is kept; the input of down is int8, sparse only by the squared ReLU. (The paper's 4-bit floats are
not implemented.)
"""

from dataclasses import dataclass

import numpy as np

from tritgold.portable_math import pairwise_sum
from tritgold.quantize import ABSMEAN_FLOOR
from tritgold.sparsity.activation import ActivationRule, Quantizer, finite
from tritgold.sparsity.base import count_of, largest


def absmean_int4(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Quantise activations to 4 bits, with one scale per token.

    x: float32 [tokens, in]. Returns codes int8 [tokens, in] from -8 to 7 and scale float32 [tokens]; x is about
    codes / scale.

        b = max(mean|x|, 1e-5);  s = sqrt(7) / b;  code = clamp(half_even(x * s), -8, 7)

    The paper adds an epsilon of unknown size to b; here it is a floor, as in the other quantisers. b and s are computed
    in float64 and rounded once to float32, x * s is one float32 product. A zero token gives codes 0. Values above 2.65
    times the mean are clipped. Raises NonFiniteError for inf or NaN.

    The mean is 1, so s = 2.6458:

    >>> codes, scale = absmean_int4(np.array([[1, -1, 0, 0.5, 4, 0, 0, -1.5]], np.float32))
    >>> codes.tolist(), round(float(scale[0]), 4)
    ([[3, -3, 0, 1, 7, 0, 0, -4]], 2.6458)
    """
    mean = (pairwise_sum(np.abs(finite(x)).astype(np.float64)) / x.shape[1]).astype(np.float32)
    scale = (np.sqrt(7.0) / np.maximum(mean, ABSMEAN_FLOOR).astype(np.float64)).astype(np.float32)
    codes = np.clip(np.rint(x * scale[:, None]), -8, 7)
    return codes.astype(np.int8), scale


@dataclass(frozen=True)
class A48(ActivationRule):
    """The hybrid of a4.8. keep: the share of o's input codes that are kept, largest first, equal ones in order."""

    keep: float = 0.5
    name = "a4_8"

    def __post_init__(self) -> None:
        self._check_shares("keep")

    def quantize(self, x: np.ndarray, place: str, dense: Quantizer) -> tuple[np.ndarray, np.ndarray]:
        """By place: int4 for attn_in and ffn_in, the largest codes of ``dense`` for o_in, ``dense`` for down_in."""
        if place in ("attn_in", "ffn_in"):
            return absmean_int4(x)
        codes, scale = dense(finite(x))
        if place == "o_in":
            mask = largest(np.abs(codes.astype(np.int64)), count_of(self.keep, codes.shape[1]))
            codes = np.where(mask, codes, np.int8(0))
        return codes, scale
