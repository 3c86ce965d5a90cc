"""Q4_1 (ggml type 3): 32 codes of 4 bits, a float16 scale and a float16 minimum, 20 bytes."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tritgold.kv_cache.base import as_half
from tritgold.kv_cache.ggml_blocks import (
    BlockScheme,
    finite_quotient,
    pack_nibbles,
    read_half,
    to_codes,
    unpack_nibbles,
)


@dataclass(frozen=True)
class Q41(BlockScheme):
    """d = (max - min) / 15; code = min(15, trunc((x - min) / d + 0.5)); value = code * d + min.

    ::

        bytes 0, 1: d, float16;  bytes 2, 3: min, float16
        byte 4 + j, j = 0 .. 15: code j in its low half, code j + 16 in its high half

    A block of equal values has d = 0, codes 0 and that value as min, rounded to float16.

    >>> x = np.arange(32, dtype=np.float32).reshape(1, 1, 32) // 2 + 1
    >>> row = Q41().store(x); row[0, :4].view(np.float16).tolist(), [int(b) for b in row[0, 4:7]]
    ([1.0, 1.0], [128, 128, 145])
    """

    name: ClassVar[str] = "q4_1"
    block_bytes: ClassVar[int] = 20

    def pack(self, x: np.ndarray) -> np.ndarray:
        """float32 [blocks, 32] -> uint8 [blocks, 20]. If max - min overflows float32, d is infinite and is refused."""
        low = x.min(axis=1, keepdims=True)
        with np.errstate(over="ignore"):
            spread = x.max(axis=1, keepdims=True) - low
            halves = [as_half(part).view(np.uint8) for part in (spread / np.float32(15), low)]
            codes = to_codes(x - low, finite_quotient(1, spread / np.float32(15)), 0.5, 15)
        return np.concatenate([*halves, pack_nibbles(codes)], axis=1)

    def unpack(self, blocks: np.ndarray) -> np.ndarray:
        """uint8 [blocks, 20] -> float32 [blocks, 32]."""
        return unpack_nibbles(blocks[:, 4:]).astype(np.float32) * read_half(blocks, 0) + read_half(blocks, 2)
