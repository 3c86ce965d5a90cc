"""Packings: how trits lie in bytes. One class a format; ``packing(name)`` finds it.

A round trip proves nothing about a layout: pack and unpack can share the same mistake. The tests therefore
compare with explicit index formulas, with digests of the original packers' output, and with gguf.
"""

from tritgold.errors import PackingError
from tritgold.formats.hf_packed import HfPacked
from tritgold.formats.i2_s import I2S
from tritgold.formats.packing_base import Packing
from tritgold.formats.tq2_0 import TQ20

PACKINGS: dict[str, Packing] = {p.name: p for p in (HfPacked(), I2S(), TQ20())}


def packing(name: str) -> Packing:
    """The packing called ``name``, one of PACKINGS. Raises PackingError with the valid names.

    >>> packing("i2_s").packed_size((256, 512))
    32800
    """
    if name not in PACKINGS:
        raise PackingError("no such packing", kind="unknown-packing", got=repr(name), expected=", ".join(PACKINGS))
    return PACKINGS[name]
