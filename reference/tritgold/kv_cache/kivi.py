"""KIVI: keys quantised per channel, values per token, the newest tokens of both in full precision.

Source: KIVI (arXiv 2402.02750); jy-yuan/KIVI ``quant/new_pack.py`` (the codes) and ``models/llama_kivi.py`` (the time
of quantising). That program needs as many key heads as query heads, and divides by 0 if all values of a group are
equal; this one does neither.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tritgold.errors import ContextError, NonFiniteError
from tritgold.kv_cache.base import SIDES, KvCache, KvScheme, KvShape, as_half, check_finite
from tritgold.kv_cache.bit_packing import pack_codes, packed_bytes, unpack_codes
from tritgold.option_values import is_count


@dataclass(frozen=True)
class Kivi(KvScheme):
    """Groups of ``group`` values share a scale and a minimum, both float16; ``window`` is a multiple of ``group``.

    ::

        m = half(min), s = half((max - min) / (2**bits - 1)), value = code * s + m
        code = half_even(clamp((x - m) / s, 0, 2**bits - 1)), 0 if s is 0

    keys: a group is one channel of ``group`` consecutive tokens. Each time there are ``window`` keys in full
    precision, all of them are quantised. values: a group is ``group`` channels of one token; the newest ``window``
    tokens are in full precision, all older ones are quantised.

    Only tokens of earlier passes are quantised: the tokens of one pass see each other in full precision. So a prompt
    read in one pass is exact and a prompt divided into several passes is not: the outputs depend on the division, but
    the quantised state does not. Full precision is float32 here (float16 in the source).
    """

    bits: ClassVar[int]
    group: int = 32
    window: int = 128

    def __post_init__(self) -> None:
        if not is_count(self.group, 8) or self.group % 8:
            raise self.no_such_option("group", "a multiple of 8")
        if not is_count(self.window, self.group) or self.window % self.group:
            raise self.no_such_option("window", f"a multiple of group = {self.group}")

    def bytes_per_token(self, shape: KvShape) -> int:
        """For a token outside the window: codes, and four bytes for each group's scale and minimum."""
        if shape.head_dim % self.group:
            raise self.no_such_shape(shape, f"head_dim a multiple of group = {self.group}")
        groups = shape.kv_heads * shape.head_dim // self.group
        return 2 * groups * (packed_bytes(self.group, self.bits) + 4)

    def cache_bytes(self, shape: KvShape, tokens: int) -> int:
        """Quantised groups, and the float32 windows of keys and of values."""
        full_keys, full_values = tokens % self.window, min(tokens, self.window)
        quantised = (2 * tokens - full_keys - full_values) * self.bytes_per_token(shape) // 2
        return shape.layers * (quantised + (full_keys + full_values) * 4 * shape.kv_heads * shape.head_dim)

    def cache(self, shape: KvShape, capacity: int) -> "KiviCache":
        """An empty cache: empty windows and no groups."""
        self.bytes_per_token(shape)
        return KiviCache(self, shape, capacity)


@dataclass(frozen=True)
class Kivi2(Kivi):
    """Two bits; 3 per value with scales and minima."""

    name: ClassVar[str] = "kivi2"
    bits: ClassVar[int] = 2


@dataclass(frozen=True)
class Kivi4(Kivi):
    """Four bits; 5 per value with scales and minima."""

    name: ClassVar[str] = "kivi4"
    bits: ClassVar[int] = 4


class KiviCache(KvCache):
    """For each layer, quantised positions up to ``_done``, then float32 tails.

    What a pass has appended is quantised when the next pass begins, so a pass can be undone without a trace.
    ``truncate`` refuses (ContextError ``kv-truncate``) to cut through a group of quantised keys, because the group's
    float32 keys are lost. Quantised positions are never unquantised.
    """

    def __init__(self, scheme: Kivi, shape: KvShape, capacity: int) -> None:
        super().__init__(scheme.id, shape, capacity)
        self._group, self._window = scheme.group, scheme.window
        heads, width = shape.kv_heads, shape.head_dim
        keys = _Groups(shape.layers, capacity // self._group, (heads, width), self._group, scheme.bits)
        values = _Groups(shape.layers, capacity, (heads, width // self._group), self._group, scheme.bits)
        self._groups = {"k": keys, "v": values}
        empty = np.zeros((0, heads, width), np.float32)
        self._tails = {side: [empty] * shape.layers for side in SIDES}
        self._done = {side: [0] * shape.layers for side in SIDES}

    def append(self, layer: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Quantise the earlier positions that leave the window, then append k and v in full precision."""
        self.check_pass(layer, k, v)
        for side, x in zip(SIDES, (k, v), strict=True):
            try:
                check_finite(x)
                as_half(x)  # refuses what overflows as a minimum; a group's scale is never larger
            except NonFiniteError as error:
                raise error.located(thing=f"layers.{layer}.{side}") from None
        self._settle(layer)
        for side, x in zip(SIDES, (k, v), strict=True):
            self._tails[side][layer] = np.concatenate([self._tails[side][layer], x])
        return self._keys(layer), self._values(layer)

    def truncate(self, length: int) -> None:
        """Forget positions; the class says when this is refused."""
        length = self.kept_by(length)
        done = max(self._done["k"])
        if length < done and length % self._group:
            raise ContextError(
                "cannot cut through a group of quantised keys",
                kind="kv-truncate",
                got=length,
                expected=f"a multiple of {self._group}, or {done} and more",
            )
        super().truncate(length)
        for done_of_layers in self._done.values():
            done_of_layers[:] = [min(n, length) for n in done_of_layers]

    def _settle(self, layer: int) -> None:
        """Quantise the layer as its first ``length`` tokens require; drop appended tokens that are not among them."""
        for side in SIDES:
            done = self._done[side][layer]
            tail = self._tails[side][layer][: self.length - done]
            if side == "k":
                ready = len(tail) // self._window * self._window
                by_channel = tail[:ready].reshape(ready // self._group, self._group, *tail.shape[1:])
                self._groups["k"].write(layer, done // self._group, np.moveaxis(by_channel, 1, 3))
            else:
                ready = max(0, len(tail) - self._window)
                heads, width = tail.shape[1:]
                by_token = tail[:ready].reshape(ready, heads, width // self._group, self._group)
                self._groups["v"].write(layer, done, by_token)
            self._tails[side][layer] = tail[ready:]
            self._done[side][layer] = done + ready

    def _keys(self, layer: int) -> np.ndarray:
        tail, done = self._tails["k"][layer], self._done["k"][layer]
        groups = np.moveaxis(self._groups["k"].read(layer, done // self._group), 3, 1)
        return np.concatenate([groups.reshape(done, *tail.shape[1:]), tail])

    def _values(self, layer: int) -> np.ndarray:
        tail, done = self._tails["v"][layer], self._done["v"][layer]
        return np.concatenate([self._groups["v"].read(layer, done).reshape(done, *tail.shape[1:]), tail])


class _Groups:
    """Quantised groups of each layer: rows [n, *middle, group]."""

    def __init__(self, layers: int, rows: int, middle: tuple[int, int], group: int, bits: int) -> None:
        self._bits, self._group = bits, group
        self._codes = np.zeros((layers, rows, *middle, packed_bytes(group, bits)), np.uint8)
        self._scale, self._minimum = (np.zeros((layers, rows, *middle, 1), np.float16) for _ in range(2))

    def write(self, layer: int, start: int, x: np.ndarray) -> None:
        """Quantise x float32 [n, *middle, group] into the rows from ``start`` on."""
        top = np.float32((1 << self._bits) - 1)
        low = x.min(axis=-1, keepdims=True)
        minimum, scale = as_half(low), as_half((x.max(axis=-1, keepdims=True) - low) / top)
        steps = (x - minimum.astype(np.float32)) / np.where(scale == 0, np.inf, scale).astype(np.float32)
        rows = slice(start, start + len(x))
        self._codes[layer, rows] = pack_codes(np.rint(np.clip(steps, 0, top)).astype(np.uint8), self._bits)
        self._scale[layer, rows], self._minimum[layer, rows] = scale, minimum

    def read(self, layer: int, end: int) -> np.ndarray:
        """The first ``end`` rows as float32 [end, *middle, group]."""
        codes = unpack_codes(self._codes[layer, :end], self._bits, self._group).astype(np.float32)
        return codes * self._scale[layer, :end].astype(np.float32) + self._minimum[layer, :end].astype(np.float32)
