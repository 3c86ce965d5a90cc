"""The ternary products of the XLA engine, side by side: what the benchmark's rows gemv and gemm time.

The one place that knows how ``tritgold_xla.formulations`` is called.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


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
    from tritgold_xla.packed import pack

    planes = pack(trits)
    try:
        from tritgold_xla.formulations import FORMULATIONS
    except ModuleNotFoundError:  # an engine with one way only
        from tritgold_xla.bit_linear import accumulate

        why = "unpacked to int8 inside the program, then an int8 dot product"
        return [_product("unpack", why, accumulate, jax.device_put(planes))]
    return [_product(f.name, f.why, f.accumulate, jax.device_put(f.prepare(planes))) for f in FORMULATIONS.values()]


def _bfloat16(trits: np.ndarray) -> Product:
    """Exact as well: codes and trits are bfloat16 numbers, and the sums are float32."""

    def multiply(codes: jax.Array, weights: jax.Array) -> jax.Array:
        return jax.lax.dot_general(
            codes.astype(jnp.bfloat16), weights, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
        )

    why = "no unpacking, a sixteenth of the density"
    return _product("bf16", why, multiply, jax.device_put(trits.astype(jnp.bfloat16)))


def _product(name: str, why: str, multiply: Callable[..., jax.Array], weights: object) -> Product:
    # The weights are an argument: as a constant the compiler would work on them when it compiles.
    program = jax.jit(multiply)
    moved = sum(leaf.nbytes for leaf in jax.tree.leaves(weights))
    return Product(name, why, moved, lambda codes: program(codes, weights).block_until_ready())
