"""Place: where the arrays of a model go, and which part of each matrix: here one device, in ``sharding`` several."""

from typing import NamedTuple

import jax
import numpy as np


class Part(NamedTuple):
    """The part of a matrix [out, in] for one device. shape: on the device, padded with zeros."""

    rows: slice
    columns: slice
    shape: tuple[int, int]

    def vectors(self, stacked: np.ndarray) -> np.ndarray:
        """This part of vectors [layers, out], padded."""
        found = stacked[:, self.rows]
        return np.pad(found, ((0, 0), (0, self.shape[0] - found.shape[1])))


class Place:
    """One device, which gets every array whole. ``sharding.shards.Shards`` is the one for several devices."""

    def __init__(self, device: jax.Device) -> None:
        self.device = device

    def parts(self, role: str, shape: tuple[int, int], cut: bool = True) -> list[Part]:
        """The parts of a matrix [out, in] for the devices of this process. cut: False if it must not be divided."""
        del role, cut
        return [Part(slice(0, shape[0]), slice(0, shape[1]), shape)]

    def put(self, role: str, parts: list[np.ndarray], out: int | None, in_: int | None, cut: bool = True) -> jax.Array:
        """The array made of these parts.

        out, in_: the axis along which the parts are joined if the matrix of this role is cut along its rows, or along
        its columns; None: all parts are equal.
        """
        del role, out, in_, cut
        return jax.device_put(parts[0], self.device)

    def agreed(self, mine: bool) -> bool:
        """Whether this holds in every process."""
        return mine

    def copied(self, role: str, array: np.ndarray) -> jax.Array:
        """An array of which every device has a copy."""
        return self.put(role, [array], None, None, cut=False)


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An uninitialised array that JAX uses without a copy: it must begin at a multiple of 64 bytes."""
    size = int(np.prod(shape)) * dtype.itemsize
    buffer = np.empty(size + 64, np.uint8)
    first = -buffer.ctypes.data % 64
    return buffer[first : first + size].view(dtype).reshape(shape)
