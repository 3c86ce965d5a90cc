"""SGLBITNT files byte by byte, right ones and wrong ones on purpose; shares nothing with the reader under test.

Written from ``write_tensor`` of WrinkleFree's convert_to_sglkernel.py and from the loop of convert_dlm_to_sglkernel.py.
"""

import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

U8, F32, F16, BF16 = range(4)


@dataclass(frozen=True)
class Tensor:
    """flag: has_scale as written; None where the scale decides. length: of the data as written; None for the true one.
    dummy: what the dialect that always writes a scale has where there is none.
    """

    name: str | bytes
    dtype: int
    shape: tuple[int, ...]
    data: bytes
    scale: float | None = None
    flag: int | None = None
    length: int | None = None
    dims: int | None = None
    dummy: float = 0.0

    def raw(self, always: bool) -> bytes:
        name = self.name.encode() if isinstance(self.name, str) else self.name
        out = struct.pack("<I", len(name)) + name + struct.pack("<I", self.dtype)
        out += struct.pack("<I", len(self.shape) if self.dims is None else self.dims)
        for size in self.shape:
            out += struct.pack("<I", size)
        out += struct.pack("<I", (self.scale is not None) if self.flag is None else self.flag)
        if self.scale is not None:
            out += struct.pack("<f", self.scale)
        elif always:
            out += struct.pack("<f", self.dummy)
        return out + struct.pack("<Q", len(self.data) if self.length is None else self.length) + self.data


def f32(name: str, values: np.ndarray) -> Tensor:
    return Tensor(name, F32, values.shape, values.astype("<f4").tobytes())


def packed(name: str, trits: np.ndarray, scale: float) -> Tensor:
    """U8 [out, in / 4]: in a row, byte p of a block of 128 holds weights p, p + 32, p + 64, p + 96, top pair first."""
    rows, columns = trits.shape
    out = np.zeros((rows, columns // 4), np.uint8)
    for row in range(rows):
        for column in range(columns):
            block, within = divmod(column, 128)
            out[row, 32 * block + within % 32] |= (int(trits[row, column]) + 1) << (6 - 2 * (within // 32))
    return Tensor(name, U8, out.shape, out.tobytes(), scale)


def sglbitnt(
    config: dict[str, Any] | bytes,
    tensors: Iterable[Tensor],
    *,
    always: bool = False,
    magic: bytes = b"SGLBITNT",
    version: int = 1,
    config_length: int | None = None,
    count: int | None = None,
) -> bytes:
    """A whole file. Lengths and counts may lie."""
    tensors = list(tensors)
    text = config if isinstance(config, bytes) else json.dumps(config).encode("utf-8")
    out = magic + struct.pack("<II", version, len(text) if config_length is None else config_length) + text
    out += struct.pack("<I", len(tensors) if count is None else count)
    return out + b"".join(tensor.raw(always) for tensor in tensors)
