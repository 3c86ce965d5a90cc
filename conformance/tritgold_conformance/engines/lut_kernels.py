"""The arithmetic of TL1 and TL2 (look-up tables of sums) and of weights stored as codes 0 to 2, in NumPy.

TL1 makes, for every pair of activations, a table of their nine possible sums, and reads it at the nibble of the pair;
TL2 does so for triples, with 14 magnitudes and a sign, and for the pairs that are left if the columns are not
divisible by three. The packings arrange these nibbles in tiles; here the rows are stored one after the other.

With codes w + 1 a product needs no sign: sum (w + 1) a = sum w a + sum a, and the last term is one sum per token.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tritgold.formats.packings.lut_packing import pack_pairs, split_nibbles

PAIRS = np.array([[n // 3 - 1, n % 3 - 1] for n in range(9)], np.int32)  # nibble 3 w0 + w1 + 4
# Magnitude |v| of v = 9 w0 + 3 w1 + w2, 0 .. 13 -> the trits of the v that is not negative.
TRIPLES = np.array([[(n + 13) // 9 - 1, (n + 13) // 3 % 3 - 1, (n + 13) % 3 - 1] for n in range(14)], np.int32)
SAMPLE = 256  # rows of the slow kernels, which would take minutes for all of them
Run = Callable[[np.ndarray], np.ndarray]


class Lut(NamedTuple):
    """Indices of tables. pairs: uint8 [rows, pairs]; triples: int8 [rows, triples], the magnitude; negative: bool."""

    pairs: np.ndarray
    triples: np.ndarray
    negative: np.ndarray

    @property
    def bytes(self) -> int:
        """Their size in the packings: half a byte for an index, one bit for a sign."""
        return (self.pairs.size + self.triples.size) // 2 + self.triples.size // 8


def tl1(trits: np.ndarray) -> Lut:
    """int8 [rows, in], in a multiple of 4."""
    nibbles = split_nibbles(pack_pairs((trits + 1).astype(np.uint8)))
    none = np.zeros((trits.shape[0], 0), np.int8)
    return Lut(nibbles, none, none.astype(bool))


def tl2(trits: np.ndarray) -> Lut:
    """int8 [rows, in], in a multiple of 4: triples for the first multiple of 12 columns, pairs for the rest."""
    in_ = trits.shape[1]
    wide = in_ // 12 * 12
    value = trits[:, :wide].reshape(trits.shape[0], -1, 3) @ np.array([9, 3, 1], np.int8)
    rest = tl1(trits[:, wide:]) if wide < in_ else Lut(*(np.zeros((trits.shape[0], 0), np.uint8),) * 3)
    return Lut(rest.pairs, np.abs(value), value < 0)


def table_product(lut: Lut) -> Run:
    """codes int8 [tokens, in] -> int32 [tokens, rows]; triples come first among the columns."""
    wide = 3 * lut.triples.shape[1]
    at_triples = np.arange(lut.triples.shape[1], dtype=np.intp) * 14 + lut.triples
    at_pairs = np.arange(lut.pairs.shape[1], dtype=np.intp) * 9 + lut.pairs

    def run(codes: np.ndarray) -> np.ndarray:
        found = []
        for token in codes.astype(np.int32):
            sums = np.take((token[wide:].reshape(-1, 2) @ PAIRS.T).reshape(-1), at_pairs).sum(axis=1, dtype=np.int32)
            threes = np.take((token[:wide].reshape(-1, 3) @ TRIPLES.T).reshape(-1), at_triples)
            found.append(sums + np.where(lut.negative, -threes, threes).sum(axis=1, dtype=np.int32))
        return np.stack(found)

    return run


def shifted_by_rows(trits: np.ndarray) -> Run:
    """A product with codes w + 1, one row of the weights at a time. trits: int8 [rows, in]."""
    shifted = (trits + 1).astype(np.int32)

    def run(codes: np.ndarray) -> np.ndarray:
        wide = codes.astype(np.int32)
        once = wide.sum(axis=1, dtype=np.int32)
        return np.stack([(wide * row).sum(axis=1, dtype=np.int32) - once for row in shifted], axis=1)

    return run


def shifted_by_columns(trits: np.ndarray) -> Run:
    """The same, one column of the weights at a time, which adds to the sums of all rows."""
    columns = np.ascontiguousarray((trits + 1).astype(np.int32).T)

    def run(codes: np.ndarray) -> np.ndarray:
        wide = codes.astype(np.int32)
        total = np.zeros((wide.shape[0], columns.shape[1]), np.int32)
        for j, column in enumerate(columns):
            total += wide[:, j, None] * column
        return total - wide.sum(axis=1, dtype=np.int32)[:, None]

    return run
