"""What all packings share: the meaning of codes, and what is refused. Each format then adds only its byte map.

A packing implements codes -> bytes, bytes -> codes, and where its scale is stored.
"""

import operator
import warnings
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from tritgold.errors import PackingError, TritgoldWarning
from tritgold.formats.packings.scale_oddities import odd_scales
from tritgold.formats.untrusted_text import printable
from tritgold.ternary import TernaryTensor, check_trits

Bytes = bytes | bytearray | memoryview | np.ndarray


class Packing(ABC):
    """A layout of trits in bytes. Immutable; its options, if it has any, are the arguments of its constructor.

    name: in PACKINGS. stores_scale: whether the packed bytes contain the scale; if not (HF), the scale is a separate
    tensor, ``pack`` leaves it out and ``unpack`` returns scale 1.
    invalid_code: in words, the codes that are not a trit. invalid_kind: the kind of the error that refuses them.
    """

    name: ClassVar[str]
    stores_scale: ClassVar[bool]
    invalid_code: ClassVar[str] = "code 3"
    invalid_kind: ClassVar[str] = "code-3"

    def pack(self, trits: np.ndarray, scale: float | np.float32 | np.ndarray = 1.0) -> bytes:
        """Trits int8 [out, in] and their scale -> the bytes of the format. The trits are not changed.

        Raises PackingError for anything but int8 -1, 0, +1, for a shape the format cannot hold, and for a scale
        that is not a real number (``scale-dtype``) or not finite.
        """
        check_trits(trits)
        self.packed_size(trits.shape)
        checked = TernaryTensor(trits, self._float32(scale))
        return self._encode((trits + np.int8(1)).view(np.uint8), checked.scale)

    def unpack(self, data: Bytes, shape: tuple[int, int], warn: bool = True) -> TernaryTensor:
        """The bytes of the format -> TernaryTensor [out, in].

        Raises PackingError for a code that is not a trit, a wrong length, or a scale that is not finite. With ``warn``,
        warns (TritgoldWarning) of ``odd_scales`` and ``odd_bytes``.
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
        """Refuse a wrong length and codes that are not a trit (``invalid_kind``), without unpacking a valid payload."""
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
            f"{self.name}: {self.invalid_code} is not a trit; it occurs {count} times, {where}",
            kind=self.invalid_kind,
            hint="engines disagree on what they read there; the payload is damaged or of another layout",
        )

    def codes(self, data: Bytes, shape: tuple[int, int]) -> np.ndarray:
        """uint8 [out, in]: trit + 1, or more than 2 where the code is not a trit; to inspect a payload."""
        shape = self._sizes(shape)
        return self._decode(self._checked(data, shape), shape)

    def row_codes(self, data: Bytes, shape: tuple[int, int], rows: slice) -> np.ndarray | None:
        """``codes`` of consecutive rows, first to last, of a valid payload; no other row is unpacked.

        None for a layout in which no row has bytes of its own.
        """
        return self._decode_rows(self._checked(data, shape), shape, rows)

    def payload(self, data: Bytes, shape: tuple[int, int]) -> np.ndarray:
        """The bytes that hold trits, uint8, without the scales; a view of the data if they are contiguous."""
        return self._payload(self._checked(data, shape))

    def odd_bytes(self, data: Bytes, shape: tuple[int, int]) -> int:
        """Number of bytes that decode but that no encoder writes. 0 for a format with only one code for each trit."""
        return 0

    def scales(self, data: Bytes, shape: tuple[int, int]) -> np.ndarray:
        """The scale as stored: float32 [] or [out, blocks]; 1 if the format does not store it."""
        return np.asarray(1.0, np.float32)

    @abstractmethod
    def packed_size(self, shape: tuple[int, ...]) -> int:
        """Bytes of a packed tensor, scale included. A Python integer even if the shape has NumPy integers.

        Raises PackingError ``packing-shape`` for a shape the format cannot hold, and for anything but two sizes.
        """

    @abstractmethod
    def byte_of(self, row: int, column: int, shape: tuple[int, int]) -> int:
        """Index of the byte that holds a trit; used in messages and in tests of the layout."""

    def _payload(self, data: np.ndarray) -> np.ndarray:
        return data

    def _count_invalid(self, data: np.ndarray, shape: tuple[int, int]) -> int:
        """Number of codes in the bytes, padding included, that are not a trit: by default pairs of bits that are 3."""
        return count_threes(self._payload(data))

    def _decode_rows(self, data: np.ndarray, shape: tuple[int, int], rows: slice) -> np.ndarray | None:
        size = self._bytes_of_row(shape[1])
        if size is None:
            return None
        end = rows.stop * size + data.size - shape[0] * size  # with the bytes after the rows, which _decode expects
        return self._decode(data[rows.start * size : end], (rows.stop - rows.start, shape[1]))

    def _bytes_of_row(self, columns: int) -> int | None:
        """Bytes of a row, where the rows follow each other and share no byte; else None."""
        return None

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
        """The shape as two Python integers, whose product cannot overflow as NumPy's does. Refuses anything else."""
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
        """The scale as float32. A number beyond its range becomes inf, which TernaryTensor refuses."""
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
    """uint8 [bytes]; copied only if the bytes are not contiguous. TypeError if ``data`` has no bytes."""
    if isinstance(data, np.ndarray):
        return np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    view = memoryview(data)
    return np.frombuffer(view if view.c_contiguous else view.tobytes(), np.uint8)


def _shown(value: object) -> str:
    """The caller's value for a message; only its type if Python cannot print it (an integer of too many digits)."""
    try:
        return printable(repr(value))
    except ValueError:
        return type(value).__name__


def count_threes(payload: np.ndarray) -> int:
    """The number of bit pairs, four in each byte, that are 3. payload: uint8 of any shape.

    >>> count_threes(np.array([0b11_00_01_11, 0b10_10_10_10], np.uint8))
    2
    """
    # A pair is 3 if both its bits are set: AND the payload with itself shifted by one, and look at the even bits.
    threes = payload & (payload >> np.uint8(1)) & np.uint8(0x55)
    return int(np.unpackbits(threes).sum()) if threes.any() else 0


def check_option(name: str, option: str, value: object, allowed: tuple[int | str, ...]) -> None:
    """Refuse a value that an option of the packing cannot have (PackingError ``packing-option``).

    >>> check_option("i2_s", "block", 64, (64, 128))
    """
    if type(value) not in (int, str) or value not in allowed:
        expected = " or ".join(map(str, allowed))
        raise PackingError(f"{name}: {option}", kind="packing-option", got=repr(value), expected=expected)
