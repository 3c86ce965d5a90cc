"""The ternary products of the XLA engine, side by side: what the benchmark's rows gemv and gemm time.

The one place that knows how ``tritgold_xla.ternary_matmul.kernels`` is called.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tritgold_xla.runtime.flags import jit
from tritgold_xla.ternary_matmul.kernels import FORMULATIONS, Planes
from tritgold_xla.ternary_matmul.planes import pack


class Product(NamedTuple):
    """A way to multiply. why: where it is fast. moved: bytes of the weights in its form. run: int8 [tokens, in] codes
    -> int32 [tokens, out] on the device, or float32 that holds the same integers.
    """

    name: str
    why: str
    moved: int
    run: Callable[[np.ndarray], jax.Array]


def products(trits: np.ndarray) -> list[Product]:
    """Every formulation of the engine, and a dot product in bfloat16, on one matrix int8 [out, in]."""
    return [*_formulations(trits), _bfloat16(trits)]


def _formulations(trits: np.ndarray) -> list[Product]:
    weight = Planes(*jit(pack)(trits))  # on the device as the engine has them
    return [_product(way.name, way.why, way.accumulate, weight) for way in FORMULATIONS.values()]


def _bfloat16(trits: np.ndarray) -> Product:
    """Exact as well: codes and trits are bfloat16 numbers, and the sums are float32."""

    def multiply(codes: jax.Array, weights: jax.Array) -> jax.Array:
        return jax.lax.dot_general(
            codes.astype(jnp.bfloat16), weights, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
        )

    return _product("bf16", "nothing to unpack, and eight times the bytes", multiply, jnp.asarray(trits, jnp.bfloat16))


def _product(name: str, why: str, multiply: Callable[..., jax.Array], weights: Any) -> Product:
    # The weights are an argument: as a constant the compiler would work on them when it compiles.
    program = jit(multiply)
    moved = sum(leaf.nbytes for leaf in jax.tree.leaves(weights))
    return Product(name, why, moved, lambda codes: program(codes, weights).block_until_ready())
