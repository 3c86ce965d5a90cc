"""True FP8, as in vLLM and SGLang: 8-bit floats E4M3 and E5M2, one scale per tensor, saturating.

Source: "FP8 Formats for Deep Learning" (arXiv 2209.05433) and, for E4M3 without infinities, the OCP 8-bit floating
point specification; scales as in vLLM ``quantization/kv_cache.py``: stored = fp8(x / scale), read = stored * scale.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tritgold.kv_cache.base import KvShape, Side
from tritgold.kv_cache.token_rows import TokenScheme
from tritgold.option_values import real_number


@dataclass(frozen=True)
class Fp8Format:
    """A sign bit, ``exponent_bits`` and ``mantissa_bits``. infinities: whether the highest exponent means inf and NaN.

    Without infinities only the last code is NaN (0x7F, and 0xFF); the other codes with its exponent are numbers.

    ====  =====  ==========  ==================  ==========  ============
    name  bias   largest     smallest normal     subnormal   special
    ====  =====  ==========  ==================  ==========  ============
    E4M3  7      448         2**-6               2**-9       NaN
    E5M2  15     57344       2**-14              2**-16      inf, NaN
    ====  =====  ==========  ==================  ==========  ============

    >>> E4M3.largest, E5M2.largest, E4M3.table()[[1, 8, 0x38]].tolist()
    (448.0, 57344.0, [0.001953125, 0.015625, 1.0])
    """

    exponent_bits: int
    mantissa_bits: int
    infinities: bool

    def magnitudes(self) -> np.ndarray:
        """float32: the values of the finite codes 0, 1, 2 ..., ascending."""
        steps, bias = 1 << self.mantissa_bits, (1 << self.exponent_bits - 1) - 1
        exponent, fraction = np.divmod(np.arange(128 - steps if self.infinities else 127), steps)
        # Subnormal numbers (exponent field 0) have no hidden bit, and use the exponent of the smallest normal numbers.
        significand = np.where(exponent == 0, fraction, steps + fraction)
        return np.ldexp(significand.astype(np.float32), np.maximum(exponent, 1) - bias - self.mantissa_bits)

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return float(self.magnitudes()[-1])

    def table(self) -> np.ndarray:
        """float32 [256]: the value of each code."""
        half = np.full(128, np.nan, np.float32)
        finite = self.magnitudes()
        half[: finite.size] = finite
        if self.infinities:
            half[finite.size] = np.inf
        return np.concatenate([half, -half])

    def encode(self, x: np.ndarray) -> np.ndarray:
        """float32 -> codes uint8 of the same shape: the nearest number; a tie goes to the even code.

        Larger magnitudes, infinity included, become the largest number; NaN becomes 0x7F or, if its sign bit is set,
        0xFF. -0.0 keeps its sign.

        >>> E4M3.encode(np.array([1.0, -1.0, 1.0625, 1.1875, 1e9], np.float32)).tolist()  # two ties between
        [56, 184, 56, 58, 126]
        """
        finite = self.magnitudes()
        middle = (finite[1:] + finite[:-1]) / 2  # exact: the sum of two neighbours needs one bit more
        magnitude = np.minimum(np.abs(x), finite[-1])
        below, above = np.searchsorted(middle, magnitude, "left"), np.searchsorted(middle, magnitude, "right")
        codes = below + ((above != below) & (below & 1))  # a tie: from the odd code up to the even one
        return (np.where(np.isnan(x), 0x7F, codes) | np.where(np.signbit(x), 0x80, 0)).astype(np.uint8)


E4M3 = Fp8Format(exponent_bits=4, mantissa_bits=3, infinities=False)
E5M2 = Fp8Format(exponent_bits=5, mantissa_bits=2, infinities=True)


@dataclass(frozen=True)
class Fp8(TokenScheme):
    """One byte per value. k_scale, v_scale: one factor for all layers, or a tuple with one for each.

    Checkpoints may contain scales; without them engines use 1. Large values saturate and are not refused.
    """

    format: ClassVar[Fp8Format]
    k_scale: float | tuple[float, ...] = 1.0
    v_scale: float | tuple[float, ...] = 1.0

    def __post_init__(self) -> None:
        for option in ("k_scale", "v_scale"):
            with np.errstate(over="ignore", under="ignore"):
                given = getattr(self, option)
                scales = given if isinstance(given, tuple) else (given,)
                scale = np.array([real_number(one) for one in scales], np.float64).astype(np.float32)
                usable = scale.size and ((scale > 0) & np.isfinite(scale * np.float32(self.format.largest))).all()
            if not usable:
                raise self.no_such_option(option, f"positive numbers, times {self.format.largest:.0f} within float32")

    def row_bytes(self, shape: KvShape, side: Side = "k") -> int:
        """One byte per value."""
        for scale in (self.k_scale, self.v_scale):
            if isinstance(scale, tuple) and len(scale) != shape.layers:
                raise self.no_such_shape(shape, f"a scale for each of {shape.layers} layers, not {len(scale)}")
        return shape.kv_heads * shape.head_dim

    def _encode(self, x: np.ndarray, layer: int, side: Side) -> np.ndarray:
        with np.errstate(over="ignore"):  # saturates like every value that is too large
            scaled = x / self._scale(layer, side)
        return self.format.encode(scaled).reshape(x.shape[0], x.shape[1] * x.shape[2])

    def _decode(self, rows: np.ndarray, shape: KvShape, layer: int, side: Side) -> np.ndarray:
        return self.format.table()[rows] * self._scale(layer, side)

    def _scale(self, layer: int, side: Side) -> np.float32:
        scale = self.k_scale if side == "k" else self.v_scale
        return np.float32(scale[layer] if isinstance(scale, tuple) else scale)


@dataclass(frozen=True)
class Fp8E4M3(Fp8):
    """Three bits of mantissa: relative steps of 1/8, up to 448."""

    name: ClassVar[str] = "fp8_e4m3"
    format: ClassVar[Fp8Format] = E4M3


@dataclass(frozen=True)
class Fp8E5M2(Fp8):
    """Two bits of mantissa: relative steps of 1/4, up to 57344; the upper half of a float16."""

    name: ClassVar[str] = "fp8_e5m2"
    format: ClassVar[Fp8Format] = E5M2
