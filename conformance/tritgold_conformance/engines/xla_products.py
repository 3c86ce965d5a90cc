"""The ternary products of the XLA engine for the benchmark's rows gemv and gemm.

The only module that knows how ``tritgold_xla.ternary_matmul.kernels`` is called.
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
    """A way to multiply. why: the reason why it is fast. moved: bytes of the weights in its layout. run: int8 codes
    [tokens, in] -> int32 [tokens, out] on the device, or float32 with the same integers.
    """

    name: str
    why: str
    moved: int
    run: Callable[[np.ndarray], jax.Array]


def products(trits: np.ndarray) -> list[Product]:
    """Every formulation of the engine, and a dot product in bfloat16, on one matrix int8 [out, in]."""
    return [*_formulations(trits), _bfloat16(trits)]


def _formulations(trits: np.ndarray) -> list[Product]:
    weight = Planes(*jit(pack)(trits))  # on the device, in the engine's layout
    return [_product(way.name, way.why, way.accumulate, weight) for way in FORMULATIONS.values()]


def _bfloat16(trits: np.ndarray) -> Product:
    """Exact too: codes and trits are exact in bfloat16, and the sums are float32."""

    def multiply(codes: jax.Array, weights: jax.Array) -> jax.Array:
        return jax.lax.dot_general(
            codes.astype(jnp.bfloat16), weights, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
        )

    return _product("bf16", "nothing to unpack, and eight times the bytes", multiply, jnp.asarray(trits, jnp.bfloat16))


def _product(name: str, why: str, multiply: Callable[..., jax.Array], weights: Any) -> Product:
    # The weights are an argument: the compiler would compute with a constant at compile time.
    program = jit(multiply)
    moved = sum(leaf.nbytes for leaf in jax.tree.leaves(weights))
    return Product(name, why, moved, lambda codes: program(codes, weights).block_until_ready())
