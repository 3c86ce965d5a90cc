"""kernel_config.ini of bitnet.cpp: the tile sizes of TL1 and TL2, which the weight files do not contain.

Source: microsoft/BitNet ``utils/codegen_tl1.py`` and ``utils/codegen_tl2.py``, which write it, and
``utils/convert-hf-to-gguf-bitnet.py``, which packs with it. The presets in that repository differ from what the code
generators write for the same model: use the file with which the weights were packed.
"""

import re
from configparser import ConfigParser
from configparser import Error as IniError
from pathlib import Path

from tritgold.errors import FormatError
from tritgold.formats.untrusted_text import printable, read_text

MOST_BYTES = (
    1 << 13
)  # a hundred kernels; the original's files have four, and ConfigParser takes long over many bad lines
KEYS = {"m": "M", "k": "K", "bm": "BM", "bk": "BK", "bmm": "bm"}


def tile_options(path: str | Path) -> dict[tuple[int, int], dict[str, int]]:
    """Read the options of ``packing("tl1", ...)`` and ``packing("tl2", ...)``, by the shape (out, in) of a tensor.

    ::

        [Kernels_0]
        m = 1536      out
        k = 4096      in
        bm = 256      BM
        bk = 128      BK
        bmm = 32      bm

    gives ``{(1536, 4096): {"BM": 256, "BK": 128, "bm": 32}}``. The packing, not this function, checks whether a tile
    is possible: the preset of TL2 for bitnet_b1_58-large has bmm = 64, which only TL1 supports.

    Raises FormatError: ``unreadable`` (missing, not text, or larger than 8 KiB), ``ini-syntax`` (also for a repeated
    section or key), ``ini-key`` (a missing or unknown key), ``value`` (not a positive decimal integer),
    ``duplicate-shape`` (two sections for one shape: the original takes the first) and ``ini-empty`` (no section).
    """
    path = Path(path)
    options: dict[tuple[int, int], dict[str, int]] = {}
    for section, values in _sections(path).items():
        thing = printable(f"section {section!r}")
        if values.keys() != KEYS.keys():
            raise FormatError(
                "has other keys than those of a kernel",
                kind="ini-key",
                file=path,
                thing=thing,
                got=printable(", ".join(values)) or "none",
                expected=", ".join(KEYS),
            )
        sizes = {KEYS[key]: _size(value, key, path, thing) for key, value in values.items()}
        shape = sizes.pop("M"), sizes.pop("K")
        if shape in options:
            raise FormatError(
                "a second kernel for this shape",
                kind="duplicate-shape",
                file=path,
                thing=thing,
                got=f"{shape[0]} x {shape[1]}",
                hint="only one of the two made the weights; remove the other",
            )
        options[shape] = {name: sizes[name] for name in ("BM", "BK", "bm")}
    return options


def _sections(path: Path) -> dict[str, dict[str, str]]:
    """The sections of the file: section -> key -> value, as text."""
    # No interpolation and no section of defaults: every section must contain its own values.
    parser = ConfigParser(interpolation=None, default_section="")
    try:
        parser.read_string(read_text(path, MOST_BYTES))
    except (OSError, ValueError) as error:
        raise FormatError(f"cannot be read: {printable(error)}", kind="unreadable", file=path) from error
    except IniError as error:
        raise FormatError("is not an ini file", kind="ini-syntax", file=path, got=printable(error.message)) from error
    if not parser.sections():
        raise FormatError("names no kernel", kind="ini-empty", file=path, expected="a section [Kernels_0]")
    return {section: dict(parser[section]) for section in parser.sections()}


def _size(text: str, key: str, path: Path, thing: str) -> int:
    """A positive decimal integer below 2**31, the range of the original's C int."""
    size = int(text) if re.fullmatch("[0-9]{1,10}", text, re.ASCII) else 0
    if not 0 < size < 2**31:
        raise FormatError(
            f"{key} is not a size",
            kind="value",
            file=path,
            thing=thing,
            got=printable(repr(text)),
            expected="1 .. 2**31 - 1",
        )
    return size
