"""The gated activation of the FFN, and the residual connection."""

import jax
import jax.numpy as jnp
from jaxtyping import Float32

from tritgold.config import Activation
from tritgold_xla.runtime.ieee import divide, multiply, rounded


def gated_activation(
    gate: Float32[jax.Array, "tokens inter"], up: Float32[jax.Array, "tokens inter"], activation: Activation
) -> Float32[jax.Array, "tokens inter"]:
    """relu(gate)^2 * up, or gate / (1 + e^-gate) * up. SiLU of less than -88 is -0: e^88 overflows float32."""
    if activation == "relu2":
        positive = jnp.maximum(gate, jnp.float32(0))
        return multiply(multiply(positive, positive), up)
    return multiply(divide(gate, jnp.float32(1) + rounded(jnp.exp(-gate))), up)


def add(
    a: Float32[jax.Array, "tokens hidden"], b: Float32[jax.Array, "tokens hidden"]
) -> Float32[jax.Array, "tokens hidden"]:
    """The residual connection: a + b."""
    return a + b
