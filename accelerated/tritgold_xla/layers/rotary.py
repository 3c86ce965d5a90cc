"""RoPE: the table of angles, and the rotation of queries and keys."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float32

from tritgold.rope_scaling import RopeScaling
from tritgold_xla.runtime.ieee import multiply


def rotation_table(
    positions: int, head_dim: int, theta: float, scaling: RopeScaling | None = None
) -> tuple[Float32[np.ndarray, "positions half"], Float32[np.ndarray, "positions half"]]:
    """(sin, cos) of position * theta ** (-2 i / head_dim), positions from 0: NumPy float64, rounded once to float32.

    scaling: its divisors divide the frequencies, its magnitude multiplies both tables.

    >>> sin, cos = rotation_table(2, 4, theta=1e4)
    >>> sin[1].round(4), cos[0]
    (array([0.8415, 0.01  ], dtype=float32), array([1., 1.], dtype=float32))
    """
    frequency = theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    magnitude = 1.0
    if scaling is not None:
        frequency, magnitude = frequency / np.array(scaling.divisors), scaling.magnitude
    angle = np.arange(positions, dtype=np.float64)[:, None] * frequency
    return (np.sin(angle) * magnitude).astype(np.float32), (np.cos(angle) * magnitude).astype(np.float32)


def rotate(
    x: Float32[jax.Array, "tokens any_heads head_dim"],
    sin: Float32[jax.Array, "tokens half"],
    cos: Float32[jax.Array, "tokens half"],
) -> Float32[jax.Array, "tokens any_heads head_dim"]:
    """RoPE: rotate each pair (x[i], x[i + half]) of each head by its token's angle. Source: arXiv 2104.09864."""
    sin, cos = sin[:, None, :], cos[:, None, :]
    first, second = jnp.split(x, 2, axis=2)
    turned = multiply(first, cos) - multiply(second, sin), multiply(second, cos) + multiply(first, sin)
    return jnp.concatenate(turned, axis=2)
