"""What TL1 and TL2 share: nibbles that index a look-up table, tiles, one float32 scale after the payload.

Both are for bitnet.cpp's look-up-table kernels. The tile sizes are not in the weight file, only in the
``kernel_config.ini`` with which it was made: read with other sizes, every weight is still a trit, but in the wrong
place.
"""

from typing import ClassVar

import numpy as np

from tritgold.errors import PackingError
from tritgold.formats.packings.scale_fields import WithTrailer

LARGEST_PAIR = 8  # nibbles 9..15 are not a pair


class LutPacking(WithTrailer):
    """A packing in tiles whose nibbles are indices into look-up tables.

    For every pair or triple of activations a kernel first fills a table of 16 with their weighted sums for all
    possible weights; a nibble of the packing is the index of its sum. The tiles follow the kernel's loops.
    """

    invalid_code: ClassVar[str] = "a nibble beyond the table"
    invalid_kind: ClassVar[str] = "invalid-nibble"

    def _require_sizes(self, **sizes: int) -> None:
        """Refuse an option that is not a positive integer (PackingError ``packing-option``)."""
        for option, size in sizes.items():
            if type(size) is not int or size < 1:
                raise self._no_such_tile(f"{option} = {size!r}", "a positive integer")

    def _no_such_tile(self, got: str, rule: str) -> PackingError:
        return PackingError(f"{self.name} has no such tile", kind="packing-option", got=got, expected=rule)


def pack_pairs(codes: np.ndarray) -> np.ndarray:
    """Codes 0, 1, 2 uint8 [rows, 4 n] -> bytes uint8 [rows, n], four columns each, the first two in the high nibble.

    A pair (w0, w1) is the nibble 3 w0 + w1 + 4, which is 3 c0 + c1 in codes c = w + 1.

    >>> pack_pairs(np.array([[1, 1, 1, 1, 2, 1, 0, 2]], np.uint8)).tobytes().hex()
    '4472'
    """
    pairs = 3 * codes[:, 0::2] + codes[:, 1::2]
    return pairs[:, 0::2] << 4 | pairs[:, 1::2]


def unpack_pairs(packed: np.ndarray) -> np.ndarray:
    """The inverse: uint8 [rows, n] -> [rows, 4 n]; for a nibble 9..15, which is not a pair, both codes are 3.

    >>> unpack_pairs(np.array([[0x72, 0x49]], np.uint8)).tolist()
    [[2, 1, 0, 2, 1, 1, 3, 3]]
    """
    nibbles = split_nibbles(packed)
    codes = np.stack((nibbles // 3, nibbles % 3), axis=-1)
    codes[nibbles > LARGEST_PAIR] = 3
    return codes.reshape(packed.shape[0], 4 * packed.shape[1])


def split_nibbles(packed: np.ndarray) -> np.ndarray:
    """Bytes uint8 [rows, n] -> nibbles uint8 [rows, 2 n], the high one first."""
    return np.stack((packed >> 4, packed & 15), axis=-1).reshape(packed.shape[0], 2 * packed.shape[1])


def count_above(packed: np.ndarray, largest: int) -> int:
    """The number of nibbles larger than ``largest``."""
    return int(np.count_nonzero(packed >> 4 > largest) + np.count_nonzero((packed & 15) > largest))
