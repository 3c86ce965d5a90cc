"""RMSNorm."""

import jax
import jax.numpy as jnp
from jaxtyping import Float32

from tritgold_xla.runtime.ieee import divide, multiply, tree_sum


def rms_norm(
    x: Float32[jax.Array, "tokens width"], gain: Float32[jax.Array, " width"], eps: float
) -> Float32[jax.Array, "tokens width"]:
    """x / sqrt(mean(x^2) + eps) * gain. Source: arXiv 1910.07467.

    A zero token gives zeros. Infinity or NaN in a token makes that token NaN, and so does a sum of squares that
    overflows float32 (|x| above 1e19): dividing by infinity would give zeros, which look plausible.
    """
    mean_square = multiply(tree_sum(multiply(x, x)), jnp.float32(1 / x.shape[1]))
    mean_square = jnp.where(jnp.isinf(mean_square), jnp.float32(jnp.nan), mean_square)
    rms = jnp.sqrt(mean_square + jnp.float32(eps))
    return multiply(divide(x, rms[:, None]), gain)


def norm_heads(
    x: Float32[jax.Array, "tokens width"], gain: Float32[jax.Array, " head_dim"], eps: float
) -> Float32[jax.Array, "tokens heads head_dim"]:
    """RMSNorm of each head by itself."""
    rows = rms_norm(x.reshape(-1, gain.shape[0]), gain, eps)
    return rows.reshape(x.shape[0], -1, gain.shape[0])
