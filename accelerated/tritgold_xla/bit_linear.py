"""The ternary linear layer: float32 activations -> int8 codes -> exact int32 accumulators -> float32.

Nothing here depends on the order of a sum or on what the compiler fuses: equal inputs give the golden model's bits.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Bool, Float32, Int8, Int32, UInt8

from tritgold.config import ScaleRule
from tritgold_xla.ieee import divide, multiply
from tritgold_xla.packed import unpack


class PackedLinear(NamedTuple):
    """A ternary weight on the device: packed planes uint8 [out, bytes] and one scale float32 [].

    Stacked over layers both have a leading axis of that length.
    """

    planes: jax.Array
    scale: jax.Array


def quantize(
    x: Float32[jax.Array, "tokens in"],
) -> tuple[Int8[jax.Array, "tokens in"], Float32[jax.Array, " tokens"]]:
    """(codes, scale): s = 127 / max(max|x|, 1e-5), code = clamp(half_even(x * s), -128, 127), each token by itself.

    A zero token gives codes 0 and s = 1.27e7. Infinity and NaN give meaningless codes: see ``finite_tokens``.
    Source: arXiv 2402.17764; transformers 5.24 ``ActQuant``.
    """
    absmax = jnp.abs(x).max(axis=1)
    scale = jnp.float32(127) / jnp.maximum(absmax, jnp.float32(1e-5))
    codes = lax.round(multiply(x, scale[:, None]), lax.RoundingMethod.TO_NEAREST_EVEN)
    return jnp.clip(codes, -128, 127).astype(jnp.int8), scale


def finite_tokens(x: Float32[jax.Array, "tokens in"]) -> Bool[jax.Array, " tokens"]:
    """Which tokens are free of infinity and NaN.

    The scale does not tell: the library kernels that XLA-CPU takes for a wide maximum pass over NaN, in silence and
    whatever the compiler's options say (JAX 0.10 and 0.12).
    """
    return jnp.isfinite(x).all(axis=1)


def accumulate(
    codes: Int8[jax.Array, "tokens in"], planes: UInt8[jax.Array, "out bytes"]
) -> Int32[jax.Array, "tokens out"]:
    """The exact dot products of codes and trits.

    The trits of this one matrix are unpacked to int8 inside the program, never those of a whole model. Both operands
    are row by row along ``in``: the form that XLA-CPU vectorises for one token, and from JAX 0.12 on gives to its
    int8 kernels for more.
    """
    trits = unpack(planes, codes.shape[1])
    return lax.dot_general(codes, trits, (((1,), (1,)), ((), ())), preferred_element_type=jnp.int32)


def apply_scales(
    acc: Int32[jax.Array, "tokens out"],
    activation_scale: Float32[jax.Array, " tokens"],
    weight_scale: Float32[jax.Array, ""],
    rule: ScaleRule,
) -> Float32[jax.Array, "tokens out"]:
    """acc / s * w, or acc / s / w: two float32 operations in this order, each rounded."""
    rescaled = divide(acc.astype(jnp.float32), activation_scale[:, None])
    return multiply(rescaled, weight_scale) if rule == "multiply" else divide(rescaled, weight_scale)


def bit_linear(
    codes: Int8[jax.Array, "tokens in"],
    scale: Float32[jax.Array, " tokens"],
    weight: PackedLinear,
    rule: ScaleRule,
) -> tuple[Int32[jax.Array, "tokens out"], Float32[jax.Array, "tokens out"]]:
    """(accumulators, output) of one linear layer on quantised activations."""
    acc = accumulate(codes, weight.planes)
    return acc, apply_scales(acc, scale, weight.scale, rule)
