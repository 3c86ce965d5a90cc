"""Which formulation multiplies which matrix: a rule by tokens and by what XLA can do, or what was measured here."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

# Above this many tokens unpacking once costs less than counting bits for each (measured: 8 to 16).
_FEW = 8


def choose(tokens: int, measured: dict[int, str] | None = None) -> str:
    """The name of a formulation for so many tokens. measured: what ``tune`` found for this matrix, by tokens."""
    if measured and tokens in measured:
        return measured[tokens]
    if tokens <= _FEW:
        return "select"
    return "int8-dot" if library_dots() else "float-dot"


@cache
def library_dots() -> bool:
    """Whether XLA hands products of int8, and of bfloat16, to its kernel library (YNNPACK: JAX 0.12 and later).

    Asked of a compiled program, because no version number says it: the kernels are left out of some builds.
    """

    def products(a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.dot_general(a, b, (((1,), (1,)), ((), ())), preferred_element_type=jnp.int32)

    operand = np.ones((64, 64), np.int8)
    return "ynn" in (jax.jit(products).lower(operand, operand).compile().as_text() or "")
