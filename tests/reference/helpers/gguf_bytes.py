"""GGUF files byte by byte: right ones that gguf-py cannot write (type 36), and wrong ones on purpose.

Written from the layout alone and shares nothing with the reader under test.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
_LETTERS = dict(zip((U8, I8, U16, I16, U32, I32, F32, BOOL, U64, I64, F64), "BbHhIifBQqd", strict=True))

# Tensor type numbers that the tests use.
TYPE_F32, TYPE_F16, TYPE_BF16, TYPE_TQ2_0, TYPE_I2_S = 0, 1, 30, 35, 36


@dataclass(frozen=True)
class Tensor:
    """One tensor: shape rows first, as NumPy has it. offset: as recorded; None puts it after the one before."""

    name: str | bytes
    shape: tuple[int, ...]
    type_id: int
    data: bytes
    offset: int | None = None


def f32(name: str, values: np.ndarray, offset: int | None = None) -> Tensor:
    """A float32 tensor of these values."""
    return Tensor(name, values.shape, TYPE_F32, values.astype("<f4").tobytes(), offset)


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def scalar(kind: int, value: float) -> bytes:
    return struct.pack(f"<{_LETTERS[kind]}", value)


def pair(key: str | bytes, kind: int, value: float | str | bytes) -> bytes:
    """A key and its value. For an array pass the value as bytes, made by ``array``."""
    if kind == STRING:
        return string(key) + struct.pack("<I", kind) + string(value)  # type: ignore[arg-type]
    return string(key) + struct.pack("<I", kind) + (value if isinstance(value, bytes) else scalar(kind, value))


def array(item: int, values: Iterable[float | str], count: int | None = None) -> bytes:
    """The value of an array: item type, count, items. ``count`` may lie."""
    items = [string(v) if item == STRING else scalar(item, v) for v in values]  # type: ignore[arg-type]
    return struct.pack("<IQ", item, len(items) if count is None else count) + b"".join(items)


def info(tensor: Tensor, offset: int, dims: int | None = None) -> bytes:
    sizes = tuple(reversed(tensor.shape))  # ne[0] is the number of columns
    head = string(tensor.name) + struct.pack("<I", len(sizes) if dims is None else dims)
    return head + struct.pack(f"<{len(sizes)}Q", *sizes) + struct.pack("<IQ", tensor.type_id, offset)


def aligned(at: int, alignment: int) -> int:
    return -(-at // alignment) * alignment


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
    gap: bytes = b"\xee",
) -> bytes:
    """A whole file. ``alignment`` lays the data out; the file says so only where a pair does. Counts may lie.

    What lies between tensors is filled with ``gap``: not with zeros, so that a reader which takes it for data is seen.
    """
    pairs, tensors = list(pairs), list(tensors)
    placed, end = [], 0
    for tensor in tensors:
        offset = end if tensor.offset is None else tensor.offset
        end = aligned(offset + len(tensor.data), alignment)
        placed.append((tensor, offset))
    counts = (
        len(tensors) if tensor_count is None else tensor_count,
        len(pairs) if pair_count is None else pair_count,
    )
    head = magic + struct.pack("<IQQ", version, *counts) + b"".join(pairs)
    head += b"".join(info(tensor, offset, dims) for tensor, offset in placed)
    data = bytearray()
    for tensor, offset in sorted(placed, key=lambda p: p[1]):
        data += gap * (offset - len(data))
        data[offset : offset + len(tensor.data)] = tensor.data
    data += bytes(aligned(len(data), alignment) - len(data))
    return head + bytes(aligned(len(head), alignment) - len(head)) + bytes(data)


def i2_s(codes: Iterable[int], scale: float, padding: bytes = bytes(28)) -> bytes:
    """I2_S payload and trailer from codes 0..3, weight by weight: byte p of a block, top pair first."""
    code = np.fromiter(codes, np.uint8)
    i = np.arange(code.size)
    payload = np.zeros(code.size // 4, np.uint8)
    np.bitwise_or.at(payload, 32 * (i // 128) + i % 32, code << (6 - 2 * (i % 128 // 32)).astype(np.uint8))
    return payload.tobytes() + struct.pack("<f", scale) + padding
