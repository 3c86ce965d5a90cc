"""Q5_0 (ggml type 6): 32 codes of 5 bits and a float16 scale, 22 bytes."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tritgold.kv_cache.base import as_half
from tritgold.kv_cache.ggml_blocks import (
    BlockScheme,
    finite_quotient,
    pack_nibbles,
    read_half,
    signed_extreme,
    to_codes,
    unpack_nibbles,
)


@dataclass(frozen=True)
class Q50(BlockScheme):
    """As Q4_0 with 16 instead of 8: d = m / -16, code = min(31, trunc(x / d + 16.5)), value = (code - 16) * d.

    ::

        bytes 0, 1: d, float16;  bytes 2 .. 5: bit j of the little-endian word is the fifth bit of code j
        byte 6 + j, j = 0 .. 15: low four bits of code j in its low half, of code j + 16 in its high half

    fused: as in Q4_0.

    >>> x = np.zeros((1, 1, 32), np.float32); x[0, 0, [0, 1]] = [-16, 15]
    >>> [int(b) for b in Q50().store(x)[0, :8]]  # d = 1; codes 0, 31, and 16 for all others
    [0, 60, 254, 255, 255, 255, 0, 15]
    """

    name: ClassVar[str] = "q5_0"
    block_bytes: ClassVar[int] = 22
    fused: bool = False

    def pack(self, x: np.ndarray) -> np.ndarray:
        """float32 [blocks, 32] -> uint8 [blocks, 22]."""
        d = signed_extreme(x) / np.float32(-16)
        codes = to_codes(x, finite_quotient(1, d), 16.5, 31, self.fused)
        fifth = np.packbits(codes >> np.uint8(4), axis=1, bitorder="little")
        return np.concatenate([as_half(d).view(np.uint8), fifth, pack_nibbles(codes & np.uint8(15))], axis=1)

    def unpack(self, blocks: np.ndarray) -> np.ndarray:
        """uint8 [blocks, 22] -> float32 [blocks, 32]."""
        fifth = np.unpackbits(blocks[:, 2:6], axis=1, bitorder="little") << np.uint8(4)
        codes = (unpack_nibbles(blocks[:, 6:]) | fifth).astype(np.float32)
        return (codes - np.float32(16)) * read_half(blocks, 0)
