"""The gated activation of the FFN, and the residual connection."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Float32

from tritgold.config import Activation
from tritgold_xla.runtime.ieee import divide, multiply, rounded

_GELU = 2 * math.sqrt(2 / math.pi)


def gated_activation(
    gate: Float32[jax.Array, "tokens inter"], up: Float32[jax.Array, "tokens inter"], activation: Activation
) -> Float32[jax.Array, "tokens inter"]:
    """relu(gate)^2 * up, or gate / (1 + e^-gate) * up. SiLU below -88 is -0: e^88 is beyond float32.

    GELU's tanh formula is the same with 2 sqrt(2 / pi) (gate + 0.044715 gate^3) in the place of the exponent.
    """
    if activation == "relu2":
        positive = jnp.maximum(gate, jnp.float32(0))
        return multiply(multiply(positive, positive), up)
    slope = gate
    if activation == "gelu_tanh":
        cubed = multiply(multiply(gate, gate), gate)
        slope = multiply(jnp.float32(_GELU), rounded(gate + multiply(jnp.float32(0.044715), cubed)))
    return multiply(divide(gate, jnp.float32(1) + rounded(jnp.exp(-slope))), up)


def add(
    a: Float32[jax.Array, "tokens hidden"], b: Float32[jax.Array, "tokens hidden"], factor: float = 1.0
) -> Float32[jax.Array, "tokens hidden"]:
    """The residual connection: a + b * factor."""
    return a + scaled(b, factor)


def scaled(x: Float32[jax.Array, "tokens ..."], factor: float) -> Float32[jax.Array, "tokens ..."]:
    """x * factor; x itself where the factor is 1."""
    return x if factor == 1 else multiply(x, jnp.float32(factor))
