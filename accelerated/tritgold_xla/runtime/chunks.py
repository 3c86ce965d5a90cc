"""Chunk sizes: programs are compiled for a few numbers of tokens, and every chunk is padded to one of them."""

from collections.abc import Iterator

import numpy as np

from tritgold.graph import Traced

CHUNKS = (1, 8, 32, 128)


def bucket(tokens: int) -> int:
    """The number of tokens, padding included, of the program that reads ``tokens`` tokens.

    >>> [bucket(n) for n in (1, 2, 33, 128, 129)]
    [1, 8, 128, 128, 256]
    """
    for size in CHUNKS:
        if tokens <= size:
            return size
    return -(-tokens // CHUNKS[-1]) * CHUNKS[-1]


def chunks(tokens: int, largest: int = CHUNKS[-1]) -> Iterator[slice]:
    """Slices of at most ``largest`` tokens that cover ``tokens``, in order.

    >>> list(chunks(150))
    [slice(0, 128, None), slice(128, 150, None)]
    """
    return (slice(first, min(first + largest, tokens)) for first in range(0, tokens, largest))


def whole_blocks(block: int) -> int:
    """The size of a chunk of whole blocks: as many as fit into the largest chunk, or one block if it is longer.

    >>> [whole_blocks(n) for n in (32, 50, 150)]
    [128, 100, 150]
    """
    return max(1, CHUNKS[-1] // block) * block


def pad(array: np.ndarray, size: int, axis: int = 0) -> np.ndarray:
    """``array`` padded with zeros at the end of ``axis`` to ``size``."""
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, size - array.shape[axis])
    return np.pad(array, widths)


def crop(traced: Traced, array: np.ndarray, tokens: int, keys: int) -> np.ndarray:
    """A copy of an array without its padding: ``tokens`` tokens and, for softmax weights, ``keys`` keys."""
    ends = {"tokens": tokens, "keys": keys}
    return np.array(array[tuple(slice(ends.get(axis)) for axis in traced.axes)])
