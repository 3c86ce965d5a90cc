"""RoPE with half rotation: dimension i is paired with dimension i + head_dim / 2. Source: arXiv 2104.09864, GPT-NeoX.

GGUF files of the ``llama`` architecture have the rows of q and k permuted for interleaved pairs; the checkpoint reader
undoes that, so this one rotation is enough.
"""

import numpy as np
from jaxtyping import Float32, Float64, Int64

from tritgold.portable_math import inverse_powers, sin_cos
from tritgold.rope_scaling import RopeScaling


def rotation_table(
    positions: Int64[np.ndarray, " tokens"], head_dim: int, theta: float, scaling: RopeScaling | None = None
) -> tuple[Float64[np.ndarray, "tokens half"], Float64[np.ndarray, "tokens half"]]:
    """(sin, cos) of the angle position * theta ** (-2 i / head_dim), i = 0 .. head_dim / 2 - 1.

    scaling: divides each frequency by its divisor, and multiplies sin and cos by its magnitude.
    """
    frequency = inverse_powers(theta, tuple(2 * i / head_dim for i in range(head_dim // 2)))
    if scaling is None:
        return sin_cos(positions[:, None].astype(np.float64) * frequency)
    sin, cos = sin_cos(positions[:, None].astype(np.float64) * (frequency / np.array(scaling.divisors)))
    return sin * scaling.magnitude, cos * scaling.magnitude


def rotate(
    x: Float32[np.ndarray, "tokens any_heads head_dim"],
    table: tuple[Float64[np.ndarray, "tokens half"], Float64[np.ndarray, "tokens half"]],
) -> Float32[np.ndarray, "tokens any_heads head_dim"]:
    """Rotate each pair (x[i], x[i + half]) of each head by its token's angle. Position 0 changes nothing.

    >>> x = np.array([[[1, 0, 0, 0]]], np.float32)
    >>> rotate(x, rotation_table(np.array([1]), 4, theta=1e4)).round(4)
    array([[[0.5403, 0.    , 0.8415, 0.    ]]], dtype=float32)
    """
    sin, cos = (t[:, None, :] for t in table)
    half = x.shape[2] // 2
    first, second = x[..., :half].astype(np.float64), x[..., half:].astype(np.float64)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=2).astype(np.float32)
