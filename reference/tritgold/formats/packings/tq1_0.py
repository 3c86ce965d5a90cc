"""TQ1_0 (GGUF type 34): blocks of 256 weights in 52 bytes of base-3 digits, and a float16 scale.

Source: ggml ``ggml-quants.c`` (quantize_row_tq1_0_ref, dequantize_row_tq1_0) and gguf-py ``quants.py`` (TQ1_0).
"""

from typing import ClassVar

import numpy as np

from tritgold.formats.packings.packing_base import Bytes, Packing
from tritgold.formats.packings.scale_fields import float16_scales

BLOCK, BYTES = 256, 54
# For each part of a block: first weight, first byte, digits per byte, number of bytes. Digit n of the part's byte m is
# weight first weight + n * bytes + m.
PARTS = ((0, 0, 5, 32), (160, 32, 5, 16), (240, 48, 4, 4))
POWERS = np.array([1, 3, 9, 27, 81], np.uint8)


class TQ10(Packing):
    """Blocks of 256 consecutive columns = 54 bytes: 48 with five digits, 4 with four, then the scale d as float16.

    ::

        byte m = 0..31        digits 0..4 hold weights m, 32 + m, 64 + m, 96 + m, 128 + m
        byte 32 + m, m < 16   digits 0..4 hold weights 160 + m, 176 + m, 192 + m, 208 + m, 224 + m
        byte 48 + m, m < 4    digits 0..3 hold weights 240 + m, 244 + m, 248 + m, 252 + m
        bytes 52, 53          d, little-endian float16, multiplies            digit 0 1 2 = trit -1 0 +1

    A byte is a fraction of 256: with digit 0 the most significant, q = 81 d0 + 27 d1 + 9 d2 + 3 d3 + d4 is written
    as ceil(256 q / 243), so that digit n is (byte * 3**n mod 256) * 3 // 256. With four digits, d4 = 0.

    Every byte decodes to trits, so no byte is refused. But encoders write only 243 of the 256 values
    (never 1, 20, 40, 60, 79, 99, 119, 138, 158, 178, 197, 217, 237), and in bytes 48..51 only the 81 of them whose
    fifth digit is 0; ``odd_bytes`` counts the others. All blocks of a BitNet tensor have the same scale; ``unpack``
    returns the scales as stored, float32 [out, in / 256].

    >>> block = np.zeros((1, 256), np.int8); block[0, [0, 32, 161, 255]] = [1, -1, -1, 1]
    >>> packed = TQ10().pack(block, 1.0)
    >>> [packed[i : i + 1].hex() for i in (0, 1, 33, 47, 48, 51)], packed[52:].hex()
    (['b9', '80', '2b', '80', '7f', '82'], '003c')
    """

    name: ClassVar[str] = "tq1_0"
    stores_scale: ClassVar[bool] = True

    def packed_size(self, shape: tuple[int, ...]) -> int:
        """out * in / 256 * 54 bytes; rows are never padded, so in must be a multiple of 256."""
        shape = self._sizes(shape)
        if shape[1] % BLOCK:
            raise self._no_such_shape(shape, f"rows that are a multiple of {BLOCK}; {shape[1]} is not")
        return shape[0] * shape[1] // BLOCK * BYTES

    def byte_of(self, row: int, column: int, shape: tuple[int, int]) -> int:
        """54 (i // 256) + the byte of weight i % 256 in the class's map, with i = row * in + column."""
        block, place = divmod(row * shape[1] + column, BLOCK)
        first, start, _, size = next(part for part in reversed(PARTS) if place >= part[0])
        return BYTES * block + start + (place - first) % size

    def _bytes_of_row(self, columns: int) -> int | None:
        return columns // BLOCK * BYTES

    def scales(self, data: Bytes, shape: tuple[int, int]) -> np.ndarray:
        """d of each block, float32 [out, in / 256]."""
        blocks = self._checked(data, shape).reshape(-1, BYTES)
        return np.ascontiguousarray(blocks[:, 52:]).view("<f2").astype(np.float32).reshape(shape[0], -1)

    def odd_bytes(self, data: Bytes, shape: tuple[int, int]) -> int:
        """Number of bytes that decode but that no encoder writes; the class lists them."""
        payload = self._payload(self._checked(data, shape))
        return int(np.count_nonzero(ODD_OF_FIVE[payload[:, :48]]) + np.count_nonzero(ODD_OF_FOUR[payload[:, 48:]]))

    def _encode(self, codes: np.ndarray, scale: np.ndarray) -> bytes:
        d = float16_scales(self.name, scale, (codes.shape[0], codes.shape[1] // BLOCK))
        blocks = codes.reshape(-1, BLOCK)
        parts = [to_bytes(blocks[:, first : first + n * size].reshape(-1, n, size)) for first, _, n, size in PARTS]
        return np.concatenate([*parts, d.reshape(-1, 1).view(np.uint8)], axis=1).tobytes()

    def _payload(self, data: np.ndarray) -> np.ndarray:
        return data.reshape(-1, BYTES)[:, :52]

    def _count_invalid(self, data: np.ndarray, shape: tuple[int, int]) -> int:
        return 0  # every digit is 0, 1 or 2, and each is a trit

    def _decode(self, data: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        payload = self._payload(data)
        parts = [to_digits(payload[:, at : at + size], n).reshape(-1, n * size) for _, at, n, size in PARTS]
        return np.concatenate(parts, axis=1).reshape(shape)


def to_bytes(digits: np.ndarray) -> np.ndarray:
    """Base-3 digits uint8 [blocks, 4 or 5, bytes], most significant first -> bytes uint8 [blocks, bytes].

    >>> to_bytes(np.array([[[1], [1], [1], [1], [1]]], np.uint8)), to_bytes(np.array([[[1], [1], [1], [1]]], np.uint8))
    (array([[128]], dtype=uint8), array([[127]], dtype=uint8))
    """
    powers = POWERS[::-1][: digits.shape[1]].reshape(1, -1, 1)
    q = (digits * powers).sum(axis=1, dtype=np.uint16)
    return ((q * 256 + 242) // 243).astype(np.uint8)


def to_digits(packed: np.ndarray, n: int) -> np.ndarray:
    """Bytes uint8 [blocks, bytes] -> their first n digits uint8 [blocks, n, bytes], each 0, 1 or 2 for any byte.

    >>> to_digits(np.array([[128, 255]], np.uint8), 5).tolist()
    [[[1, 2], [1, 2], [1, 2], [1, 2], [1, 2]]]
    """
    rest = packed[:, None, :] * POWERS[:n].reshape(1, -1, 1)  # modulo 256: removes the digits before the n-th
    return (rest.astype(np.uint16) * 3 >> 8).astype(np.uint8)


def _odd(n: int) -> np.ndarray:
    """Booleans [256]: the bytes that differ from the encoding of their own first n digits."""
    every = np.arange(256, dtype=np.uint8).reshape(1, -1)
    return (to_bytes(to_digits(every, n)) != every).reshape(-1)


ODD_OF_FIVE, ODD_OF_FOUR = _odd(5), _odd(4)
