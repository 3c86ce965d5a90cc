"""Token embedding: a look-up without scaling."""

import jax
import jax.numpy as jnp
from jaxtyping import Float, Float32, Int32


def embed(
    tokens: Int32[jax.Array, " tokens"], table: Float[jax.Array, "vocab hidden"]
) -> Float32[jax.Array, "tokens hidden"]:
    """The embedding rows of the tokens, exactly. Ids must be below vocab, which the engine checks."""
    return jnp.take(table, tokens, axis=0, mode="clip").astype(jnp.float32)
