"""Q8_0 (ggml type 8): 32 codes of 8 bits and a float16 scale, 34 bytes."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from tritgold.kv_cache.base import as_half
from tritgold.kv_cache.ggml_blocks import BlockScheme, finite_quotient, read_half


@dataclass(frozen=True)
class Q80(BlockScheme):
    """Symmetric, d = max|x| / 127; value = code * d. Bytes 0, 1: d; bytes 2 .. 33: the codes, int8.

    kernel: which of ggml's three implementations; their codes differ for values near a half:

    =============  ======================  ===================  =============================================
    kernel         multiplier              rounding             where
    =============  ======================  ===================  =============================================
    ``reference``  1 / d                   half away from zero  ``quantize_row_q8_0_ref``; files; GPUs
    ``neon``       1 / d                   half to even         ``quantize_row_q8_0`` on ARM
    ``avx2``       127 / max|x|            half to even         ``quantize_row_q8_0`` on x86: its CPU KV cache
    =============  ======================  ===================  =============================================

    >>> x = np.zeros((1, 1, 32), np.float32); x[0, 0, :3] = [127, 2.5, -3.5]
    >>> [Q80(kernel).store(x).view(np.int8)[0, :5].tolist() for kernel in ("reference", "avx2")]
    [[0, 60, 127, 3, -4], [0, 60, 127, 2, -4]]
    """

    name: ClassVar[str] = "q8_0"
    block_bytes: ClassVar[int] = 34
    kernel: Literal["reference", "neon", "avx2"] = "reference"

    def __post_init__(self) -> None:
        if self.kernel not in ("reference", "neon", "avx2"):
            raise self.no_such_option("kernel", "reference, neon or avx2")

    def pack(self, x: np.ndarray) -> np.ndarray:
        """float32 [blocks, 32] -> uint8 [blocks, 34]."""
        absmax = np.abs(x).max(axis=1, keepdims=True)
        d = absmax / np.float32(127)
        inverse = finite_quotient(127, absmax) if self.kernel == "avx2" else finite_quotient(1, d)
        codes = _half_away(x * inverse) if self.kernel == "reference" else np.rint(x * inverse)
        return np.concatenate([as_half(d).view(np.uint8), codes.astype(np.int8).view(np.uint8)], axis=1)

    def unpack(self, blocks: np.ndarray) -> np.ndarray:
        """uint8 [blocks, 34] -> float32 [blocks, 32]."""
        return blocks[:, 2:].view(np.int8).astype(np.float32) * read_half(blocks, 0)


def _half_away(x: np.ndarray) -> np.ndarray:
    """The nearest integer, halves away from zero. Not floor(x + 0.5), which would round 0.49999997 up."""
    whole = np.floor(np.abs(x))
    return np.copysign(whole + (np.abs(x) - whole >= np.float32(0.5)), x)
