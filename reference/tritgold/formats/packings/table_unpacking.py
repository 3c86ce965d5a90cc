"""Unpacking by look-up table: a byte has 256 values, so its four codes are one read from a table of 1 KB.

A second implementation of every layout in which a byte alone determines four trits. Engines unpack this way; the
packings themselves use shifts, because shifts show the bits. Tests compare both for all bytes.
"""

import numpy as np

from tritgold.errors import PackingError
from tritgold.formats.packings.gpu_int2 import GpuInt2
from tritgold.formats.packings.hf_packed import HfPacked
from tritgold.formats.packings.i2_s import I2S, I2S4Rows, SglBitnt
from tritgold.formats.packings.packing_base import Bytes, Packing
from tritgold.formats.packings.q2_0 import Q20
from tritgold.formats.packings.sequential import Sequential, TorchAO
from tritgold.formats.packings.tq2_0 import TQ20


def code_table(meaning: tuple[int, int, int, int] = (0, 1, 2, 3), high_first: bool = False) -> np.ndarray:
    """uint8 [256, 4]: the codes in the four pairs of bits of every byte, lowest pair first unless ``high_first``.

    meaning: trit + 1 for each value 0..3 of a pair; more than 2 if the value is not a trit.

    >>> code_table()[0b10_01_00_11].tolist(), code_table(high_first=True)[0b10_01_00_11].tolist()
    ([3, 0, 1, 2], [2, 1, 0, 3])
    """
    pairs = np.indices((4, 4, 4, 4)).reshape(4, 256).T  # the base-4 digits of 0..255, highest first
    return np.ascontiguousarray(np.array(meaning, np.uint8)[pairs if high_first else pairs[:, ::-1]])


_LOW, _HIGH = code_table(), code_table(high_first=True)
_TWOS_COMPLEMENT = code_table((1, 2, 3, 0), high_first=True)
_FROM_ONE = code_table((255, 0, 1, 2))


def codes_by_table(layout: Packing, data: Bytes, shape: tuple[int, int]) -> np.ndarray:
    """The same as ``layout.codes(data, shape)``, uint8 [out, in], with one table read per byte.

    Raises PackingError as ``codes`` does, and ``no-table`` for a layout in which a byte alone does not determine trits.

    >>> codes_by_table(I2S(), I2S().pack(np.eye(16, dtype=np.int8)), (16, 16)).diagonal().tolist() == [2] * 16
    True
    """
    table, run = _table_and_run(layout, shape)
    # Four codes are read as one 32-bit word: NumPy then copies a word for each byte, not a row of four.
    codes = np.take(table.view(np.uint32).reshape(256), layout.payload(data, shape)).view(np.uint8)
    codes = codes.reshape(-1, run, 4).swapaxes(1, 2)
    if isinstance(layout, GpuInt2):
        # Words of 16 columns: tile row, tile column, upper or lower 8 rows, left or right word, row.
        words = codes.reshape(shape[0] // 16, shape[1] // 32, 2, 2, 8, 16)
        return words.transpose(0, 2, 4, 1, 3, 5).reshape(shape)
    return codes.reshape(-1, shape[1])[: shape[0]]


def _table_and_run(layout: Packing, shape: tuple[int, int]) -> tuple[np.ndarray, int]:
    """The table of a layout, and r: each run of r bytes holds 4r weights, the first r of them in the first pairs."""
    match layout:
        case HfPacked():
            return _LOW, -(-shape[0] // 4) * shape[1]
        case I2S():
            return _HIGH, layout.block // 4
        case SglBitnt():
            return _HIGH, 32
        case I2S4Rows():
            return _HIGH, shape[1]
        case Sequential():
            return _LOW if layout.order == "lsb" else _HIGH, 1
        case TorchAO():
            return _TWOS_COMPLEMENT, 1
        case Q20():
            return _LOW, 1
        case TQ20():
            return _LOW, 32
        case GpuInt2():
            return _FROM_ONE, 4
    raise PackingError(f"{layout.name}: a byte alone does not say its trits", kind="no-table")
