"""Q4_0 (ggml type 2): 32 codes of 4 bits and a float16 scale, 18 bytes."""

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
class Q40(BlockScheme):
    """d = m / -8, where m is the value with the largest magnitude, with its sign; code = min(15, trunc(x / d + 8.5)).

    ::

        bytes 0, 1: d, float16;  byte 2 + j, j = 0 .. 15: code j in its low half, code j + 16 in its high half
        value = (code - 8) * d

    m gets code 0, so its only error is the rounding of d; a value -m is clipped to 7/8 of it.

    fused: x * (1 / d) + 8.5 is rounded once, as in ggml if the compiler uses a fused multiply-add. gguf-py did the
    same until llama.cpp #15111. Only codes at ties differ.

    >>> x = np.zeros((1, 1, 32), np.float32); x[0, 0, [0, 1, 16]] = [-8, 8, 3]
    >>> [int(b) for b in Q40().store(x)[0, :4]]  # d = 1, codes 0 and 11, 15 and 8
    [0, 60, 176, 143]
    """

    name: ClassVar[str] = "q4_0"
    block_bytes: ClassVar[int] = 18
    fused: bool = False

    def pack(self, x: np.ndarray) -> np.ndarray:
        """float32 [blocks, 32] -> uint8 [blocks, 18]."""
        d = signed_extreme(x) / np.float32(-8)
        codes = to_codes(x, finite_quotient(1, d), 8.5, 15, self.fused)
        return np.concatenate([as_half(d).view(np.uint8), pack_nibbles(codes)], axis=1)

    def unpack(self, blocks: np.ndarray) -> np.ndarray:
        """uint8 [blocks, 18] -> float32 [blocks, 32]."""
        return (unpack_nibbles(blocks[:, 2:]).astype(np.float32) - np.float32(8)) * read_half(blocks, 0)
