"""Packings: how trits lie in bytes. One class a format; ``packing(name)`` finds it.

A round trip proves nothing about a layout: pack and unpack can share the same mistake. The tests therefore
compare with explicit index formulas, with digests of the original packers' output, and with gguf.
"""

from tritgold.errors import PackingError
from tritgold.formats.hf_packed import HfPacked
from tritgold.formats.i2_s import I2S
from tritgold.formats.packing_base import Packing
from tritgold.formats.tq2_0 import TQ20

PACKINGS: dict[str, type[Packing]] = {layout.name: layout for layout in (HfPacked, I2S, TQ20)}


def packing(name: str, **options: int | str) -> Packing:
    """The packing called ``name``, one of PACKINGS, with its options, which are its constructor's.

    Raises PackingError for an unknown name (``unknown-packing``), for an option that the format does not have and
    for a value it cannot take (``packing-option``).

    >>> packing("i2_s").packed_size((256, 512))
    32800
    """
    if name not in PACKINGS:
        raise PackingError("no such packing", kind="unknown-packing", got=repr(name), expected=", ".join(PACKINGS))
    try:
        return PACKINGS[name](**options)
    except TypeError as error:
        raise PackingError(
            f"{name} has no such option", kind="packing-option", got=", ".join(options) or "none", hint=str(error)
        ) from None
