"""Codes of 1 to 8 bits packed without gaps, the first in the lowest bits."""

import numpy as np


def packed_bytes(count: int, bits: int) -> int:
    """Bytes of ``count`` codes; the last byte may have unused bits."""
    return -(-count * bits // 8)


def pack_codes(codes: np.ndarray, bits: int) -> np.ndarray:
    """uint8 [..., count], each below 2**bits -> uint8 [..., packed_bytes]. Bit b of code i is bit i * bits + b.

    For 2, 4 and 8 bits these are the bytes of little-endian int32 words with the first code in the low bits.

    >>> pack_codes(np.array([1, 2, 7], np.uint8), 3).tolist()  # 111 010 001, from the right
    [209, 1]
    """
    single = codes[..., None] >> np.arange(bits, dtype=np.uint8) & np.uint8(1)
    flat = single.reshape(*codes.shape[:-1], codes.shape[-1] * bits)
    return np.packbits(flat, axis=-1, bitorder="little")


def unpack_codes(packed: np.ndarray, bits: int, count: int) -> np.ndarray:
    """The inverse: uint8 [..., packed_bytes] -> uint8 [..., count].

    >>> unpack_codes(np.array([209, 1], np.uint8), 3, 3).tolist()
    [1, 2, 7]
    """
    flat = np.unpackbits(packed, axis=-1, count=count * bits, bitorder="little")
    single = flat.reshape(*packed.shape[:-1], count, bits)
    return (single << np.arange(bits, dtype=np.uint8)).sum(axis=-1, dtype=np.uint8)
