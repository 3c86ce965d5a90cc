"""Schemes that store each token separately, as a row of bytes, and their contiguous cache.

What is read depends only on the token's own k and v, so prefill, chunks and single steps give the same bits. The
tokens of a pass also see each other as stored. Engines that compute the attention of a prompt from its unrounded keys
and values, as vLLM does, differ there.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float32, UInt8

from tritgold.errors import NonFiniteError
from tritgold.kv_cache.base import SIDES, KvCache, KvScheme, KvShape, Side, check_finite


@dataclass(frozen=True)
class TokenScheme(KvScheme):
    """A codec of rows: k or v of one token [kv_heads, head_dim] in ``row_bytes`` bytes.

    first: the scheme of position 0 if it differs, else None.
    """

    first: ClassVar["TokenScheme | None"] = None

    @abstractmethod
    def row_bytes(self, shape: KvShape, side: Side = "k") -> int:
        """Bytes of the k (or v) of one token in one layer. Raises ConfigError for heads it cannot hold."""

    def store(
        self, x: Float32[np.ndarray, "tokens kv_heads head_dim"], layer: int = 0, side: Side = "k"
    ) -> UInt8[np.ndarray, "tokens row_bytes"]:
        """The bytes of each token. NonFiniteError for infinity, NaN, and values that overflow the scheme's floats."""
        check_finite(x)
        return self._encode(x, layer, side)

    def load(
        self, rows: UInt8[np.ndarray, "tokens row_bytes"], shape: KvShape, layer: int = 0, side: Side = "k"
    ) -> Float32[np.ndarray, "tokens kv_heads head_dim"]:
        """The stored values as float32."""
        return self._decode(rows, shape, layer, side).reshape(rows.shape[0], shape.kv_heads, shape.head_dim)

    def bytes_per_token(self, shape: KvShape) -> int:
        """One row of k and one of v."""
        return self.row_bytes(shape, "k") + self.row_bytes(shape, "v")

    def cache_bytes(self, shape: KvShape, tokens: int) -> int:
        """Rows, and the additional bytes of the first token if its scheme differs."""
        more = self.first.bytes_per_token(shape) - self.bytes_per_token(shape) if self.first and tokens else 0
        return super().cache_bytes(shape, tokens) + shape.layers * more

    def cache(self, shape: KvShape, capacity: int) -> KvCache:
        """A cache whose rows are contiguous in memory."""
        return ContiguousCache(self, shape, capacity)

    @abstractmethod
    def _encode(self, x: np.ndarray, layer: int, side: Side) -> np.ndarray: ...

    @abstractmethod
    def _decode(self, rows: np.ndarray, shape: KvShape, layer: int, side: Side) -> np.ndarray: ...


class TokenCache(KvCache):
    """A cache of rows; a subclass decides where they are stored with ``_write`` and ``_read``."""

    def __init__(self, scheme: TokenScheme, shape: KvShape, capacity: int) -> None:
        super().__init__(scheme.id, shape, capacity)
        self._codec = scheme
        self._first: dict[tuple[int, Side], np.ndarray] = {}

    def append(self, layer: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Store both as rows, then read every row of the layer."""
        self.check_pass(layer, k, v)
        first = self._codec.first if self.length == 0 and k.shape[0] else None
        # All is encoded before anything is written, so that a refused pass leaves the cache unchanged.
        rows, firsts = {}, {}
        for side, x in zip(SIDES, (k, v), strict=True):
            try:
                rows[side] = self._codec.store(x, layer, side)
                if first is not None:
                    firsts[layer, side] = first.store(x[:1], layer, side)
            except NonFiniteError as error:
                raise error.located(thing=f"layers.{layer}.{side}") from None
        for side in SIDES:
            self._write(layer, side, rows[side])
        self._first |= firsts
        end = self.length + k.shape[0]
        return self._read_floats(layer, "k", end), self._read_floats(layer, "v", end)

    def _read_floats(self, layer: int, side: Side, end: int) -> np.ndarray:
        x = self._codec.load(self._read(layer, side, end), self.shape, layer, side)
        if self._codec.first is not None and end:
            x[:1] = self._codec.first.load(self._first[layer, side], self.shape, layer, side)
        return x

    @abstractmethod
    def _write(self, layer: int, side: Side, rows: np.ndarray) -> None:
        """Store rows uint8 [tokens, row_bytes] for the positions from ``length`` on."""

    @abstractmethod
    def _read(self, layer: int, side: Side, end: int) -> np.ndarray:
        """Rows of the positions 0 .. end - 1, uint8 [end, row_bytes]."""


class ContiguousCache(TokenCache):
    """Rows in one array [layers, capacity, row_bytes] for k and one for v."""

    def __init__(self, scheme: TokenScheme, shape: KvShape, capacity: int) -> None:
        super().__init__(scheme, shape, capacity)
        self._rows = {s: np.zeros((shape.layers, capacity, scheme.row_bytes(shape, s)), np.uint8) for s in SIDES}

    def _write(self, layer: int, side: Side, rows: np.ndarray) -> None:
        self._rows[side][layer, self.length : self.length + rows.shape[0]] = rows

    def _read(self, layer: int, side: Side, end: int) -> np.ndarray:
        return self._rows[side][layer, :end]
