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
    """A layout of trits in bytes. Stateless; code 0, 1, 2 stand for -1, 0, +1 and code 3 for nothing.

    name: the registry name. stores_scale: whether the scale lies in the packed bytes; where it does not (HF), it
    is a tensor of its own, ``pack`` leaves it out and ``unpack`` returns scale 1.
    """

    name: ClassVar[str]
    stores_scale: ClassVar[bool]

    def pack(self, trits: np.ndarray, scale: float | np.ndarray = 1.0) -> bytes:
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
        """The bytes of the format -> TernaryTensor [out, in]. Raises PackingError on code 3, on a wrong length and
        on a scale that is not finite; warns (TritgoldWarning) of ``odd_scales`` unless told not to.
        """
        self.check(data, shape)
        trits = self.codes(data, shape).view(np.int8) - np.int8(1)
        tensor = TernaryTensor(trits, self.scales(data, shape))
        if warn:
            for oddity in odd_scales(tensor):
                warnings.warn(f"{self.name}: {oddity}", TritgoldWarning, stacklevel=2)
        return tensor

    def check(self, data: Bytes, shape: tuple[int, int]) -> None:
        """Refuse code 3 (PackingError ``code-3``) and a wrong length, looking at the packed bytes in place."""
        payload = self._payload(self._checked(data, shape))
        # A pair holds 3 when both its bits are set: the payload and itself shifted by one meet on even bits.
        pairs = payload & (payload >> np.uint8(1)) & np.uint8(0x55)
        if not pairs.any():
            return
        rows, columns = np.nonzero(self.codes(data, shape) > 2)
        where = "in the padding behind the last row"
        if rows.size:
            row, column = int(rows[0]), int(columns[0])
            where = f"first at [{row}, {column}], byte {self.byte_of(row, column, shape)}"
        raise PackingError(
            f"{self.name}: code 3 stands for no trit; it occurs {int(np.unpackbits(pairs).sum())} times, {where}",
            kind="code-3",
            hint="engines read it as +2 or as 0 and disagree; the payload is damaged or of another layout",
        )

    def codes(self, data: Bytes, shape: tuple[int, int]) -> np.ndarray:
        """The raw 2-bit codes, uint8 [out, in], code 3 included: for looking at a payload, not for arithmetic."""
        return self._decode(self._checked(data, shape), shape)

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
        """The bytes that hold trits, without scales."""
        return data

    @abstractmethod
    def _encode(self, codes: np.ndarray, scale: np.ndarray) -> bytes: ...

    @abstractmethod
    def _decode(self, data: np.ndarray, shape: tuple[int, int]) -> np.ndarray: ...

    def _checked(self, data: Bytes, shape: tuple[int, int]) -> np.ndarray:
        """The data as a flat uint8 array of exactly the right length."""
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
