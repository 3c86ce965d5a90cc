"""Products of float32 with numbers that are stored as bfloat16, by the library's product of bfloat16.

XLA's fast product takes bfloat16 on both sides, and a product in float32 would convert what is stored first. So the
float32 side is split into three bfloat16 numbers (8 bits of the significand each), whose sum is exactly that side, and
the three products are added. Only sums are rounded. Not exact are pieces below 1.2e-38, which XLA-CPU takes for zero.
Numbers above 3.39e38 become NaN, as infinity does: their first piece is infinity, and the rest infinity less infinity.
"""

import jax
import jax.numpy as jnp

PIECES = 3


def pieces(x: jax.Array) -> list[jax.Array]:
    """Three bfloat16 arrays of the shape of x, float32, of which each holds what the ones before it leave."""
    found, rest = [], x
    for _ in range(PIECES):
        piece = rest.astype(jnp.bfloat16)
        found.append(piece)
        rest = rest - piece.astype(jnp.float32)
    return found


def added(largest: jax.Array, middle: jax.Array, smallest: jax.Array) -> jax.Array:
    """The sum of the products with the pieces, the small ones first."""
    return largest + (middle + smallest)
