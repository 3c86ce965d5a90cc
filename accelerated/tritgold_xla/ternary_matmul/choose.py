"""Which formulation multiplies which matrix, and whether the head is the left or the right operand of its product: as
measured on this machine, or by a rule on tokens and XLA. All choices give the same bits (docs/decisions/0018).
"""

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

# Above this many tokens unpacking the matrix once is faster than counting bits for each token (measured: 8 to 16).
_FEW = 8
# Tokens up to which the head is the left operand. XLA repacks the right one at each call, worthwhile for more tokens
# (measured, 2B shape: 16 tokens 90 ms on the left and 127 on the right, 24 tokens 164 and 136; with two threads alike).
_HEAD_LEFT = 16
# The head as left or as right operand, as a file of the tuner names it, next to formulations of other matrices.
HEAD_LEFT, HEAD_RIGHT = HEAD_SIDES = ("head-left", "head-right")


class Measured(NamedTuple):
    """The fastest formulation for a matrix [out, in_] and a number of tokens, measured by ``tune`` or ``quick_tune``.

    For a head [vocab, hidden], one of HEAD_SIDES.
    """

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
        return self._measured(shape, tokens, head=False) or choose(tokens)

    def head_side(self, shape: tuple[int, int], tokens: int) -> str:
        """One of HEAD_SIDES: whether a head (vocab, hidden) is the left or the right operand; found as in ``of``.

        >>> Choices(measured=(Measured(64, 128, 8, "head-right"),)).head_side((64, 128), 2)
        'head-right'
        """
        return self._measured(shape, tokens, head=True) or choose_head(tokens)

    def _measured(self, shape: tuple[int, int], tokens: int, head: bool) -> str | None:
        found = {
            each.tokens: each.formulation
            for each in self.measured
            if (each.out, each.in_) == shape and (each.formulation in HEAD_SIDES) == head
        }
        if not found:
            return None
        return found[min((count for count in found if count >= tokens), default=max(found))]

    def told(self) -> str:
        """Where it is not the rule, in one line; empty where nothing was measured.

        >>> Choices(measured=(Measured(64, 128, 1, "select"), Measured(64, 128, 8, "plain"))).told()
        '64x128 8 plain'
        """
        if self.everywhere is not None:
            return f"{self.everywhere} everywhere"
        others = [
            f"{m.out}x{m.in_} {m.tokens} {m.formulation}"
            for m in self.measured
            if m.formulation not in (choose(m.tokens), choose_head(m.tokens))
        ]
        return ", ".join(others) or ("as the rule" if self.measured else "")


RULE = Choices()  # nothing is measured


def choose(tokens: int) -> str:
    """The rule: the name of the formulation for ``tokens`` tokens."""
    if tokens <= _FEW:
        return "select"
    return "int8-dot" if library_dots() else "float-dot"


def choose_head(tokens: int) -> str:
    """The rule: whether the head is the left or the right operand, for ``tokens`` tokens."""
    return HEAD_LEFT if tokens <= _HEAD_LEFT else HEAD_RIGHT


@cache
def library_dots() -> bool:
    """Whether XLA uses its kernel library (YNNPACK: JAX 0.12 and later) for products of int8 and of bfloat16.

    A compiled program is inspected, because the version is not enough: some builds do not have the kernels.
    """

    def products(a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.dot_general(a, b, (((1,), (1,)), ((), ())), preferred_element_type=jnp.int32)

    operand = np.ones((64, 64), np.int8)
    return "ynn" in (jax.jit(products).lower(operand, operand).compile().as_text() or "")
