"""The ternary linear layer: float32 activations -> int8 codes -> exact int32 accumulators -> float32.

Nothing here depends on the order of a sum or on the compiler's fusions: equal inputs give the golden model's bits.
``kernels`` multiplies codes and trits.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Float32, Int8, Int32

from tritgold.config import ScaleRule
from tritgold_xla.runtime.ieee import divide, multiply, rounded, tree_max
from tritgold_xla.ternary_matmul.choose import Choices
from tritgold_xla.ternary_matmul.kernels import FORMULATIONS
from tritgold_xla.ternary_matmul.planes import Planes


class PackedLinear(NamedTuple):
    """A ternary weight on the device: bit planes and a scale float32 [], or [out] if rows have their own.

    Stacked over layers, each array has a leading axis of layers.
    """

    planes: Planes
    scale: jax.Array

    def at(self, layer: jax.Array) -> "PackedLinear":
        """One layer of a stack; its number need not be known when the program is compiled."""
        scale = lax.dynamic_index_in_dim(self.scale, layer, keepdims=False)
        return PackedLinear(self.planes._replace(layer=layer), scale)


class Quantized(NamedTuple):
    """codes: int8 [tokens, in]; scale: float32 [tokens]; finite: bool [tokens], whether the token was finite."""

    codes: jax.Array
    scale: jax.Array
    finite: jax.Array


def quantize(x: Float32[jax.Array, "tokens in"]) -> Quantized:
    """s = 127 / max(max|x|, 1e-5), code = clamp(half_even(x * s), -128, 127), separately for each token.

    A zero token gives codes 0 and s = 1.27e7. Infinity and NaN give meaningless codes and ``finite`` False.
    Source: arXiv 2402.17764; transformers 5.24 ``ActQuant``.
    """
    return quantize_to(x, absmax(x))


def absmax(x: Float32[jax.Array, "tokens in"]) -> Float32[jax.Array, " tokens"]:
    """max|x| of each token; NaN where it has one."""
    return tree_max(jnp.abs(x))


def quantize_to(x: Float32[jax.Array, "tokens some"], largest: Float32[jax.Array, " tokens"]) -> Quantized:
    """``quantize`` of some channels, where the largest of all is known."""
    scale = jnp.float32(127) / jnp.maximum(largest, jnp.float32(1e-5))
    codes = lax.round(multiply(x, scale[:, None]), lax.RoundingMethod.TO_NEAREST_EVEN)
    return Quantized(jnp.clip(codes, -128, 127).astype(jnp.int8), scale, jnp.isfinite(largest))


def apply_scales(
    acc: Int32[jax.Array, "tokens out"],
    activation_scale: Float32[jax.Array, " tokens"],
    weight_scale: Float32[jax.Array, "..."],
    rule: ScaleRule,
) -> Float32[jax.Array, "tokens out"]:
    """acc / s * w, or acc / s / w by ``rule``: two float32 operations in this order, each rounded."""
    rescaled = divide(acc.astype(jnp.float32), activation_scale[:, None])
    return multiply(rescaled, weight_scale) if rule == "multiply" else divide(rescaled, weight_scale)


def biased(out: Float32[jax.Array, "tokens out"], bias: jax.Array | None) -> Float32[jax.Array, "tokens out"]:
    """out + bias, float32 [out]; out itself where there is none."""
    return out if bias is None else rounded(out + bias)


def bit_linears(
    codes: Int8[jax.Array, "tokens in"],
    scale: Float32[jax.Array, " tokens"],
    weights: dict[str, PackedLinear],
    rule: ScaleRule,
    choices: Choices,
    total: Callable[[str, jax.Array], jax.Array] = lambda _, acc: acc,
) -> dict[str, tuple[Int32[jax.Array, "tokens out"], Float32[jax.Array, "tokens out"]]]:
    """(accumulators, output) of each linear on the same quantised activations.

    choices: which formulation multiplies which matrix. Each formulation prepares the codes only once. total: what
    becomes of a linear's accumulators before they are scaled, where this is a part of its columns.
    """
    prepared: dict[str, jax.Array] = {}
    results = {}
    for name, weight in weights.items():
        tokens, in_ = codes.shape
        way = FORMULATIONS[choices.of((weight.planes.bits.shape[-1], in_), tokens)]
        if way.name not in prepared:
            prepared[way.name] = way.prepare(codes)
        acc = total(name, way.multiply(prepared[way.name], weight.planes))
        results[name] = acc, apply_scales(acc, scale, weight.scale, rule)
    return results
