"""Which formulation multiplies which matrix: by measurement on this machine, or by a rule on tokens and XLA."""

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

# Above this many tokens unpacking the matrix once is faster than counting bits for each token (measured: 8 to 16).
_FEW = 8


class Measured(NamedTuple):
    """The fastest formulation for a matrix [out, in_] and a number of tokens, measured by ``tune``."""

    out: int
    in_: int
    tokens: int
    formulation: str


class Choices(NamedTuple):
    """What replaces the rule; static in a program. everywhere: one formulation for all, instead of measured ones."""

    everywhere: str | None = None
    measured: tuple[Measured, ...] = ()

    def of(self, shape: tuple[int, int], tokens: int) -> str:
        """The name of the formulation for a matrix (out, in) and ``tokens`` tokens.

        For a number of tokens that was not measured, that of the next larger measured number, or of the largest.

        >>> Choices(measured=(Measured(64, 128, 8, "plain"), Measured(64, 128, 1, "select"))).of((64, 128), 2)
        'plain'
        """
        if self.everywhere is not None:
            return self.everywhere
        found = {each.tokens: each.formulation for each in self.measured if (each.out, each.in_) == shape}
        if not found:
            return choose(tokens)
        return found[min((count for count in found if count >= tokens), default=max(found))]

    def told(self) -> str:
        """Where it is not the rule, in one line; empty where nothing was measured.

        >>> Choices(measured=(Measured(64, 128, 1, "select"), Measured(64, 128, 8, "plain"))).told()
        '64x128 8 plain'
        """
        if self.everywhere is not None:
            return f"{self.everywhere} everywhere"
        others = [
            f"{m.out}x{m.in_} {m.tokens} {m.formulation}" for m in self.measured if m.formulation != choose(m.tokens)
        ]
        return ", ".join(others) or ("as the rule" if self.measured else "")


def choose(tokens: int) -> str:
    """The rule: the name of the formulation for ``tokens`` tokens."""
    if tokens <= _FEW:
        return "select"
    return "int8-dot" if library_dots() else "float-dot"


@cache
def library_dots() -> bool:
    """Whether XLA uses its kernel library (YNNPACK: JAX 0.12 and later) for products of int8 and of bfloat16.

    A compiled program is inspected, because the version is not enough: some builds do not have the kernels.
    """

    def products(a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.dot_general(a, b, (((1,), (1,)), ((), ())), preferred_element_type=jnp.int32)

    operand = np.ones((64, 64), np.int8)
    return "ynn" in (jax.jit(products).lower(operand, operand).compile().as_text() or "")
