"""Hugging Face packed uint8: a byte holds four rows that are a quarter of the matrix apart.

Source: transformers 5.24 ``integrations/bitnet.py`` (pack_weights, unpack_weights).
"""

from typing import ClassVar

import numpy as np

from tritgold.formats.packings.packing_base import Bytes, Packing


class HfPacked(Packing):
    """uint8 [R, in] with R = ceil(out / 4): byte (r, c) holds column c of rows r, R + r, 2R + r, 3R + r.

    ::

        bits   7 6      5 4      3 2      1 0
        row  3R + r   2R + r    R + r      r        code 0 1 2 = trit -1 0 +1

    Blocked, not interleaved: reading a byte as rows 4r .. 4r + 3 permutes the rows of every matrix, and the histogram
    and the set of row sums do not show it. If out is not a multiple of 4, the surplus rows hold code 0, as
    transformers writes them, and are dropped on unpacking. The scale is a separate tensor, ``weight_scale``.

    Checkpoints of transformers and onebitllms use it: microsoft/bitnet-b1.58-2B-4T, Falcon3 and Llama3 1.58-bit.
    transformers reads code 3 as +2 without a warning; here it is refused.

    >>> column = np.array([[-1], [0], [1], [-1], [0], [1], [-1], [0]], np.int8)
    >>> HfPacked().pack(column).hex()
    '1861'
    """

    name: ClassVar[str] = "hf"
    stores_scale: ClassVar[bool] = False

    def packed_size(self, shape: tuple[int, ...]) -> int:
        """ceil(out / 4) * in bytes; any shape."""
        shape = self._sizes(shape)
        return -(-shape[0] // 4) * shape[1]

    def byte_of(self, row: int, column: int, shape: tuple[int, int]) -> int:
        """(row % R) * in + column."""
        return row % -(-shape[0] // 4) * shape[1] + column

    def odd_bytes(self, data: Bytes, shape: tuple[int, int]) -> int:
        """Surplus entries (where out is not a multiple of 4) with another code than the 0 that encoders write."""
        quarter = -(-shape[0] // 4)
        packed = self._checked(data, shape).reshape(quarter, -1)
        surplus = [
            (packed[row % quarter] >> np.uint8(2 * (row // quarter))) & 3 for row in range(shape[0], 4 * quarter)
        ]
        return sum(int(np.count_nonzero(row)) for row in surplus)

    def _encode(self, codes: np.ndarray, scale: np.ndarray) -> bytes:
        rows, columns = codes.shape
        quarters = np.zeros((4, -(-rows // 4), columns), np.uint8)
        quarters.reshape(-1, columns)[:rows] = codes
        return (quarters[0] | quarters[1] << 2 | quarters[2] << 4 | quarters[3] << 6).tobytes()

    def _decode(self, data: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        rows, columns = shape
        packed = data.reshape(-1, columns)
        quarters = np.stack([(packed >> shift) & 3 for shift in (0, 2, 4, 6)])
        return quarters.reshape(-1, columns)[:rows]

    def _decode_rows(self, data: np.ndarray, shape: tuple[int, int], rows: slice) -> np.ndarray:
        size, columns = -(-shape[0] // 4), shape[1]
        packed, found = data.reshape(size, columns), np.empty((rows.stop - rows.start, columns), np.uint8)
        for quarter in range(4):
            low, high = max(rows.start, quarter * size), min(rows.stop, (quarter + 1) * size)
            if low < high:
                part = packed[low - quarter * size : high - quarter * size]
                found[low - rows.start : high - rows.start] = (part >> np.uint8(2 * quarter)) & 3
        return found
