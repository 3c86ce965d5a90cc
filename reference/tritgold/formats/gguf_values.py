"""Reads the values of a GGUF file one after the other: scalars, strings, arrays. Every length is checked first."""

import struct
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from tritgold.errors import FormatError
from tritgold.formats.container import map_file
from tritgold.formats.untrusted_text import printable

# Value type number -> type letter, the same in struct and NumPy.
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRUCTS = {letter: struct.Struct(f"<{letter}") for letter in SCALARS.values()}
UINT32, _BOOL, STRING, ARRAY = 4, 7, 8, 9


class GgufValues:
    """A mapped file and a position in it. at: bytes read so far. data: the whole file, uint8.

    Every method raises FormatError with the file's path for a value that is damaged or does not end within the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = map_file(path)
        self.raw = memoryview(self.data)  # many small reads: a tokenizer has 400,000 strings
        self.at = 0

    def value(self, type_id: int, key: str) -> Any:
        """The value of a metadata key: int, float, bool, str, list of str, or NumPy array (not copied)."""
        if type_id == STRING:
            return self.string(f"value of {key!r}")
        if type_id in SCALARS:
            return self._array(type_id, 1, key)[0].item()
        if type_id != ARRAY:
            self.refuse("unknown value type", "value-type", f"key {key!r}", type_id, "0 to 12")
        item, count = self.scalar("I", f"item type of {key!r}"), self.scalar("Q", f"length of {key!r}")
        if item == STRING:
            if count * 8 > self.data.size - self.at:
                self.refuse("array cannot fit into the file", "count", f"key {key!r}", count)
            return [self.string(f"an item of {key!r}") for _ in range(count)]
        if item not in SCALARS:
            self.refuse("unknown array item type", "value-type", f"key {key!r}", item, "0 to 8 or 10 to 12")
        return self._array(item, count, key)

    def _array(self, item: int, count: int, key: str) -> np.ndarray:
        dtype = np.dtype(f"<{SCALARS[item]}")
        at = self.take(count * dtype.itemsize, f"value of {key!r}")
        raw = self.data[at : at + count * dtype.itemsize]
        if item == _BOOL and (raw > 1).any():
            self.refuse("is not a bool", "value", f"key {key!r}", int(raw.max()), "0 or 1")
        return raw.view(dtype)

    def take(self, count: int, what: str) -> int:
        """Step over ``count`` bytes; returns their offset. Refuses (``truncated``) if the file ends before."""
        if count > len(self.raw) - self.at:
            left = len(self.raw) - self.at
            self.refuse("ends too early", "truncated", what, f"{left} bytes left at byte {self.at}", count)
        self.at += count
        return self.at - count

    def scalar(self, letter: str, what: str) -> Any:
        """One little-endian number. letter: its type in ``struct``. what: its name in an error."""
        layout = _STRUCTS[letter]
        return layout.unpack_from(self.raw, self.take(layout.size, what))[0]

    def string(self, what: str) -> str:
        """A string: uint64 length, then UTF-8."""
        length = self.scalar("Q", f"length of {what}")
        at = self.take(length, what)
        try:
            return str(self.raw[at : at + length], "utf-8")
        except UnicodeDecodeError as error:
            self.refuse(f"is not UTF-8: {error.reason}", "key-utf8", f"{what} at byte {at}")

    def refuse(
        self,
        message: str,
        kind: str,
        thing: str | None,
        got: object = None,
        expected: object = None,
        hint: str | None = None,
    ) -> NoReturn:
        """Raise a FormatError about this file; untrusted texts are made printable."""
        message, thing = printable(message), thing and printable(thing)
        got = got if got is None or isinstance(got, int) else printable(got)
        raise FormatError(message, kind=kind, file=self.path, thing=thing, got=got, expected=expected, hint=hint)
