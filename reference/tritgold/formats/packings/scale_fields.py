"""Scales inside packed bytes: a float16 in every block, or one float32 in a trailer after the payload."""

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from tritgold.errors import PackingError
from tritgold.formats.packings.packing_base import Bytes, Packing

TRAILER = 32


class WithTrailer(Packing):
    """The payload, then a trailer of 32 bytes whose first 4 are the scale as little-endian float32, which multiplies.

    A payload without the trailer is refused (PackingError ``trailer-missing``).
    """

    stores_scale: ClassVar[bool] = True

    def scales(self, data: Bytes, shape: tuple[int, int]) -> np.ndarray:
        """The float32 after the payload."""
        return read_trailer(self._checked(data, shape))

    def _encode(self, codes: np.ndarray, scale: np.ndarray) -> bytes:
        trailer = float32_trailer(self.name, scale)
        return self._encode_payload(codes) + trailer

    @abstractmethod
    def _encode_payload(self, codes: np.ndarray) -> bytes: ...

    def _payload(self, data: np.ndarray) -> np.ndarray:
        return data[:-TRAILER]

    def _wrong_length(self, size: int, expected: int, shape: tuple[int, int]) -> PackingError:
        error = super()._wrong_length(size, expected, shape)
        if size != expected - TRAILER:
            return error
        return PackingError(
            error.message,
            kind="trailer-missing",
            got=error.got,
            expected=f"{error.expected}, a {TRAILER}-byte trailer included",
            hint="the trailer with the scale is missing",
        )


def float16_scales(name: str, scale: np.ndarray, blocks: tuple[int, int]) -> np.ndarray:
    """The scale of every block as little-endian float16 [out, blocks], rounded half to even.

    name: of the packing, for messages. scale: float32, finite, [] or [out, n]; if n is smaller than the number of
    blocks, each scale is repeated for the blocks that it covers. A scale that came from bf16 is exact in float16's
    normal range, any other float32 has a relative error of up to 2**-11. Raises PackingError ``scale-overflow`` and
    ``scale-underflow`` if float16 would hold infinity or 0 (a packer that writes 0 as the scale deletes the tensor),
    ``scale-shape`` for scales that do not fit the blocks. An exact 0 stays 0.

    >>> float16_scales("q2_0", np.asarray(np.float32(0.37)), (1, 2)).tolist()
    [[0.3701171875, 0.3701171875]]
    """
    if scale.ndim and blocks[1] % scale.shape[1]:
        raise PackingError(
            f"{name}: the scales are not those of its blocks",
            kind="scale-shape",
            got=list(scale.shape),
            expected=f"[] or {list(blocks)}",
        )
    if scale.ndim:
        scale = np.repeat(scale, blocks[1] // scale.shape[1], axis=1)
    scale = np.broadcast_to(scale, blocks)
    with np.errstate(over="ignore"):
        d = scale.astype("<f2")
    if not np.isfinite(d).all():
        raise PackingError(
            f"{name} stores its scale as float16",
            kind="scale-overflow",
            got=scale[~np.isfinite(d)][0],
            expected="at most 65504",
        )
    if ((d == 0) & (scale != 0)).any():
        raise PackingError(
            f"{name} stores its scale as float16, where this one is 0",
            kind="scale-underflow",
            got=scale[(d == 0) & (scale != 0)][0],
            expected="at least 6e-8",
        )
    return d


def float32_trailer(name: str, scale: np.ndarray) -> bytes:
    """32 bytes: the scale as little-endian float32, then 28 zero bytes, which some other writers leave undefined.

    Raises PackingError ``scale-shape`` if scale is not one number.

    >>> float32_trailer("i2_s", np.asarray(np.float32(1)))[:6].hex()
    '0000803f0000'
    """
    if scale.ndim:
        raise PackingError(f"{name} stores one scale a tensor", kind="scale-shape", got=list(scale.shape), expected=[])
    return scale.astype("<f4").tobytes() + bytes(TRAILER - 4)


def read_trailer(data: np.ndarray) -> np.ndarray:
    """float32 []: the scale in the last 32 bytes of uint8 data. The padding after it is ignored."""
    return np.asarray(data[-TRAILER : 4 - TRAILER].copy().view("<f4")[0].astype(np.float32))
