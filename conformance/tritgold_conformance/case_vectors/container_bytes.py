"""Writes container files byte by byte, also invalid ones, which tritgold's writers refuse to make."""

import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
_LETTERS = dict(zip((U8, I8, U16, I16, U32, I32, F32, BOOL, U64, I64, F64), "BbHhIifBQqd", strict=True))


def safetensors(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    """A file from a header, as JSON or as raw bytes. length: the header length in the file, the true one by default."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def entry(dtype: str = "F32", shape: Any = (1,), offsets: Any = (0, 4)) -> dict[str, Any]:
    """A tensor in a safetensors header."""
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@dataclass(frozen=True)
class Tensor:
    """A tensor of a GGUF file, shape rows first. offset: as recorded; None puts it after the previous tensor."""

    name: str | bytes
    shape: tuple[int, ...]
    type_id: int
    data: bytes
    offset: int | None = None

    @classmethod
    def floats(cls, name: str, values: np.ndarray, offset: int | None = None) -> "Tensor":
        """A tensor of float32 values."""
        return cls(name, values.shape, 0, values.astype("<f4").tobytes(), offset)


def string(text: str | bytes) -> bytes:
    """A GGUF string."""
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def pair(key: str | bytes, kind: int, value: Any) -> bytes:
    """A key and its value; arrays, and values that do not fit the kind, are given as bytes."""
    if not isinstance(value, bytes):
        value = string(value) if kind == STRING else struct.pack(f"<{_LETTERS[kind]}", value)
    return string(key) + struct.pack("<I", kind) + value


def array(item: int, values: Iterable[Any], count: int | None = None) -> bytes:
    """The value of an array; ``count`` may be wrong."""
    items = [string(v) if item == STRING else struct.pack(f"<{_LETTERS[item]}", v) for v in values]
    return struct.pack("<IQ", item, len(items) if count is None else count) + b"".join(items)


def gguf(
    pairs: Iterable[bytes] = (),
    tensors: Iterable[Tensor] = (),
    *,
    alignment: int = 32,
    magic: bytes = b"GGUF",
    version: int = 3,
    pair_count: int | None = None,
    tensor_count: int | None = None,
    dims: int | None = None,
) -> bytes:
    """A file with tensors at multiples of ``alignment``; only a pair states the alignment. Counts may lie.

    Version and dims may be wrong too. Gaps between tensors are filled with ee, so that a reader that takes them for
    data is noticed.
    """
    pairs, tensors = list(pairs), list(tensors)
    infos, data = b"", bytearray()
    for tensor in tensors:
        offset = len(data) + -len(data) % alignment if tensor.offset is None else tensor.offset
        sizes = tuple(reversed(tensor.shape))
        infos += string(tensor.name) + struct.pack("<I", len(sizes) if dims is None else dims)
        infos += struct.pack(f"<{len(sizes)}QIQ", *sizes, tensor.type_id, offset)
        data += b"\xee" * (offset - len(data))
        data[offset : offset + len(tensor.data)] = tensor.data
    tensor_count = len(tensors) if tensor_count is None else tensor_count
    pair_count = len(pairs) if pair_count is None else pair_count
    head = magic + struct.pack("<IQQ", version, tensor_count, pair_count) + b"".join(pairs) + infos
    return head + bytes(-len(head) % alignment) + bytes(data) + bytes(-len(data) % alignment)
