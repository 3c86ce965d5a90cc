"""TurboQuant: a random rotation makes the coordinates of any vector nearly normal, so one codebook fits all.

Source: "TurboQuant: Online Vector Quantization with Near-optimal Distortion Rate" (arXiv 2504.19874), algorithms 1 (for
the squared error) and 2 (for inner products). The random matrices are not standardised: codes of another
implementation differ, but their statistics are the same.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Literal

import numpy as np

from tritgold.counter_random import MAX_SEED
from tritgold.kv_cache.base import KvShape, Side, as_half
from tritgold.kv_cache.bit_packing import pack_codes, packed_bytes, unpack_codes
from tritgold.kv_cache.random_matrices import gaussian, orthogonal, times
from tritgold.kv_cache.token_rows import TokenScheme
from tritgold.option_values import is_count
from tritgold.portable_math import pairwise_sum

# Lloyd and Max's quantisers of N(0, 1), positive half, by bits. Mean squared errors 0.3634, 0.1175, 0.0345, 0.0095.
CENTROIDS: dict[int, tuple[float, ...]] = {
    1: (0.7979,),
    2: (0.4528, 1.5104),
    3: (0.2451, 0.7560, 1.3439, 2.1519),
    4: (0.1284, 0.3880, 0.6568, 0.9423, 1.2562, 1.6180, 2.0690, 2.7326),
}


@dataclass(frozen=True)
class TurboQuant(TokenScheme):
    """``bits`` per coordinate, and the norm of each head vector as float16.

    ::

        n = |x|, u = x / n, y = P u, P orthogonal [head_dim, head_dim] from the seed
        code = the centroid c nearest to y * sqrt(head_dim), the upper one at a tie;  value = n * P^T c / sqrt(head_dim)

    keys: ``mse`` stores keys like values; their inner products with queries are then too small on average (slope 0.88
    at 2 bits). ``product`` makes them unbiased: the codes have one bit less per coordinate, and the residual
    r = u - u' is stored as its norm g and s = sign(S r), S Gaussian;
    value = n * (u' + sqrt(pi / 2) / head_dim * g * S^T s).

    A row has for each head: packed codes, n; with ``product`` also the packed signs (1 is positive or 0) and g. A head
    whose norm rounds to 0 in float16 is read as zeros.
    """

    name: ClassVar[str] = "turboquant"
    bits: int = 4
    keys: Literal["mse", "product"] = "mse"
    seed: int = 0

    def __post_init__(self) -> None:
        if not is_count(self.bits, 1, max(CENTROIDS)):
            raise self.no_such_option("bits", "1 to 4")
        if self.keys not in ("mse", "product"):
            raise self.no_such_option("keys", "mse or product")
        if self.keys == "product" and self.bits == 1:
            raise self.no_such_option("bits", "2 to 4 with keys = product, whose signs take one of them")
        if not is_count(self.seed, 0, MAX_SEED):
            raise self.no_such_option("seed", f"0 to {MAX_SEED}")

    def row_bytes(self, shape: KvShape, side: Side = "k") -> int:
        """Codes and norms of each head."""
        if shape.head_dim < 2:
            raise self.no_such_shape(shape, "head_dim 2 or more: one coordinate has nothing to be rotated into")
        return shape.kv_heads * self._head_bytes(shape.head_dim, side)

    def _product(self, side: Side) -> bool:
        return side == "k" and self.keys == "product"

    def _head_bytes(self, head_dim: int, side: Side) -> int:
        if self._product(side):
            return packed_bytes(head_dim, self.bits - 1) + 2 + packed_bytes(head_dim, 1) + 2
        return packed_bytes(head_dim, self.bits) + 2

    def _encode(self, x: np.ndarray, layer: int, side: Side) -> np.ndarray:
        tokens, heads, width = x.shape
        wide = x.astype(np.float64)
        norm = np.sqrt(pairwise_sum(wide * wide))[..., None]
        unit = wide / np.where(norm == 0, 1.0, norm)
        bits = self.bits - 1 if self._product(side) else self.bits
        levels = _levels(bits)
        scaled = times(unit, _rotation(self.seed, width)) * math.sqrt(width)
        codes = np.searchsorted((levels[1:] + levels[:-1]) / 2, scaled, "right").astype(np.uint8)
        parts = [pack_codes(codes, bits), _half_bytes(norm)]
        if self._product(side):
            residual = unit - self._unit(codes, bits)
            signs = times(residual, _projection(self.seed, width)) >= 0
            size = np.sqrt(pairwise_sum(residual * residual))[..., None]
            parts += [pack_codes(signs.astype(np.uint8), 1), _half_bytes(size)]
        return np.concatenate(parts, axis=2).reshape(tokens, heads * self._head_bytes(width, side))

    def _decode(self, rows: np.ndarray, shape: KvShape, layer: int, side: Side) -> np.ndarray:
        width = shape.head_dim
        packed = rows.reshape(rows.shape[0], shape.kv_heads, self._head_bytes(width, side))
        bits = self.bits - 1 if self._product(side) else self.bits
        at = packed_bytes(width, bits)
        unit, norm = self._unit(unpack_codes(packed[..., :at], bits, width), bits), _read_half(packed, at)
        if self._product(side):
            signs = unpack_codes(packed[..., at + 2 : -2], 1, width) * 2.0 - 1.0
            size = _read_half(packed, packed.shape[-1] - 2)
            back = times(signs, _projection(self.seed, width).T)
            unit = unit + back * size * (math.sqrt(math.pi / 2) / width)
        return (unit * norm).astype(np.float32)

    def _unit(self, codes: np.ndarray, bits: int) -> np.ndarray:
        """u' = P^T c / sqrt(head_dim), the codes' approximation of u: float64 of the same shape."""
        width = codes.shape[-1]
        return times(_levels(bits)[codes] / math.sqrt(width), _rotation(self.seed, width).T)


def _levels(bits: int) -> np.ndarray:
    """All centroids, ascending: float64 [2**bits]."""
    positive = np.array(CENTROIDS[bits])
    return np.concatenate([-positive[::-1], positive])


def _half_bytes(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # a norm that overflows float32 overflows float16 too, where it is refused
        return as_half(x.astype(np.float32)).view(np.uint8)


def _read_half(packed: np.ndarray, at: int) -> np.ndarray:
    return np.ascontiguousarray(packed[..., at : at + 2]).view("<f2").astype(np.float64)


@cache
def _rotation(seed: int, width: int) -> np.ndarray:
    return orthogonal(seed, width)


@cache
def _projection(seed: int, width: int) -> np.ndarray:
    return gaussian(seed, (width, width), stream=1)
