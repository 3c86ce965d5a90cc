"""Single IEEE 754 operations that the compiler can neither merge nor rewrite.

XLA-CPU reserves the right to compute ``a / b`` as ``a * (1 / b)`` where b is broadcast, ``a / b / c`` as
``a / (b * c)``, and ``a * b + c`` without rounding the product. Each is within an ulp and each depends on what was
fused with what, so the same numbers would come out differently for another chunk size or with tracing on; and an ulp
before the quantiser is, at a tie, another int8 code. Here every operation rounds once, by itself, wherever it stands.

``optimization_barrier`` and ``reduce_precision`` do not do this: the CPU compiler drops the first before it fuses (in
JAX 0.10) and the second always. Measured on JAX 0.4.36, 0.10.2 and 0.12.0, and checked again by ``flags.cpu_device``.
"""

import jax
import jax.numpy as jnp
from jax import lax


def rounded(x: jax.Array) -> jax.Array:
    """x, float32, rounded before anything else is done with it.

    The exclusive or with "is it NaN" changes no number, and no compiler can know that: an addition cannot take the
    product from behind it. A NaN stays a NaN.
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
    """Sum over the last axis, float32 [..., n] to [...]: the second half is added to the first until one is left.

    The order depends on n alone, on no other axis, so a token's sum is the same in every chunk. The error is at most
    about log2(n) ulp. An odd half is filled up with a zero.
    """
    while (n := terms.shape[-1]) > 1:
        if n % 2:
            terms = jnp.concatenate([terms, jnp.zeros_like(terms[..., :1])], axis=-1)
        half = terms.shape[-1] // 2
        terms = terms[..., :half] + terms[..., half:]
    return terms[..., 0]
