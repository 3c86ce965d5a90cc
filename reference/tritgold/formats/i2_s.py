"""I2_S (GGUF type 36 of the bitnet.cpp fork): 128 weights in 32 bytes, and one scale behind them all.

Source: microsoft/BitNet ``src/ggml-bitnet-mad.cpp`` (quantize_i2_s) and ``utils/convert-hf-to-gguf-bitnet.py``.
"""

from typing import ClassVar

import numpy as np

from tritgold.errors import PackingError
from tritgold.formats.packing_base import Bytes, Packing

TRAILER = 32


class I2S(Packing):
    """The matrix flat, in blocks of 128 weights = 32 bytes: byte p holds weights p, p + 32, p + 64, p + 96.

    ::

        bits   7 6    5 4     3 2     1 0
        weight  p    p + 32  p + 64  p + 96        code 0 1 2 = trit -1 0 +1

    Behind the payload of out * in / 4 bytes lies a trailer of 32: the scale as little-endian float32, which
    multiplies, and 28 bytes of padding that some writers leave undefined and nobody may compare.

    Builds of bitnet.cpp for ARM since November 2025 use blocks of 64 weights in 16 bytes under the same type
    number, and nothing in a file tells which it is; this class is the 128 / 32 of x86 and of every published file.

    >>> block = np.zeros((1, 128), np.int8); block[0, [0, 1, 32, 127]] = [1, -1, 1, -1]
    >>> I2S().pack(block, 1.0)[:32].hex()
    'a515555555555555555555555555555555555555555555555555555555555554'
    """

    name: ClassVar[str] = "i2_s"
    stores_scale: ClassVar[bool] = True

    def packed_size(self, shape: tuple[int, ...]) -> int:
        """out * in / 4 + 32 bytes; out * in must be a multiple of 128 (a block may straddle two rows)."""
        count = shape[0] * shape[1]
        if count % 128:
            raise self._no_such_shape(shape, "out * in a multiple of 128")
        return count // 4 + TRAILER

    def byte_of(self, row: int, column: int, shape: tuple[int, int]) -> int:
        """Block and place in it, from the flat index."""
        block, place = divmod(row * shape[1] + column, 128)
        return 32 * block + place % 32

    def scales(self, data: Bytes, shape: tuple[int, int]) -> np.ndarray:
        """The float32 behind the payload."""
        flat = self._checked(data, shape)
        return flat[-TRAILER : 4 - TRAILER].copy().view("<f4")[0].astype(np.float32)

    def _encode(self, codes: np.ndarray, scale: np.ndarray) -> bytes:
        if scale.ndim:
            raise PackingError("i2_s stores one scale a tensor", kind="scale-shape", got=list(scale.shape), expected=[])
        g = codes.reshape(-1, 4, 32)
        payload = g[:, 0] << 6 | g[:, 1] << 4 | g[:, 2] << 2 | g[:, 3]
        return payload.tobytes() + scale.astype("<f4").tobytes() + bytes(TRAILER - 4)

    def _payload(self, data: np.ndarray) -> np.ndarray:
        return data[:-TRAILER]

    def _decode(self, data: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        payload = self._payload(data).reshape(-1, 1, 32)
        shifts = np.array([6, 4, 2, 0], np.uint8).reshape(1, 4, 1)
        return ((payload >> shifts) & 3).reshape(shape)

    def _wrong_length(self, size: int, expected: int, shape: tuple[int, int]) -> PackingError:
        error = super()._wrong_length(size, expected, shape)
        if size != expected - TRAILER:
            return error
        return PackingError(
            error.message,
            kind="trailer-missing",
            got=error.got,
            expected=f"{error.expected} ({shape[0]} x {shape[1]} trits / 4 + {TRAILER}-byte trailer)",
            hint="the trailer with the scale is missing",
        )
