"""GGUF writer: version 3, little-endian, one tensor at a time; the layout is described in gguf_file.py.

PyPI's gguf cannot write type 36 (I2_S) and similar ones, and keeps every tensor in memory until the end.
"""

import struct
from collections.abc import Iterable, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tritgold.errors import OutputError
from tritgold.formats.container import PlannedTensor
from tritgold.formats.ggml_types import tensor_bytes, type_number
from tritgold.formats.gguf_file import ALIGNMENT, DEFAULT_ALIGNMENT, MAX_DIMS, align
from tritgold.formats.gguf_values import ARRAY, SCALARS, STRING
from tritgold.formats.untrusted_text import printable
from tritgold.formats.whole_file import listed, write_chunks, written_whole

Value = bool | int | float | str | list[str] | np.ndarray | np.integer[Any]

MAX_KEY, MAX_NAME = 65_535, 63  # bytes: docs/gguf.md; GGML_MAX_NAME without its final zero byte
_BOOL, _UINT32, _INT32, _FLOAT32, _UINT64, _INT64 = 7, 4, 5, 6, 10, 11
# Integer types with their limits; the first type that holds a value is used.
_INTEGERS = ((_UINT32, 0, 2**32), (_INT32, -(2**31), 0), (_UINT64, 0, 2**64), (_INT64, -(2**63), 0))
_ITEM_TYPES = {np.dtype(f"<{letter}"): number for number, letter in SCALARS.items()}


def write_gguf(
    path: Path,
    metadata: Mapping[str, Value],
    tensors: Iterable[PlannedTensor],
    alignment: int = DEFAULT_ALIGNMENT,
    architecture: str | None = None,
) -> None:
    """Write one file, keys and tensors in the order given; it is written completely or not at all.

    metadata: bool -> BOOL; int -> UINT32, INT32 if negative, 64 bits if too large; float -> FLOAT32;
    str -> STRING; list of str -> array of strings; one-dimensional NumPy array -> array of its dtype; a NumPy integer
    -> its own type, for readers that require one. The key ``general.alignment`` is added if the alignment is not 32.
    tensors: dtypes as GgufFile names them. The architecture decides what a type number means that two forks share:
    ``general.architecture`` of the metadata, or ``architecture`` if the metadata has none.

    Raises OutputError: those of ``written_whole``, and ``alignment``, ``value``, ``name-length``, ``duplicate-name``,
    ``dims``, ``unknown-type``, ``row-length``, ``size-mismatch``, ``planned-size``.
    """
    pairs = dict(metadata)
    if alignment < 1 or alignment & (alignment - 1):
        raise _refused(path, "is not a power of two", "alignment", "the alignment", alignment, "32, say")
    if alignment != DEFAULT_ALIGNMENT:
        pairs.setdefault(ALIGNMENT, alignment)
    if pairs.get(ALIGNMENT, alignment) != alignment:
        raise _refused(
            path, "contradicts the alignment asked for", "alignment", f"key {ALIGNMENT!r}", pairs[ALIGNMENT], alignment
        )
    architecture = str(pairs.get("general.architecture", architecture or ""))
    plan = listed(path, tensors)
    offsets = accumulate((align(tensor.size, alignment) for tensor in plan), initial=0)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(plan), len(pairs))
    head += b"".join(_pair(path, key, value) for key, value in pairs.items())
    head += b"".join(_info(path, tensor, architecture, at) for tensor, at in zip(plan, offsets, strict=False))
    with written_whole(path) as scratch, scratch.open("wb") as file:
        file.write(head)
        _pad(file, len(head), alignment)
        for tensor in plan:
            write_chunks(file, tensor)
            _pad(file, tensor.size, alignment)


def _pad(file: BinaryIO, size: int, alignment: int) -> None:
    file.write(bytes(align(size, alignment) - size))


def _pair(path: Path, key: str, value: Value) -> bytes:
    thing = f"key {key!r}"
    name = _text(path, key, thing)
    if not 0 < len(name) <= MAX_KEY:
        raise _refused(path, "has an impossible length", "name-length", thing, f"{len(name)} bytes", f"1 to {MAX_KEY}")
    type_id, raw = _value(path, value, thing)
    return _string(name) + struct.pack("<I", type_id) + raw


def _value(path: Path, value: Value, thing: str) -> tuple[int, bytes]:
    """The value type's number and the value's bytes, little-endian."""
    if isinstance(value, bool):
        return _BOOL, struct.pack("<?", value)
    if isinstance(value, int):
        for type_id, least, beyond in _INTEGERS:
            if least <= value < beyond:
                return type_id, struct.pack(f"<{SCALARS[type_id]}", value)
        raise _refused(path, "is too large an integer", "value", thing, value, "-2**63 to 2**64 - 1")
    if isinstance(value, float):
        try:
            return _FLOAT32, struct.pack("<f", value)
        except OverflowError:
            raise _refused(path, "is beyond float32", "value", thing, value) from None
    if isinstance(value, str):
        return STRING, _string(_text(path, value, thing))
    if isinstance(value, np.integer) and value.dtype.newbyteorder("<") in _ITEM_TYPES:
        return _ITEM_TYPES[value.dtype.newbyteorder("<")], value.astype(value.dtype.newbyteorder("<")).tobytes()
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        items = b"".join(_string(_text(path, item, thing)) for item in value)
        return ARRAY, struct.pack("<IQ", STRING, len(value)) + items
    if isinstance(value, np.ndarray) and value.ndim == 1:
        dtype = value.dtype.newbyteorder("<")
        if dtype in _ITEM_TYPES:
            return ARRAY, struct.pack("<IQ", _ITEM_TYPES[dtype], value.size) + value.astype(dtype).tobytes()
    expected = "bool, int, float, str, list of str, or a one-dimensional array of numbers"
    raise _refused(path, "has no type in GGUF", "value", thing, type(value).__name__, expected)


def _info(path: Path, tensor: PlannedTensor, architecture: str, offset: int) -> bytes:
    thing = f"tensor {tensor.name!r}"
    name = _text(path, tensor.name, thing)
    if not 0 < len(name) <= MAX_NAME:
        raise _refused(path, "has an impossible length", "name-length", thing, f"{len(name)} bytes", f"1 to {MAX_NAME}")
    if not 1 <= len(tensor.shape) <= MAX_DIMS or 0 in tensor.shape:
        raise _refused(
            path, "has an impossible shape", "dims", thing, list(tensor.shape), f"1 to {MAX_DIMS} sizes above 0"
        )
    number = type_number(tensor.dtype, architecture)
    if number is None:
        what = f"has no number in files of architecture {architecture!r}"
        raise _refused(path, what, "unknown-type", thing, tensor.dtype, "a type whose number means it there")
    size = tensor_bytes(tensor.dtype, tensor.shape)
    if size is None:
        raise _refused(path, f"rows of {tensor.dtype} are whole blocks", "row-length", thing, list(tensor.shape))
    if size != tensor.size:
        expected = f"{size} bytes ({tensor.dtype} {list(tensor.shape)})"
        raise _refused(
            path, "size is not that of its type and shape", "size-mismatch", thing, f"{tensor.size} bytes", expected
        )
    sizes = tuple(reversed(tensor.shape))  # ne[0] is the number of columns
    return _string(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, number, offset)


def _text(path: Path, text: str, thing: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise _refused(path, f"cannot be UTF-8: {error.reason}", "value", thing) from None


def _string(raw: bytes) -> bytes:
    return struct.pack("<Q", len(raw)) + raw


def _refused(
    path: Path, message: str, kind: str, thing: str, got: object = None, expected: object = None
) -> OutputError:
    got = got if got is None or isinstance(got, int) else printable(got)
    return OutputError(message, kind=kind, file=path, thing=printable(thing), got=got, expected=expected)
