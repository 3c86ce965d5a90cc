"""Single IEEE 754 operations that the compiler can neither merge nor rewrite.

XLA-CPU may compute ``a / b`` as ``a * (1 / b)`` if b is broadcast, ``a / b / c`` as ``a / (b * c)``, and ``a * b + c``
without rounding the product. Each differs by at most an ulp, but depends on which operations are fused, so the same
inputs would give different results for another chunk size or with tracing on; and a difference of an ulp before the
quantiser can, at a tie, give another int8 code. Here every operation rounds once, independently of its context.

``optimization_barrier`` and ``reduce_precision`` do not do this: the CPU compiler drops the first before it fuses (in
JAX 0.10) and the second always. Measured with JAX 0.4.36, 0.10.2 and 0.12.0, and checked by ``flags.cpu_device``.
"""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax

_RUNS = 16
_Arrays = TypeVar("_Arrays")


def barrier(x: _Arrays) -> _Arrays:
    """x, one array or several, materialised: later operations are not fused with those that computed it.

    Only for speed: it does not guarantee rounding (see above).
    """
    held: _Arrays = lax.optimization_barrier(x)  # type: ignore[no-untyped-call]
    return held


def rounded(x: jax.Array) -> jax.Array:
    """x, float32, rounded before any other operation uses it.

    The exclusive or with (x is NaN) changes no number, but the compiler does not know that, so it cannot fuse a product
    before it with an addition after it. A NaN stays a NaN.
    """
    bits = lax.bitcast_convert_type(x, jnp.int32)
    return lax.bitcast_convert_type(bits ^ (x != x).astype(jnp.int32), jnp.float32)


def multiply(a: jax.Array, b: jax.Array) -> jax.Array:
    """a * b in float32."""
    return rounded(a * b)


def divide(a: jax.Array, b: jax.Array) -> jax.Array:
    """a / b in float32, correctly rounded.

    Where a is 0 the divisor is replaced by its sign, which gives the same zero (or NaN). So the compiler must assume
    that the divisor differs from element to element, and cannot compute a reciprocal once outside the loop.
    """
    return rounded(a / jnp.where(a == 0, jnp.sign(b), b))


def tree_sum(terms: jax.Array) -> jax.Array:
    """Sum over the last axis, float32 [..., n] to [...], in an order that depends only on n.

    The terms are split into 16 runs, the last padded with zeros; the runs are added in order, element by element, and
    the same is done with the result until one number is left. So a token's sum is the same in every chunk. The error is
    at most 15 roundings per level, with 3 levels up to n = 4096.
    """
    return _folded(terms, jnp.add, 0)


def tree_max(terms: jax.Array) -> jax.Array:
    """Maximum over the last axis, float32 [..., n] to [...]; NaN if one is NaN.

    Not a reduction: for a wide one XLA-CPU uses library kernels that ignore NaN, with any compiler options (JAX 0.10
    and 0.12). And for a large array such a kernel takes over what follows the maximum too, an exponential for one,
    which then has other bits than in a small array.
    """
    return _folded(terms, jnp.maximum, -jnp.inf)


def _folded(terms: jax.Array, operation: Callable[[jax.Array, jax.Array], jax.Array], neutral: float) -> jax.Array:
    while (n := terms.shape[-1]) > 1:
        runs = min(_RUNS, n)
        size = -(-n // runs)
        if missing := runs * size - n:
            terms = jnp.concatenate([terms, jnp.full((*terms.shape[:-1], missing), neutral, terms.dtype)], axis=-1)
        folded = terms[..., :size]
        for run in range(1, runs):
            folded = operation(folded, terms[..., run * size : (run + 1) * size])
        terms = folded
    return terms[..., 0]
