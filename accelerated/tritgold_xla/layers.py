"""The float operations of a ternary decoder in float32: pure functions of arrays, used by the whole pass and alone.

Axis names: ``tokens`` positions of a chunk, padding included; ``capacity`` positions of the KV cache; ``heads`` is a
multiple of ``kv_heads``; ``half`` is head_dim / 2; ``inter`` the FFN's inner width. Every product and quotient goes
through ``ieee``, so a token's result does not depend on the chunk that it is computed in.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Float32, Int32

from tritgold.config import Activation
from tritgold_xla.ieee import divide, multiply, rounded, tree_sum


def embed(
    tokens: Int32[jax.Array, " tokens"], table: Float[jax.Array, "vocab hidden"]
) -> Float32[jax.Array, "tokens hidden"]:
    """The embedding rows of the tokens, exactly. Ids must be below vocab; the engine checks."""
    return jnp.take(table, tokens, axis=0, mode="clip").astype(jnp.float32)


def rms_norm(
    x: Float32[jax.Array, "tokens width"], gain: Float32[jax.Array, " width"], eps: float
) -> Float32[jax.Array, "tokens width"]:
    """x / sqrt(mean(x^2) + eps) * gain. Source: arXiv 1910.07467.

    A zero token gives zeros. Infinity or NaN in a token makes that token NaN, and so does a sum of squares beyond
    float32 (|x| above 1e19): dividing by infinity would make a plausible zero of it.
    """
    mean_square = multiply(tree_sum(multiply(x, x)), jnp.float32(1 / x.shape[1]))
    mean_square = jnp.where(jnp.isinf(mean_square), jnp.float32(jnp.nan), mean_square)
    rms = jnp.sqrt(mean_square + jnp.float32(eps))
    return multiply(divide(x, rms[:, None]), gain)


def rotation_table(
    positions: int, head_dim: int, theta: float
) -> tuple[Float32[np.ndarray, "positions half"], Float32[np.ndarray, "positions half"]]:
    """(sin, cos) of position * theta ** (-2 i / head_dim), for positions 0 and up: NumPy float64, rounded once.

    >>> sin, cos = rotation_table(2, 4, theta=1e4)
    >>> sin[1].round(4), cos[0]
    (array([0.8415, 0.01  ], dtype=float32), array([1., 1.], dtype=float32))
    """
    frequency = theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    angle = np.arange(positions, dtype=np.float64)[:, None] * frequency
    return np.sin(angle).astype(np.float32), np.cos(angle).astype(np.float32)


def rotate(
    x: Float32[jax.Array, "tokens any_heads head_dim"],
    sin: Float32[jax.Array, "tokens half"],
    cos: Float32[jax.Array, "tokens half"],
) -> Float32[jax.Array, "tokens any_heads head_dim"]:
    """RoPE: turn each pair (x[i], x[i + half]) of each head by its token's angle. Source: arXiv 2104.09864."""
    sin, cos = sin[:, None, :], cos[:, None, :]
    first, second = jnp.split(x, 2, axis=2)
    turned = multiply(first, cos) - multiply(second, sin), multiply(second, cos) + multiply(first, sin)
    return jnp.concatenate(turned, axis=2)


def gated_activation(
    gate: Float32[jax.Array, "tokens inter"], up: Float32[jax.Array, "tokens inter"], activation: Activation
) -> Float32[jax.Array, "tokens inter"]:
    """relu(gate)^2 * up, or gate / (1 + e^-gate) * up. SiLU below -88 is -0: e^88 is beyond float32."""
    if activation == "relu2":
        positive = jnp.maximum(gate, jnp.float32(0))
        return multiply(multiply(positive, positive), up)
    return multiply(divide(gate, jnp.float32(1) + rounded(jnp.exp(-gate))), up)


def add(
    a: Float32[jax.Array, "tokens hidden"], b: Float32[jax.Array, "tokens hidden"]
) -> Float32[jax.Array, "tokens hidden"]:
    """The residual connection."""
    return a + b
