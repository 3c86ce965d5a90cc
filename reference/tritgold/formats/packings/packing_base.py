"""What all packings have in common: what a code means, and what is refused. Each format is then its own byte map.

A packing knows two index formulas, codes -> bytes and bytes -> codes, and where a scale lies.
"""

import operator
import warnings
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from tritgold.errors import PackingError, TritgoldWarning
from tritgold.formats.untrusted_text import printable
from tritgold.ternary import TernaryTensor, check_trits

Bytes = bytes | bytearray | memoryview | np.ndarray


class Packing(ABC):
    """A layout of trits in bytes. Immutable; its options, where it has any, are its constructor's.

    name: the registry name. stores_scale: whether the scale lies in the packed bytes; where it does not (HF), it
    is a tensor of its own, ``pack`` leaves it out and ``unpack`` returns scale 1.
    invalid_code: what stands for no trit, in words, and invalid_kind: the kind of the error that refuses it.
    """

    name: ClassVar[str]
    stores_scale: ClassVar[bool]
    invalid_code: ClassVar[str] = "code 3"
    invalid_kind: ClassVar[str] = "code-3"

    def pack(self, trits: np.ndarray, scale: float | np.float32 | np.ndarray = 1.0) -> bytes:
        """Trits int8 [out, in] and their scale -> the bytes of the format. The argument is left untouched.

        Raises PackingError for anything but int8 -1, 0, +1, for a shape the format cannot hold, and for a scale
        that is not a real number (``scale-dtype``) or not finite.
        """
        check_trits(trits)
        self.packed_size(trits.shape)
        checked = TernaryTensor(trits, self._float32(scale))
        return self._encode((trits + np.int8(1)).view(np.uint8), checked.scale)

    def unpack(self, data: Bytes, shape: tuple[int, int], warn: bool = True) -> TernaryTensor:
        """The bytes of the format -> TernaryTensor [out, in]. Raises PackingError on what stands for no trit, on a
        wrong length and on a scale that is not finite; warns (TritgoldWarning) of ``odd_scales`` and ``odd_bytes``
        unless told not to.
        """
        shape = self._sizes(shape)
        self.check(data, shape)
        trits = self.codes(data, shape).view(np.int8) - np.int8(1)
        tensor = TernaryTensor(trits, self.scales(data, shape))
        if warn:
            oddities = odd_scales(tensor)
            if odd := self.odd_bytes(data, shape):
                oddities.append(f"{odd} bytes that decode, yet that no encoder writes")
            for oddity in oddities:
                warnings.warn(f"{self.name}: {oddity}", TritgoldWarning, stacklevel=2)
        return tensor

    def check(self, data: Bytes, shape: tuple[int, int]) -> None:
        """Refuse a wrong length and what stands for no trit (kind ``invalid_kind``), the packed bytes unmoved."""
        shape = self._sizes(shape)
        flat = self._checked(data, shape)
        count = self._count_invalid(flat, shape)
        if not count:
            return
        rows, columns = np.nonzero(self._decode(flat, shape) > 2)
        where = "in the padding after the trits"
        if rows.size:
            row, column = int(rows[0]), int(columns[0])
            where = f"first at [{row}, {column}], byte {self.byte_of(row, column, shape)}"
        raise PackingError(
            f"{self.name}: {self.invalid_code} stands for no trit; it occurs {count} times, {where}",
            kind=self.invalid_kind,
            hint="engines disagree on what they read there; the payload is damaged or of another layout",
        )

    def codes(self, data: Bytes, shape: tuple[int, int]) -> np.ndarray:
        """uint8 [out, in]: trit + 1, or more than 2 where the bytes hold no trit. For looking at a payload, not for
        arithmetic.
        """
        shape = self._sizes(shape)
        return self._decode(self._checked(data, shape), shape)

    def payload(self, data: Bytes, shape: tuple[int, int]) -> np.ndarray:
        """The bytes that hold trits, uint8 without the scales; a view of the data where they lie together."""
        return self._payload(self._checked(data, shape))

    def odd_bytes(self, data: Bytes, shape: tuple[int, int]) -> int:
        """How many bytes decode, yet are none that an encoder writes. 0 wherever a trit has one spelling."""
        return 0

    def scales(self, data: Bytes, shape: tuple[int, int]) -> np.ndarray:
        """The scale as stored: float32 [] or [out, blocks]; 1 where the format stores none."""
        return np.asarray(1.0, np.float32)

    @abstractmethod
    def packed_size(self, shape: tuple[int, ...]) -> int:
        """Bytes of a packed tensor, scale included, as a Python integer, whatever the integers of the shape.

        Raises PackingError ``packing-shape`` for a shape the format cannot hold, and for what is not a shape [out, in].
        """

    @abstractmethod
    def byte_of(self, row: int, column: int, shape: tuple[int, int]) -> int:
        """Index of the byte that holds a trit: for messages and for tests of the layout."""

    def _payload(self, data: np.ndarray) -> np.ndarray:
        return data

    def _count_invalid(self, data: np.ndarray, shape: tuple[int, int]) -> int:
        """How often the bytes, padding included, hold what stands for no trit: here pairs of bits that are 3."""
        return count_threes(self._payload(data))

    @abstractmethod
    def _encode(self, codes: np.ndarray, scale: np.ndarray) -> bytes: ...

    @abstractmethod
    def _decode(self, data: np.ndarray, shape: tuple[int, int]) -> np.ndarray: ...

    def _checked(self, data: Bytes, shape: tuple[int, int]) -> np.ndarray:
        """The data as a flat uint8 array of exactly the right length."""
        expected = self.packed_size(shape)
        try:
            flat = _flat_bytes(data)
        except TypeError:
            raise PackingError(
                f"{self.name}: packed data are bytes or an array of numbers",
                kind="packed-dtype",
                got=getattr(data, "dtype", type(data).__name__),
            ) from None
        if flat.size != expected:
            raise self._wrong_length(flat.size, expected, shape)
        return flat

    def _sizes(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """The shape as two Python integers, whose products cannot wrap as NumPy's do. Refuses all else."""
        rule = "a row count and a column count, each at least 1 and below 2**63"
        try:
            rows, columns = map(operator.index, shape)
        except (TypeError, ValueError):
            raise PackingError(
                f"{self.name}: no shape [out, in]", kind="packing-shape", got=_shown(shape), expected=rule
            ) from None
        if not (0 < rows < 2**63 and 0 < columns < 2**63):
            raise PackingError(
                f"{self.name} cannot hold this shape", kind="packing-shape", got=_shown(shape), expected=rule
            )
        return rows, columns

    def _float32(self, scale: float | np.float32 | np.ndarray) -> np.ndarray:
        """The scale as float32. A number beyond its range becomes inf, which TernaryTensor refuses by name."""
        try:
            if np.asarray(scale).dtype.kind in "cSU":  # NumPy would drop an imaginary part and read digits
                raise TypeError
            with np.errstate(over="ignore"):
                return np.asarray(scale, np.float32)
        except OverflowError:
            return np.asarray(np.inf, np.float32)
        except (TypeError, ValueError):
            raise PackingError(
                f"{self.name}: a scale is a real number, or an array of them",
                kind="scale-dtype",
                got=_shown(scale),
                expected="float32",
            ) from None

    def _wrong_length(self, size: int, expected: int, shape: tuple[int, int]) -> PackingError:
        return PackingError(
            f"{self.name}: wrong length for {shape[0]} x {shape[1]} trits",
            kind="packed-length",
            got=f"{size} bytes",
            expected=f"{expected} bytes",
        )

    def _no_such_shape(self, shape: tuple[int, ...], rule: str) -> PackingError:
        return PackingError(f"{self.name} cannot hold this shape", kind="packing-shape", got=list(shape), expected=rule)


def _flat_bytes(data: Bytes) -> np.ndarray:
    """uint8 [bytes]; copied only where the bytes do not lie one after another. TypeError where there are none."""
    if isinstance(data, np.ndarray):
        return np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    view = memoryview(data)
    return np.frombuffer(view if view.c_contiguous else view.tobytes(), np.uint8)


def _shown(value: object) -> str:
    """What a caller gave, for a message; its type alone where Python has no text for it (an endless integer)."""
    try:
        return printable(repr(value))
    except ValueError:
        return type(value).__name__


def count_threes(payload: np.ndarray) -> int:
    """How many of the four pairs of bits of each byte, uint8 of any shape, are 3.

    >>> count_threes(np.array([0b11_00_01_11, 0b10_10_10_10], np.uint8))
    2
    """
    # A pair is 3 when both its bits are set: the payload and itself shifted by one meet on even bits.
    threes = payload & (payload >> np.uint8(1)) & np.uint8(0x55)
    return int(np.unpackbits(threes).sum()) if threes.any() else 0


def check_option(name: str, option: str, value: object, allowed: tuple[int | str, ...]) -> None:
    """Refuse a value that an option of the packing cannot have (PackingError ``packing-option``).

    >>> check_option("i2_s", "block", 64, (64, 128))
    """
    if type(value) not in (int, str) or value not in allowed:
        expected = " or ".join(map(str, allowed))
        raise PackingError(f"{name}: {option}", kind="packing-option", got=repr(value), expected=expected)


def odd_scales(tensor: TernaryTensor) -> list[str]:
    """What is legal about the scales of a tensor, yet odd enough to say: a negative one, a 0 over non-zero trits.

    >>> odd_scales(TernaryTensor(np.array([[1, 0]], np.int8), np.asarray(np.float32(0))))
    ['a scale of 0 silences trits that are not 0']
    """
    scale, said = tensor.scale, []
    if (scale < 0).any():
        said.append(f"negative scale {scale.min()}: legal, yet no quantiser writes it")
    blocks = tensor.trits.reshape(tensor.shape[0], scale.shape[1], -1) if scale.ndim else tensor.trits
    if (scale == 0).any() and ((scale == 0) & blocks.any(axis=2 if scale.ndim else None)).any():
        said.append("a scale of 0 silences trits that are not 0")
    return said


def odd_rows(tensor: TernaryTensor) -> str | None:
    """What is odd about scales of rows, of a whole weight of a model: TriLM has a few, each for a block of rows.

    >>> tensor = TernaryTensor(np.ones((64, 2), np.int8), np.arange(64, dtype=np.float32)[:, None])
    >>> odd_rows(tensor)[:45]
    '64 scales in 64 rows, some for a row or two: '
    """
    if tensor.scale.ndim == 0:
        return None
    scales = tensor.scale[tensor.trits.any(axis=1), 0]
    ends = np.flatnonzero(scales[1:] != scales[:-1])
    runs = np.diff([-1, *ends.tolist(), len(scales) - 1])
    if not ends.size or runs.min() > max(2, len(scales) // 64):
        return None
    return (
        f"{np.unique(scales).size} scales in {len(scales)} rows, some for a row or two: one of them is damaged, or a"
        " quantiser of row maxima was given masters that were not made ternary first"
    )
