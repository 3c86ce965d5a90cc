"""The "FP8" of the WrinkleFree engine (its E4M3, E5M2 and int8 are the same): really int8 with one scale per layer.

Source: WrinkleFree-Monorepo, ``wrinklefree_inference/kv_cache/kv_cache.py`` (``_quantize_to_fp8`` and
``_dequantize_from_fp8``). Its docstring calls it simulated FP8; the constants 448 and 57344 are set and never used.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tritgold.errors import NonFiniteError
from tritgold.kv_cache.base import SIDES, KvCache, KvScheme, KvShape, check_finite
from tritgold.rounding import bf16_to_f32, f32_to_bf16


@dataclass(frozen=True)
class FakeFp8(KvScheme):
    """Symmetric int8; a pass has one scale for all its tokens and heads, separate for each layer and for k and v.

    ::

        a = max|x| of the pass, 1 if that is below 1e-6
        code = clamp(half_even(f32(x * f32(127 / a))), -127, 127);  value = bf16(f32(code * f32(a / 127)))

    overwrite: True is the defect. A layer stores only one scale, so each pass replaces it, and the codes of all earlier
    passes are read with a wrong scale. False keeps the scale of each pass, as was intended. In both cases the values
    depend on how the tokens were divided into passes.
    """

    name: ClassVar[str] = "fake_fp8"
    overwrite: bool = True

    def bytes_per_token(self, shape: KvShape) -> int:
        """A byte per value; without ``overwrite`` also two float32 scales."""
        return 2 * shape.kv_heads * shape.head_dim + (0 if self.overwrite else 8)

    def cache_bytes(self, shape: KvShape, tokens: int) -> int:
        """Codes and scales; with ``overwrite`` only two scales per layer."""
        return super().cache_bytes(shape, tokens) + (shape.layers * 8 if self.overwrite else 0)

    def cache(self, shape: KvShape, capacity: int) -> "FakeFp8Cache":
        """Codes, and for each position the scale it is read with."""
        return FakeFp8Cache(self, shape, capacity)


class FakeFp8Cache(KvCache):
    """codes int8 [k and v, layers, capacity, kv_heads, head_dim]; scales float32 [k and v, layers, capacity]."""

    def __init__(self, scheme: FakeFp8, shape: KvShape, capacity: int) -> None:
        super().__init__(scheme.id, shape, capacity)
        self._overwrite = scheme.overwrite
        self._codes = np.zeros((2, shape.layers, capacity, shape.kv_heads, shape.head_dim), np.int8)
        self._scales = np.ones((2, shape.layers, capacity), np.float32)

    def append(self, layer: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Quantise the pass with its own scale; read all positions with the scales that are stored now."""
        self.check_pass(layer, k, v)
        for side, x in zip(SIDES, (k, v), strict=True):
            try:
                check_finite(x)
            except NonFiniteError as error:
                raise error.located(thing=f"layers.{layer}.{side}") from None
        return self._append(0, layer, k), self._append(1, layer, v)

    def _append(self, side: int, layer: int, x: np.ndarray) -> np.ndarray:
        codes, scales, end = self._codes[side, layer], self._scales[side, layer], self.length + x.shape[0]
        absmax = np.abs(x).max(initial=np.float32(0))
        absmax = np.float32(1) if absmax < np.float32(1e-6) else absmax
        codes[self.length : end] = np.clip(np.rint(x * (np.float32(127) / absmax)), -127, 127)
        if x.size:
            scales[0 if self._overwrite else self.length : end] = absmax / np.float32(127)
        return bf16_to_f32(f32_to_bf16(codes[:end].astype(np.float32) * scales[:end, None, None]))
