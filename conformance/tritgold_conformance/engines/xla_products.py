"""The ternary products of the XLA engine for the benchmark's rows gemv and gemm.

The only module that knows how ``tritgold_xla.ternary_matmul.kernels`` is called.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tritgold_conformance.engines import lut_kernels
from tritgold_conformance.engines.lut_kernels import PAIRS, SAMPLE, TRIPLES
from tritgold_xla.runtime.flags import jit
from tritgold_xla.ternary_matmul.kernels import FORMULATIONS
from tritgold_xla.ternary_matmul.planes import Planes, pack


class Product(NamedTuple):
    """A formulation of the product. why: where it is fast. moved: bytes of the weights in its form.

    run: codes int8 [tokens, in] -> int32 [tokens, out] on the device, or float32 with the same integers. rows: it
    computes only the first so many rows; 0: all.
    """

    name: str
    why: str
    moved: int
    run: Callable[[np.ndarray], jax.Array]
    rows: int = 0


_INNER = (((1,), (1,)), ((), ()))


def products(trits: np.ndarray) -> list[Product]:
    """Every formulation of the engine, and others for comparison, on one matrix int8 [out, in]."""
    found = [*_formulations(trits), _float(trits, jnp.dtype(jnp.bfloat16)), _float(trits, jnp.dtype(jnp.float16))]
    found += [_shifted(trits, by_columns) for by_columns in (False, True)]
    return found + ([_tables(trits, "TL1"), _tables(trits, "TL2")] if trits.shape[1] % 4 == 0 else [])


def _formulations(trits: np.ndarray) -> list[Product]:
    weight = Planes(*jit(pack)(trits))  # on the device, in the engine's layout
    return [_product(way.name, way.why, way.accumulate, weight) for way in FORMULATIONS.values()]


def _float(trits: np.ndarray, kind: jnp.dtype) -> Product:
    """In a float type; exact too, because codes and trits are numbers of the type and the sums are float32."""

    def multiply(codes: jax.Array, weights: jax.Array) -> jax.Array:
        return jax.lax.dot_general(codes.astype(kind), weights, _INNER, preferred_element_type=jnp.float32)

    name = "bf16" if kind == jnp.bfloat16 else "f16"
    return _product(name, "nothing to unpack, and eight times the bytes", multiply, jnp.asarray(trits, kind))


def _shifted(trits: np.ndarray, by_columns: bool) -> Product:
    """With weights w + 1, minus the sum of the activations. by_columns: weights as [in, out] instead of [out, in]."""
    weights = jnp.asarray((trits + 1).T if by_columns else trits + 1, jnp.int8)
    inner = (((1,), (0,)), ((), ())) if by_columns else _INNER

    def multiply(codes: jax.Array, weights: jax.Array) -> jax.Array:
        sums = jax.lax.dot_general(codes, weights, inner, preferred_element_type=jnp.int32)
        return sums - codes.astype(jnp.int32).sum(axis=1, keepdims=True)

    name = "w + 1, int8 columns" if by_columns else "w + 1, int8 rows"
    return _product(name, "int8 codes 0 to 2, the codes' sum kept", multiply, weights)


def _tables(trits: np.ndarray, name: str) -> Product:
    """Look-up tables of sums, read at the nibbles of TL1 or TL2; only the first rows, because gathers are scalar."""
    few = trits[:SAMPLE]
    lut = lut_kernels.tl1(few) if name == "TL1" else lut_kernels.tl2(few)
    wide = 3 * lut.triples.shape[1]
    weights = tuple(jnp.asarray(part) for part in (lut.pairs, lut.triples, lut.negative))

    def multiply(codes: jax.Array, weights: tuple[jax.Array, ...]) -> jax.Array:
        pairs, triples, negative = (part.astype(jnp.int32) for part in weights)

        def one(token: jax.Array) -> jax.Array:
            twos = token[wide:].reshape(-1, 2) @ PAIRS.T
            threes = token[:wide].reshape(-1, 3) @ TRIPLES.T
            own = jnp.take_along_axis(twos.T, pairs, axis=0).sum(axis=1)
            return own + (jnp.take_along_axis(threes.T, triples, axis=0) * (1 - 2 * negative)).sum(axis=1)

        return jax.lax.map(one, codes.astype(jnp.int32))

    why = f"its tables of sums, {8 * lut.bytes / few.size:.2f} bits a weight; gathers are scalar"
    made = _product(f"{name}, gathers", why, multiply, weights)
    return made._replace(moved=lut.bytes * len(trits) // len(few), rows=len(few))


def _product(name: str, why: str, multiply: Callable[..., jax.Array], weights: Any) -> Product:
    # The weights are an argument: the compiler would compute with a constant at compile time.
    program = jit(multiply)
    moved = sum(leaf.nbytes for leaf in jax.tree.leaves(weights))
    return Product(name, why, moved, lambda codes: program(codes, weights).block_until_ready())
