"""What differs from layer to layer in one scan over all of them: the table of RoPE, and the window of attention."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int32

from tritgold.config import MAX_CONTEXT, ModelConfig


def of_layer(config: ModelConfig, rows: jax.Array, layer: Int32[jax.Array, ""] | np.int32) -> jax.Array:
    """RoPE's rows [tokens, half] of a layer: of a model with two tables, [2, tokens, half], its own."""
    if config.local_rope_theta is None:
        return rows
    local = np.array([config.window_of(n) is not None for n in range(config.layers)])
    return jnp.where(jnp.asarray(local)[layer], rows[1], rows[0])


def window_begins(
    config: ModelConfig, positions: Int32[jax.Array, " tokens"] | np.ndarray, layer: Int32[jax.Array, ""] | np.int32
) -> Int32[jax.Array, " tokens"] | None:
    """The first position that each token sees in a layer; None for a model whose layers see all."""
    if config.window is None:
        return None
    windows = np.array([config.window_of(n) or MAX_CONTEXT for n in range(config.layers)], np.int32)
    return jnp.maximum(positions - jnp.asarray(windows)[layer] + 1, 0)
