"""Keys in one scheme and values in another, like llama.cpp's ``-ctk`` and ``-ctv``."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tritgold.kv_cache.base import KvShape, Side
from tritgold.kv_cache.float16 import F16
from tritgold.kv_cache.q8_0 import Q80
from tritgold.kv_cache.token_rows import TokenScheme

_KEYS, _VALUES = Q80(), F16()


@dataclass(frozen=True)
class Split(TokenScheme):
    """Schemes ``k`` and ``v``. The default quantises only keys, as llama.cpp can without flash attention.

    >>> from tritgold.kv_cache.base import Sizes
    >>> [Split().row_bytes(Sizes(1, 5, 128), side) for side in ("k", "v")]
    [680, 1280]
    """

    name: ClassVar[str] = "split"
    k: TokenScheme = _KEYS
    v: TokenScheme = _VALUES

    def __post_init__(self) -> None:
        for option in ("k", "v"):
            scheme = getattr(self, option)
            if not isinstance(scheme, TokenScheme) or scheme.first is not None:
                raise self.no_such_option(option, "a scheme that keeps every token by itself, as a row of bytes")

    def row_bytes(self, shape: KvShape, side: Side = "k") -> int:
        """The bytes of that side's scheme."""
        return self._of(side).row_bytes(shape, side)

    def _of(self, side: Side) -> TokenScheme:
        return self.k if side == "k" else self.v

    def _encode(self, x: np.ndarray, layer: int, side: Side) -> np.ndarray:
        return self._of(side).store(x, layer, side)

    def _decode(self, rows: np.ndarray, shape: KvShape, layer: int, side: Side) -> np.ndarray:
        return self._of(side).load(rows, shape, layer, side)
