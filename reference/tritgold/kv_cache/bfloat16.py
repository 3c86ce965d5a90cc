"""bfloat16: the upper half of a float32, with the range of float32 and 8 bits of precision."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from tritgold.errors import NonFiniteError
from tritgold.kv_cache.base import KvShape, Side
from tritgold.kv_cache.token_rows import TokenScheme
from tritgold.rounding import bf16_to_f32, f32_to_bf16


@dataclass(frozen=True)
class BF16(TokenScheme):
    """Two bytes per value, little-endian.

    rounding: ``even``, half to even, as in casts of torch and JAX; ``truncate`` drops the lower half, as the C++ server
    of the WrinkleFree engine does (every value moves towards zero). A value that rounds to infinity is refused.

    >>> x = np.array([[[1.01171875]]], np.float32)  # a tie, 1 + 3 / 256
    >>> BF16().store(x).tolist(), BF16("truncate").store(x).tolist()
    ([[130, 63]], [[129, 63]])
    """

    name: ClassVar[str] = "bf16"
    rounding: Literal["even", "truncate"] = "even"

    def __post_init__(self) -> None:
        if self.rounding not in ("even", "truncate"):
            raise self.no_such_option("rounding", "even or truncate")

    def row_bytes(self, shape: KvShape, side: Side = "k") -> int:
        """Two bytes per value."""
        return 2 * shape.kv_heads * shape.head_dim

    def _encode(self, x: np.ndarray, layer: int, side: Side) -> np.ndarray:
        x = np.ascontiguousarray(x)
        bits = f32_to_bf16(x) if self.rounding == "even" else (x.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
        if not np.isfinite(bf16_to_f32(bits)).all():
            raise NonFiniteError("does not fit bfloat16", kind="kv-overflow", got=float(np.abs(x).max()))
        return bits.astype("<u2").reshape(x.shape[0], x.shape[1] * x.shape[2]).view(np.uint8)

    def _decode(self, rows: np.ndarray, shape: KvShape, layer: int, side: Side) -> np.ndarray:
        return bf16_to_f32(rows.view("<u2"))
