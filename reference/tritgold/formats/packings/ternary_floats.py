"""F32, F16, BF16 as packings: floats that are trit x scale, as engines without a ternary type store them.

Nothing is quantised here: a matrix with two magnitudes is not ternary and is refused.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tritgold.errors import PackingError
from tritgold.formats.packings.packing_base import Bytes, Packing, check_option
from tritgold.rounding import bf16_to_f32, f32_to_bf16


@dataclass(frozen=True)
class _Floats(Packing):
    """Row-major little-endian words, each a sign bit and a magnitude; all weights that are not zero have one magnitude.

    scales_of: ``tensor``, or ``rows`` if each row has its own magnitude (TriLM unpacked).

    Unpacking compares the words as integers: the scale is exactly that magnitude, and 0 if every weight is zero.
    -0 is a zero. A negative scale unpacks as its magnitude with the trits negated: the same weights.

    ``pack`` raises PackingError ``scale-rounded``, ``scale-overflow`` or ``scale-underflow`` for a scale that the
    type does not hold exactly, ``scale-shape`` for a wrong number of scales, ``scale-zero`` for a scale of 0 with
    trits that are not zero. ``check`` and ``unpack`` raise ``weight-non-finite`` and ``not-ternary``, with the first
    bad weight.
    """

    stores_scale: ClassVar[bool] = True
    invalid_kind: ClassVar[str] = "not-ternary"
    word: ClassVar[str]
    sign: ClassVar[int]
    infinity: ClassVar[int]  # from this magnitude on, words are infinite or NaN
    scales_of: str = "tensor"

    def __post_init__(self) -> None:
        check_option(self.name, "scales_of", self.scales_of, ("tensor", "rows"))

    def packed_size(self, shape: tuple[int, ...]) -> int:
        """out * in words; any shape."""
        shape = self._sizes(shape)
        return shape[0] * shape[1] * np.dtype(self.word).itemsize

    def byte_of(self, row: int, column: int, shape: tuple[int, int]) -> int:
        """The first byte of the word."""
        return (row * shape[1] + column) * np.dtype(self.word).itemsize

    def check(self, data: Bytes, shape: tuple[int, int]) -> None:
        """Refuse a wrong length, NaN, infinity, and a second magnitude (in one row, with ``scales_of="rows"``)."""
        words = self._checked(data, shape).view(self.word).reshape(shape)
        magnitudes, one = self._magnitudes(words)
        wild = magnitudes >= self.infinity
        offends = wild if wild.any() else (magnitudes != 0) & (magnitudes != one)
        if not offends.any():
            return
        first = int(np.argmax(offends))
        row, column = divmod(first, shape[1])
        value = self._widen(words.reshape(-1)[first : first + 1])[0]
        place = f"[{row}, {column}], byte {self.byte_of(row, column, shape)}"
        if wild.any():
            raise PackingError(f"{self.name}: not finite at {place}", kind="weight-non-finite", got=value)
        scales = self.scales(data, shape)
        raise PackingError(
            f"{self.name}: not ternary up to one scale; the first weight of a second magnitude is at {place}",
            kind="not-ternary",
            got=value,
            expected=f"0 or +-{scales[row, 0] if scales.ndim else scales}",
            hint="ordinary weights must be ternarised first: --quantize absmean",
        )

    def scales(self, data: Bytes, shape: tuple[int, int]) -> np.ndarray:
        """The magnitude, float32 [], or [out, 1] with ``scales_of="rows"``; 0 if all weights are zero."""
        one = self._magnitudes(self._checked(data, shape).view(self.word).reshape(shape))[1]
        return self._widen(one.reshape(-1)).reshape(one.shape)

    def _encode(self, codes: np.ndarray, scale: np.ndarray) -> bytes:
        if scale.ndim and (self.scales_of == "tensor" or scale.shape[1] > 1):
            expected = "[]" if self.scales_of == "tensor" else f"[] or [{codes.shape[0]}, 1]"
            what = f"{self.name} stores one scale a {self.scales_of.removesuffix('s')}"
            raise PackingError(what, kind="scale-shape", got=list(scale.shape), expected=expected)
        if ((scale == 0) & (codes != 1)).any():
            raise PackingError(f"{self.name}: a scale of 0 would erase trits", kind="scale-zero", got=0.0)
        values = scale.reshape(-1, 1)
        plus = np.array([self._exact_word(np.abs(value)) for value in values], self.word).reshape(-1, 1)
        minus = plus | np.array(self.sign, self.word)
        up, down = np.where(values >= 0, plus, minus), np.where(values >= 0, minus, plus)
        if scale.ndim == 0:
            return np.array([down[0, 0], 0, up[0, 0]], self.word)[codes].tobytes()
        return np.where(codes == 1, np.array(0, self.word), np.where(codes == 2, up, down)).astype(self.word).tobytes()

    def _decode(self, data: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        words = data.view(self.word).reshape(shape)
        magnitudes, one = self._magnitudes(words)
        if not one.any():
            return np.ones(shape, np.uint8)
        # Booleans as bytes 0 and 1. Code = 3, minus 2 for a zero, minus 1 for the magnitude, minus 2 more if negative.
        zero = (magnitudes == 0).view(np.uint8)
        same = (magnitudes == np.where(one < self.infinity, one, 0).astype(self.word)).view(np.uint8) & ~zero
        minus = (words >= self.sign).view(np.uint8) & same
        return np.uint8(3) - (zero << 1) - same - (minus << 1)

    def _magnitudes(self, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Words [out, in] without their signs; and the first non-zero one, [] or [out, 1], 0 if all are zero."""
        magnitudes = words & np.array(self.sign - 1, self.word)
        if self.scales_of == "rows":
            first = np.argmax(magnitudes != 0, axis=1, keepdims=True)
            return magnitudes, np.take_along_axis(magnitudes, first, axis=1)
        return magnitudes, magnitudes.reshape(-1)[np.argmax(magnitudes != 0)].reshape(())

    def _exact_word(self, scale: np.ndarray) -> int:
        word = int(self._narrow(scale.reshape(1))[0])
        kept = self._widen(np.array([word], self.word))[0]
        if kept == scale:
            return word
        kind = "overflow" if word >= self.infinity else "underflow" if word == 0 else "rounded"
        raise PackingError(
            f"{self.name} does not hold this scale exactly",
            kind=f"scale-{kind}",
            got=scale,
            expected=f"a scale such as {kept}",
            hint="f32 holds every scale",
        )

    @abstractmethod
    def _widen(self, words: np.ndarray) -> np.ndarray:
        """Words [n] -> float32 [n], exact."""

    @abstractmethod
    def _narrow(self, values: np.ndarray) -> np.ndarray:
        """float32 [n] -> words [n], rounded half to even; too large values become infinity."""


@dataclass(frozen=True)
class F32(_Floats):
    """float32: 1 sign bit, 8 of exponent, 23 of fraction. Holds every scale.

    >>> packed = F32().pack(np.array([[1, 0, -1]], np.int8), 0.37)
    >>> np.frombuffer(packed, "<f4").tolist() == [float(np.float32(w)) for w in (0.37, 0, -0.37)]
    True
    """

    name: ClassVar[str] = "f32"
    word: ClassVar[str] = "<u4"
    sign: ClassVar[int] = 0x80000000
    infinity: ClassVar[int] = 0x7F800000

    def _widen(self, words: np.ndarray) -> np.ndarray:
        return words.view("<f4").astype(np.float32)

    def _narrow(self, values: np.ndarray) -> np.ndarray:
        return values.astype("<f4").view(self.word)


@dataclass(frozen=True)
class F16(_Floats):
    """IEEE float16: 1 sign bit, 5 of exponent, 10 of fraction. 11 significant bits from 2**-14 to 65504, fewer below.

    >>> F16().pack(np.array([[1, 0, -1]], np.int8), 0.375).hex()
    '0036000000b6'
    """

    name: ClassVar[str] = "f16"
    word: ClassVar[str] = "<u2"
    sign: ClassVar[int] = 0x8000
    infinity: ClassVar[int] = 0x7C00

    def _widen(self, words: np.ndarray) -> np.ndarray:
        return words.view("<f2").astype(np.float32)

    def _narrow(self, values: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", under="ignore"):
            return values.astype("<f2").view(self.word)


@dataclass(frozen=True)
class BF16(_Floats):
    """bfloat16, the upper half of a float32: its range with 8 significant bits.

    >>> BF16().pack(np.array([[1, 0, -1]], np.int8), 0.375).hex()
    'c03e0000c0be'
    """

    name: ClassVar[str] = "bf16"
    word: ClassVar[str] = "<u2"
    sign: ClassVar[int] = 0x8000
    infinity: ClassVar[int] = 0x7F80

    def _widen(self, words: np.ndarray) -> np.ndarray:
        return bf16_to_f32(words)

    def _narrow(self, values: np.ndarray) -> np.ndarray:
        return f32_to_bf16(values)
