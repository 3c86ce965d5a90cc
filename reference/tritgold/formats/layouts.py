"""Layouts: what a file does not state about its own bytes, and the packing of each GGUF tensor type.

I2_S, Q2_0, and TL1 and TL2 have several layouts under one type number. A file read with the wrong one loads without an
error and gives nonsense text, so nothing is guessed: the default for I2_S and Q2_0 is the layout of all published
files, and the tiles of TL1 and TL2 must be given (files written by tritgold have them in their own keys).
"""

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np

from tritgold.errors import FormatError, PackingError, TritgoldWarning
from tritgold.formats.ggml_types import ROW_SCALED
from tritgold.formats.packings import packing
from tritgold.formats.packings.packing_base import Packing
from tritgold.formats.untrusted_text import printable

I2sLayout = Literal["128", "64", "4rows"]
Tile = dict[str, int]

I2S_KEY = "tritgold.i2_s"  # written by tritgold: which of the three layouts the file has
_PLAIN = {"TQ1_0": "tq1_0", "TQ2_0": "tq2_0", "Q1_0": "q1_0", "F32": "f32", "F16": "f16", "BF16": "bf16"} | {
    name: name.lower() for name, *_ in ROW_SCALED.values()
}
GGUF_TERNARY = ("I2_S", "TL1", "TL2", "Q2_0", *_PLAIN)


@dataclass(frozen=True)
class Layouts:
    """The options that decide how packed tensors are read.

    i2_s: the layout of type 36: ``128`` (x86 and every published file), ``64`` (ARM builds since November
    2025) or ``4rows`` (x86 builds without ACT_PARALLEL); None for the layout that the file states, ``128`` if it
    states none.

    tile: BM, BK, bm of every TL1 or TL2 tensor. tiles: the same by shape (out, in); it has priority over ``tile``.
    q2_0_block: weights in a block of type 42, 64 (ggml) or 128 (PrismML's older files).
    code3_as_zero: read codes that are not a trit as 0; otherwise they are refused.
    """

    i2_s: I2sLayout | None = None
    tile: Tile | None = None
    tiles: Mapping[tuple[int, int], Tile] = field(default_factory=dict)
    q2_0_block: int = 64
    code3_as_zero: bool = False

    def packing(self, dtype: str, shape: tuple[int, int]) -> Packing:
        """The packing of a GGUF tensor of the type called ``dtype``, one of GGUF_TERNARY.

        Raises PackingError: ``no-tile`` if a tile is needed and not given, ``packing-option`` for an impossible tile,
        ``unknown-packing`` for a type that holds no trits.
        """
        if dtype == "I2_S":
            return packing("i2_s_4rows") if self.i2_s == "4rows" else packing("i2_s", block=int(self.i2_s or 128))
        if dtype == "Q2_0":
            return packing("q2_0", block=self.q2_0_block)
        if dtype in ("TL1", "TL2"):
            return self._tiled(dtype, shape)
        if dtype not in _PLAIN:
            expected = "a ternary type: " + ", ".join(GGUF_TERNARY)
            raise PackingError("holds no trits", kind="unknown-packing", got=dtype, expected=expected)
        return packing(_PLAIN[dtype])

    def _tiled(self, dtype: str, shape: tuple[int, int]) -> Packing:
        tile = self.tiles.get(shape, self.tile)
        if tile is None:
            raise PackingError(
                f"the tile sizes of {dtype} for {shape[0]} x {shape[1]} are not given, and no file of it says them",
                kind="no-tile",
                hint="give --tile BM,BK,bm, or the kernel_config.ini with which the file was made as --tile-ini",
            )
        options = {key: value for key, value in tile.items() if dtype == "TL1" or key != "bm"}
        if dtype == "TL2" and tile.get("bm", 32) != 32:
            raise PackingError("TL2 kernels have bm = 32", kind="packing-option", got=tile["bm"], expected=32)
        return packing(dtype.lower(), **options)


def said_by(metadata: Mapping[str, Any], layouts: Layouts, file: object) -> Layouts:
    """The requested layouts; options that are not set come from the keys of a file that tritgold wrote.

    Raises FormatError ``value`` for malformed keys. Warns (TritgoldWarning) if options and keys differ; the options
    win.
    """
    found: Any = metadata.get(I2S_KEY)
    if found is not None and not (isinstance(found, str) and found in get_args(I2sLayout)):
        expected = ", ".join(get_args(I2sLayout))
        got, thing = printable(repr(found)), f"key {I2S_KEY!r}"
        raise FormatError("is not a layout of I2_S", kind="value", file=file, thing=thing, got=got, expected=expected)
    own = tiles_of(metadata, file)
    asked = {shape: layouts.tiles.get(shape, layouts.tile) for shape in own}
    others = [f"{m} x {k}" for (m, k), tile in asked.items() if tile not in (None, own[m, k])]
    if layouts.i2_s not in (None, found) and found is not None:
        others.append(f"I2_S, {found}")
    if others:
        what = printable(f"{file}: says another layout of {', '.join(others)}; the option goes before it")
        warnings.warn(what, TritgoldWarning, stacklevel=2)
    own = {} if layouts.tile else own
    return replace(layouts, i2_s=layouts.i2_s or metadata.get(I2S_KEY), tiles={**own, **layouts.tiles})


def parse_tile(text: str) -> Tile:
    """``BM,BK`` or ``BM,BK,bm`` -> options. Raises PackingError ``packing-option``.

    >>> parse_tile("256,128,32"), parse_tile("64,96")
    ({'BM': 256, 'BK': 128, 'bm': 32}, {'BM': 64, 'BK': 96})
    """
    parts = text.split(",")
    if len(parts) not in (2, 3) or not all(map(_is_size, parts)):
        raise PackingError(
            "is not a tile", kind="packing-option", got=printable(repr(text)), expected="BM,BK or BM,BK,bm"
        )
    return dict(zip(("BM", "BK", "bm"), map(int, parts), strict=False))


def parse_shape(text: str) -> tuple[int, int]:
    """``256x768`` -> (256, 768), out first. Raises PackingError ``packing-option``."""
    sizes = text.split("x")
    if len(sizes) != 2 or not all(map(_is_size, sizes)):
        raise PackingError(
            "is not a shape", kind="packing-option", got=printable(repr(text)), expected="OUTxIN, 256x768 say"
        )
    return int(sizes[0]), int(sizes[1])


def tile_keys(tiles: Mapping[tuple[int, int], Tile]) -> dict[str, Any]:
    """The metadata keys in which tritgold's own files store their tiles, ``tritgold.tile.<out>x<in>``.

    >>> tile_keys({(256, 768): {"BM": 256, "BK": 128, "bm": 32}})
    {'tritgold.tile.256x768': array([256, 128,  32], dtype=uint32)}
    """
    order = ("BM", "BK", "bm")
    return {
        f"{_TILE}{m}x{k}": np.array([tile[name] for name in order if name in tile], np.uint32)
        for (m, k), tile in tiles.items()
    }


def tiles_of(metadata: Mapping[str, Any], file: object) -> dict[tuple[int, int], Tile]:
    """The inverse of ``tile_keys``; empty for files of other writers. Raises FormatError ``value``."""
    tiles: dict[tuple[int, int], Tile] = {}
    for key, value in metadata.items():
        if not key.startswith(_TILE):
            continue
        sizes = key.removeprefix(_TILE).split("x")
        sound = len(sizes) == 2 and all(map(_is_size, sizes)) and isinstance(value, np.ndarray)
        if not sound or value.ndim != 1 or value.size not in (2, 3) or value.dtype.kind != "u":
            what = "two or three unsigned numbers under tritgold.tile.<out>x<in>"
            raise FormatError("is not a tile", kind="value", file=file, thing=printable(f"key {key!r}"), expected=what)
        tiles[int(sizes[0]), int(sizes[1])] = dict(zip(("BM", "BK", "bm"), map(int, value), strict=False))
    return tiles


def _is_size(text: str) -> bool:
    """At most ten digits: for thousands of digits ``int`` raises ValueError, which is not one of our typed errors."""
    return re.fullmatch("[0-9]{1,10}", text, re.ASCII) is not None


_TILE = "tritgold.tile."
