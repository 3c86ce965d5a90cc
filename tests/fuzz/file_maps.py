"""Where the parts of a GGUF or SGLBITNT file lie, so that damage can be aimed.

Walks sound files only, and shares nothing with the readers under test.
"""

import struct
from dataclasses import dataclass, field
from typing import Literal

What = Literal["count", "length", "type", "size", "offset", "flag", "scale", "value"]

_SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True)
class Field:
    """A little-endian number in the file. what: its part in the layout."""

    at: int
    width: int
    what: What


@dataclass(frozen=True)
class Item:
    """A key-value pair, a tensor info, or a whole tensor. count: the field that counts its kind. key: of a pair."""

    begin: int
    end: int
    count: Field
    key: str = ""


@dataclass
class FileMap:
    """fields: of the header, in order. items: what may be doubled, dropped or swapped. payloads: (begin, end) of data.
    header: where the last item ends. start: where the data begins, after padding in GGUF. alignment: of the data.
    """

    fields: list[Field] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    payloads: list[tuple[int, int]] = field(default_factory=list)
    header: int = 0
    start: int = 0
    alignment: int = 1

    def note(self, data: bytes, at: int, width: int, what: What) -> tuple[int, int]:
        """Note a field; its value, and where it ends."""
        self.fields.append(Field(at, width, what))
        return int.from_bytes(data[at : at + width], "little"), at + width


def map_gguf(data: bytes, alignment: int = 32) -> FileMap:
    """Fields and items of a sound GGUF file."""
    found = FileMap(alignment=alignment)
    _, at = found.note(data, 4, 4, "type")  # the version
    tensors, at = found.note(data, at, 8, "count")
    pairs, at = found.note(data, at, 8, "count")
    tensor_count, pair_count = found.fields[-2:]
    for _ in range(pairs):
        begin = at
        key, at = _text(found, data, at, 8)
        kind, at = found.note(data, at, 4, "type")
        at = _value(found, data, at, kind)
        found.items.append(Item(begin, at, pair_count, key))
    offsets = []
    for _ in range(tensors):
        begin = at
        _, at = _text(found, data, at, 8)
        dims, at = found.note(data, at, 4, "count")
        for _ in range(dims):
            _, at = found.note(data, at, 8, "size")
        _, at = found.note(data, at, 4, "type")
        offset, at = found.note(data, at, 8, "offset")
        offsets.append(offset)
        found.items.append(Item(begin, at, tensor_count))
    found.header, found.start = at, -(-at // alignment) * alignment
    stops = [*sorted(offsets)[1:], len(data) - found.start]
    found.payloads = [(found.start + a, found.start + b) for a, b in zip(sorted(offsets), stops, strict=True)]
    return found


def map_sglbitnt(data: bytes, always: bool) -> FileMap:
    """Fields and items of a sound SGLBITNT file. always: the dialect that writes a scale where there is none."""
    found = FileMap()
    _, at = found.note(data, 8, 4, "type")  # the version
    _, at = _text(found, data, at, 4)
    tensors, at = found.note(data, at, 4, "count")
    count = found.fields[-1]
    for _ in range(tensors):
        begin = at
        _, at = _text(found, data, at, 4)
        _, at = found.note(data, at, 4, "type")
        dims, at = found.note(data, at, 4, "count")
        for _ in range(dims):
            _, at = found.note(data, at, 4, "size")
        flag, at = found.note(data, at, 4, "flag")
        if flag or always:
            _, at = found.note(data, at, 4, "scale")
        size, at = found.note(data, at, 8, "length")
        found.payloads.append((at, at + size))
        at += size
        found.items.append(Item(begin, at, count))
    found.header = found.start = at
    return found


def _text(found: FileMap, data: bytes, at: int, width: int) -> tuple[str, int]:
    length, at = found.note(data, at, width, "length")
    return data[at : at + length].decode(), at + length


def _value(found: FileMap, data: bytes, at: int, kind: int) -> int:
    if kind == _STRING:
        return _text(found, data, at, 8)[1]
    if kind == _ARRAY:
        item, at = found.note(data, at, 4, "type")
        count, at = found.note(data, at, 8, "count")
        if item == _STRING:
            for _ in range(count):
                length = struct.unpack_from("<Q", data, at)[0]  # one field an array would drown all others
                at += 8 + length
            return at
        return at + count * _SCALAR_BYTES[item]
    return found.note(data, at, _SCALAR_BYTES[kind], "value")[1]
