"""Packed trits: two bits a weight, the only copy of a ternary matrix that the engine keeps.

The layout is the engine's own. A row of ``in`` trits is cut into four runs of n = ceil(in / 4); byte j holds the j-th
trit of each run, the first in its lowest bits. Unpacking is then four shifts whose results stand side by side, with
no interleaving. Code = trit + 1; a last run that is short is filled with code 1, the trit 0.

    byte j:  bits 0-1  column j        bits 2-3  column n + j
             bits 4-5  column 2n + j   bits 6-7  column 3n + j
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int8, UInt8

_RUNS = 4


def pack(trits: Int8[np.ndarray, "out in"]) -> UInt8[np.ndarray, "out bytes"]:
    """Pack a matrix of -1, 0, +1; bytes = ceil(in / 4). Other values are the caller's mistake and not looked for.

    >>> pack(np.array([[1, 0, -1, 1, -1]], np.int8))  # runs (1, 0), (-1, 1), (-1, 0), (0, 0) with n = 2
    array([[66, 89]], dtype=uint8)
    """
    out, in_ = trits.shape
    run = -(-in_ // _RUNS)
    codes = np.ones((out, _RUNS * run), np.uint8)
    codes[:, :in_] = trits + np.int8(1)
    planes = np.zeros((out, run), np.uint8)
    for index in range(_RUNS):
        planes |= codes[:, index * run : (index + 1) * run] << np.uint8(2 * index)
    return planes


def unpack(planes: UInt8[jax.Array, "out bytes"], in_: int) -> Int8[jax.Array, "out in"]:
    """The trits again, inside a compiled program. in_ must be the width that was packed.

    >>> unpack(jnp.array([[66, 89]], jnp.uint8), in_=5).tolist()
    [[1, 0, -1, 1, -1]]
    """
    shifts = jnp.arange(0, 2 * _RUNS, 2, dtype=jnp.uint8)
    codes = (planes[:, None, :] >> shifts[None, :, None]) & jnp.uint8(3)
    trits = codes.astype(jnp.int8) - jnp.int8(1)
    return trits.reshape(planes.shape[0], -1)[:, :in_]
