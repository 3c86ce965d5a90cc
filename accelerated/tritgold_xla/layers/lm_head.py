"""The language-model head: logits at memory speed, and the exact greedy token with fewer bytes read.

A head whose weights are all bfloat16 numbers is stored as bfloat16, two bytes per weight, and multiplied as such
(``bfloat16_pieces``).
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Float32, Int32, UInt16

from tritgold_xla.layers.bfloat16_pieces import PIECES, added, pieces
from tritgold_xla.runtime.flags import PRECISION
from tritgold_xla.runtime.ieee import barrier, divide
from tritgold_xla.ternary_matmul.choose import HEAD_LEFT, HEAD_RIGHT, RULE, Choices, library_dots

# Rows that are converted to float32 at a time if XLA has no fast product of bfloat16.
_BLOCK = 4096
# Columns of the screen that are added in one step.
_FOLD = 8
# Number of candidates that are scored exactly.
_CANDIDATES = 256
# The largest error of a product, because XLA replaces subnormal numbers by zero.
_FLUSHED = 2.0**-126


def bfloat16_bits(rows: Float32[np.ndarray, "*shape"]) -> UInt16[np.ndarray, "*shape"] | None:
    """The bits of the numbers as bfloat16, if all are exactly bfloat16 (their lower halves are zero); else None."""
    bits = np.ascontiguousarray(rows, np.float32).view(np.uint32)
    return None if (bits & np.uint32(0xFFFF)).any() else (bits >> np.uint32(16)).astype(np.uint16)


def divided(x: Float32[jax.Array, "tokens hidden"], divisor: float) -> Float32[jax.Array, "tokens hidden"]:
    """x / divisor, what the head of some models reads; x itself where the divisor is 1."""
    return x if divisor == 1 else divide(x, jnp.float32(divisor))


def logits(
    x: Float32[jax.Array, "tokens hidden"], head: jax.Array, choices: Choices = RULE
) -> Float32[jax.Array, "tokens vocab"]:
    """x . head[v] for every vocabulary row v. head: [vocab, hidden], bfloat16 or float32; sums in float32.

    choices: whether a bfloat16 head is the left or the right operand; the bits are the same.
    """
    if head.dtype == jnp.float32:
        return _dot(x, head)
    if library_dots():
        vocab, hidden = head.shape
        return SIDES[choices.head_side((vocab, hidden), x.shape[0])](x, head)
    return _in_blocks(x, head)


def _dot(x: jax.Array, rows: jax.Array) -> jax.Array:
    return lax.dot_general(x, rows, (((1,), (1,)), ((), ())), precision=PRECISION)


def _head_left(x: jax.Array, head: jax.Array) -> jax.Array:
    tokens, columns = x.shape[0], pieces(x)
    if tokens == 1:  # four columns are faster than three
        columns.append(jnp.zeros(x.shape, jnp.bfloat16))
    dots = _stored_dot(head, barrier(jnp.concatenate(columns)))
    return added(*dots.reshape(head.shape[0], len(columns), tokens).transpose(1, 2, 0)[:PIECES])


def _head_right(x: jax.Array, head: jax.Array) -> jax.Array:
    dots = _stored_dot(barrier(jnp.concatenate(pieces(x))), head)
    return added(*dots.reshape(PIECES, x.shape[0], head.shape[0]))


SIDES = {HEAD_LEFT: _head_left, HEAD_RIGHT: _head_right}


def _stored_dot(left: jax.Array, right: jax.Array) -> jax.Array:
    return lax.dot_general(left, right, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)


def _in_blocks(x: jax.Array, head: jax.Array) -> jax.Array:
    vocab, hidden = head.shape
    whole = vocab // _BLOCK * _BLOCK

    def block(rows: jax.Array) -> jax.Array:
        return _dot(x, rows.astype(jnp.float32))

    parts = []
    if whole:
        parts = list(lax.map(block, head[:whole].reshape(-1, _BLOCK, hidden)))
    if whole < vocab:
        parts.append(block(head[whole:]))
    return jnp.concatenate(parts, axis=1)


class CoarseHead(NamedTuple):
    """The screen: a coarse copy of the head, one byte per weight, and bounds of its error.

    codes: int8 [columns, vocab], value = code * step; columns: hidden, padded with zeros to a multiple of 8. step:
    float32 [vocab]. slack: norm of each row's error; norm: norm of the coarse row; float32 [vocab], rounded up.
    """

    codes: jax.Array
    step: jax.Array
    slack: jax.Array
    norm: jax.Array


def screen_columns(hidden: int) -> int:
    """The number of rows of ``CoarseHead.codes``: hidden, rounded up to a multiple of 8."""
    return -(-hidden // _FOLD) * _FOLD


def make_screen(rows: Float32[jax.Array, "some hidden"]) -> CoarseHead:
    """The screen of some rows of the head, float32."""
    step = jnp.maximum(jnp.abs(rows).max(axis=1) / 127, jnp.float32(1e-30))
    steps = rows / step[:, None]
    codes = jnp.clip(jnp.round(steps), -127, 127)
    up = jnp.float32(1 + 1e-4)  # larger than any rounding error of these sums
    # In units of step, so that no square underflows to zero.
    slack, norm = (step * jnp.sqrt(jnp.square(r).sum(axis=1)) * up + jnp.float32(1e-30) for r in (steps - codes, codes))
    missing = screen_columns(rows.shape[1]) - rows.shape[1]
    return CoarseHead(jnp.pad(codes.astype(jnp.int8).T, ((0, missing), (0, 0))), step, slack, norm)


def _coarse_scores(x: Float32[jax.Array, " hidden"], screen: CoarseHead) -> Float32[jax.Array, " vocab"]:
    """x . (codes * step). Eight columns at a time are added to the sums of all rows: this form runs at memory speed,
    unlike the int8 kernels; with sixteen columns it is no longer vectorised.
    """
    columns, vocab = screen.codes.shape
    weights = screen.codes.reshape(-1, _FOLD, vocab)
    factors = jnp.pad(x, (0, columns - x.shape[0])).reshape(-1, _FOLD)

    def eight(sums: jax.Array, part: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        codes, factor = part
        for column in range(_FOLD):
            sums = sums + codes[column].astype(jnp.float32) * factor[column]
        return sums, None

    sums, _ = lax.scan(eight, jnp.zeros((vocab,), jnp.float32), (weights, factors))
    return sums * screen.step


def greedy(
    x: Float32[jax.Array, " hidden"], head: jax.Array, screen: CoarseHead, choices: Choices = RULE
) -> tuple[Int32[jax.Array, ""], jax.Array]:
    """(token, screened): the token with the largest of ``logits``, at a tie the lowest; and whether the screen was
    enough. If a logit is infinite or NaN, the token is -1.

    Every row is scored with its coarse copy. By Cauchy and Schwarz its logit is within |x| slack of that score; a
    float32 sum of n products has an error below 8 sqrt(n) 2^-24 |x| norm, except with a probability below 1e-10 (Higham
    and Mary, "A new approach to probabilistic rounding error analysis", 2019; the certain bound has n instead of
    8 sqrt(n)). Rows that could still be the largest are scored exactly; if they are too many, or if two are closer than
    these errors, the whole head is used.
    """
    vocab, hidden = head.shape
    score = _coarse_scores(x, screen)
    flushed = jnp.float32(hidden * _FLUSHED)
    length = jnp.sqrt(jnp.square(x).sum() + flushed) * jnp.float32(1 + 1e-4)
    sums = jnp.float32(8 * math.sqrt(hidden) * 2.0**-24) * length
    reach = length * screen.slack + 2 * sums * (screen.norm + screen.slack) + 2 * flushed
    upper, floor = score + reach, (score - reach).max()
    # With a barrier: without it, a slice of the results turns top_k's kernel into a sort of the whole vocabulary.
    bounds, rows = barrier(lax.top_k(upper, min(_CANDIDATES, vocab)))
    few = jnp.asarray(vocab <= _CANDIDATES) | (bounds[-1] < floor)
    exact = jnp.where(bounds >= floor, logits(x[None], head[rows])[0], -jnp.inf)
    top = exact.max()
    best = jnp.where(exact == top, rows, vocab).min()  # the lowest of equal ones
    second = jnp.where(rows == best, -jnp.inf, exact).max()
    # 4: two rows with two sums each, one here and one in the whole head, whose errors may have opposite signs.
    alone = top - second > 4 * (sums * (screen.norm + screen.slack)[rows].max() + flushed)
    sure = few & alone & jnp.isfinite(length)

    def of_all() -> jax.Array:
        scores = logits(x[None], head, choices)[0]
        return jnp.where(jnp.isfinite(scores).all(), jnp.argmax(scores).astype(jnp.int32), -1)

    return lax.cond(sure, lambda: best.astype(jnp.int32), of_all), sure
