"""What all packings have in common: what a code means, and what is refused. Each format is then its own byte map.

A packing knows two index formulas, codes -> bytes and bytes -> codes, and where a scale lies.
"""

import warnings
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from tritgold.errors import PackingError, TritgoldWarning
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
        that is not finite.
        """
        check_trits(trits)
        self.packed_size(trits.shape)
        with np.errstate(over="ignore"):  # a float64 beyond float32 becomes inf, which is refused by name
            checked = TernaryTensor(trits, np.asarray(scale, np.float32))
        return self._encode((trits + np.int8(1)).view(np.uint8), checked.scale)

    def unpack(self, data: Bytes, shape: tuple[int, int], warn: bool = True) -> TernaryTensor:
        """The bytes of the format -> TernaryTensor [out, in]. Raises PackingError on what stands for no trit, on a
        wrong length and on a scale that is not finite; warns (TritgoldWarning) of ``odd_scales`` and ``odd_bytes``
        unless told not to.
        """
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
        flat = self._checked(data, shape)
        count = self._count_invalid(flat, shape)
        if not count:
            return
        rows, columns = np.nonzero(self._decode(flat, shape) > 2)
        where = "in the padding behind the trits"
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
        """Bytes of a packed tensor, scale included. Raises PackingError for a shape the format cannot hold."""

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
        if min(shape) < 1:
            raise self._no_such_shape(shape, "at least one row and one column")
        flat = data.reshape(-1).view(np.uint8) if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
        expected = self.packed_size(shape)
        if flat.size != expected:
            raise self._wrong_length(flat.size, expected, shape)
        return flat

    def _wrong_length(self, size: int, expected: int, shape: tuple[int, int]) -> PackingError:
        return PackingError(
            f"{self.name}: wrong length for {shape[0]} x {shape[1]} trits",
            kind="packed-length",
            got=f"{size} bytes",
            expected=f"{expected} bytes",
        )

    def _no_such_shape(self, shape: tuple[int, ...], rule: str) -> PackingError:
        return PackingError(f"{self.name} cannot hold this shape", kind="packing-shape", got=list(shape), expected=rule)


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
