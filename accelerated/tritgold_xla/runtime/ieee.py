"""Single IEEE 754 operations that the compiler can neither merge nor rewrite.

XLA-CPU reserves the right to compute ``a / b`` as ``a * (1 / b)`` where b is broadcast, ``a / b / c`` as
``a / (b * c)``, and ``a * b + c`` without rounding the product. Each is within an ulp and each depends on what was
fused with what, so the same numbers would come out differently for another chunk size or with tracing on; and an ulp
before the quantiser is, at a tie, another int8 code. Here every operation rounds once, by itself, wherever it stands.

``optimization_barrier`` and ``reduce_precision`` do not do this: the CPU compiler drops the first before it fuses (in
JAX 0.10) and the second always. Measured on JAX 0.4.36, 0.10.2 and 0.12.0, and checked again by ``flags.cpu_device``.
"""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax

_RUNS = 16
_Arrays = TypeVar("_Arrays")


def barrier(x: _Arrays) -> _Arrays:
    """x, one array or several, materialised: what follows is not fused with what made it. For speed; see above what it
    does not promise.
    """
    held: _Arrays = lax.optimization_barrier(x)  # type: ignore[no-untyped-call]
    return held


def rounded(x: jax.Array) -> jax.Array:
    """x, float32, rounded before anything else is done with it.

    The exclusive or with "is it NaN" changes no number, and no compiler can know that: an addition cannot take the
    product from after it. A NaN stays a NaN.
    """
    bits = lax.bitcast_convert_type(x, jnp.int32)
    return lax.bitcast_convert_type(bits ^ (x != x).astype(jnp.int32), jnp.float32)


def multiply(a: jax.Array, b: jax.Array) -> jax.Array:
    """a * b in float32."""
    return rounded(a * b)


def divide(a: jax.Array, b: jax.Array) -> jax.Array:
    """a / b in float32, correctly rounded.

    Where a is 0 the divisor is replaced by its sign, which gives the same zero (or NaN); so the divisor differs from
    element to element as far as the compiler can tell, and no reciprocal can be taken out of the loop.
    """
    return rounded(a / jnp.where(a == 0, jnp.sign(b), b))


def tree_sum(terms: jax.Array) -> jax.Array:
    """Sum over the last axis, float32 [..., n] to [...], in an order that depends on n alone.

    The terms are cut into 16 runs, the last filled up with zeros; the runs are added one after the other, element by
    element, and so on with the sums until one is left. So a token's sum is the same in every chunk. The error is at
    most 15 roundings a level, 3 levels up to n = 4096.
    """
    return _folded(terms, jnp.add, 0)


def tree_max(terms: jax.Array) -> jax.Array:
    """The largest over the last axis, float32 [..., n] to [...]; NaN if one is NaN.

    A reduction would do, but for a wide one XLA-CPU takes library kernels that pass over NaN, in silence and whatever
    the compiler's options say (JAX 0.10 and 0.12). And where the array is large such a kernel takes over what is done
    with the maximum too, an exponential for one, which then has other bits than in a small array.
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
