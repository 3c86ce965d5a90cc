"""Hadamard rotation around another scheme: outlier channels are spread over the whole head before quantisation.

Source: QuaRot (arXiv 2404.00456), section 4; llama.cpp does the same for its quantised KV types since #21038, if
head_dim is a multiple of 64. Engines rotate queries and keys, and rotate back the attention's output instead of the
values. Here keys and values are rotated back when they are read, which is equal: the rotation is its own inverse.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tritgold.errors import NonFiniteError
from tritgold.kv_cache.affine import Affine
from tritgold.kv_cache.base import KvShape, Side
from tritgold.kv_cache.token_rows import TokenScheme

_QUAROT = Affine(bits=4)


@dataclass(frozen=True)
class Hadamard(TokenScheme):
    """Each head vector x is multiplied by H before ``inner`` stores it, and by H again after ``inner`` loads it.

    inner: any scheme of token rows; the default is QuaRot's 4 bits with a zero point. head_dim must be a power of 2.
    """

    name: ClassVar[str] = "hadamard"
    inner: TokenScheme = _QUAROT

    def __post_init__(self) -> None:
        if not isinstance(self.inner, TokenScheme) or self.inner.first is not None:
            raise self.no_such_option("inner", "a scheme that keeps every token by itself, as a row of bytes")

    def row_bytes(self, shape: KvShape, side: Side = "k") -> int:
        """The bytes of the inner scheme."""
        if shape.head_dim & (shape.head_dim - 1):
            raise self.no_such_shape(shape, "head_dim a power of 2")
        return self.inner.row_bytes(shape, side)

    def _encode(self, x: np.ndarray, layer: int, side: Side) -> np.ndarray:
        rotated = rotate_hadamard(x)
        if not np.isfinite(rotated).all():  # x was finite, so the overflow is in the rotation
            raise NonFiniteError("does not fit float32 once rotated", kind="kv-overflow", got=float(np.abs(x).max()))
        return self.inner.store(rotated, layer, side)

    def _decode(self, rows: np.ndarray, shape: KvShape, layer: int, side: Side) -> np.ndarray:
        return rotate_hadamard(self.inner.load(rows, shape, layer, side))


def rotate_hadamard(x: np.ndarray) -> np.ndarray:
    """x H / sqrt(n) over the last axis of n = 2**m values: float32 in, float64 sums in fixed order, float32 out.

    H[i, j] is -1 if i & j has an odd number of one bits, else 1 (Sylvester's order). Values near the limit
    of float32 can overflow to infinity, which the scheme refuses.

    >>> rotate_hadamard(np.array([4, 0, 0, 0], np.float32)).tolist()
    [2.0, 2.0, 2.0, 2.0]
    >>> rotate_hadamard(np.array([1, 2, 3, 4], np.float32)).tolist()
    [5.0, -1.0, -2.0, 0.0]
    """
    n, y = x.shape[-1], x.astype(np.float64)
    step = 1
    while step < n:
        pairs = y.reshape(*x.shape[:-1], n // (2 * step), 2, step)
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        y = np.stack([a + b, a - b], axis=-2).reshape(x.shape)
        step *= 2
    with np.errstate(over="ignore"):
        return (y / math.sqrt(n)).astype(np.float32)
