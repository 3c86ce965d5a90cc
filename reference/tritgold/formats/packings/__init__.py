"""Packings: how trits are stored in bytes. One class per format; ``packing(name)`` makes it.

A round trip proves nothing about a layout: pack and unpack can share the same mistake. The tests therefore
compare with explicit index formulas, with digests of the original packers' output, and with the package gguf.
"""

import inspect

from tritgold.errors import PackingError
from tritgold.formats.packings.gpu_int2 import GpuInt2
from tritgold.formats.packings.hf_packed import HfPacked
from tritgold.formats.packings.i2_s import I2S, I2S4Rows, SglBitnt
from tritgold.formats.packings.iq_bn import IQ1BN, IQ2BN, IQ2BNR4
from tritgold.formats.packings.packing_base import Packing
from tritgold.formats.packings.q2_0 import Q10, Q20
from tritgold.formats.packings.sequential import Sequential, TorchAO
from tritgold.formats.packings.ternary_floats import BF16, F16, F32
from tritgold.formats.packings.tl1 import TL1
from tritgold.formats.packings.tl2 import TL2
from tritgold.formats.packings.tq1_0 import TQ10
from tritgold.formats.packings.tq2_0 import TQ20
from tritgold.formats.untrusted_text import printable

_LAYOUTS: tuple[type[Packing], ...] = (
    *(HfPacked, I2S, I2S4Rows, SglBitnt, Sequential, GpuInt2, TorchAO),
    *(TL1, TL2),
    *(TQ10, TQ20, Q20, Q10),
    *(IQ1BN, IQ2BN, IQ2BNR4),
    *(F32, F16, BF16),
)
PACKINGS: dict[str, type[Packing]] = {layout.name: layout for layout in _LAYOUTS}


def packing(name: str, **options: int | str) -> Packing:
    """The packing called ``name``, one of PACKINGS. options: the arguments of its constructor.

    Raises PackingError for an unknown name (``unknown-packing``), and for an option that the format does not have, a
    required option that is not given, or an impossible value (``packing-option``).

    >>> packing("i2_s").packed_size((256, 512))
    32800
    """
    if not isinstance(name, str) or name not in PACKINGS:
        got, known = printable(repr(name)), ", ".join(PACKINGS)
        raise PackingError("no such packing", kind="unknown-packing", got=got, expected=known)
    try:
        return PACKINGS[name](**options)
    except TypeError:
        raise _wrong_options(name, list(options)) from None


def _wrong_options(name: str, given: list[str]) -> PackingError:
    has = inspect.signature(PACKINGS[name]).parameters
    unknown = [option for option in given if option not in has]
    missing = [option for option, rule in has.items() if rule.default is rule.empty and option not in given]
    wrong, which = ("has no option", unknown) if unknown else ("needs the option", missing)
    return PackingError(
        f"{name} {wrong} {printable(', '.join(map(repr, which)))}",
        kind="packing-option",
        got=printable(", ".join(given)) or "none",
        expected=", ".join(has) or "none",
    )
