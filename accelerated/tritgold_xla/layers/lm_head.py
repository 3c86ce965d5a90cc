"""The language-model head: logits at the speed of memory, and the greedy token for fewer bytes, exactly.

A head whose weights are all bfloat16 numbers is kept so, two bytes a weight. XLA's fast product of bfloat16 numbers
takes bfloat16 on both sides; so a float32 activation is cut into three of them, which together are the same number,
and the three products are added. Nothing is rounded but sums.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Float32, Int32, UInt16

from tritgold_xla.runtime.flags import PRECISION
from tritgold_xla.runtime.ieee import barrier, divide
from tritgold_xla.ternary_matmul.choose import library_dots

_PIECES = 3
# Rows that are converted to float32 at a time where XLA has no fast product of bfloat16.
_BLOCK = 4096
# Columns of the screen that are added at once.
_FOLD = 8
# Candidates that are scored exactly.
_CANDIDATES = 256
# What a product loses at most where XLA makes zero of a subnormal number.
_FLUSHED = 2.0**-126


def bfloat16_bits(rows: Float32[np.ndarray, "*shape"]) -> UInt16[np.ndarray, "*shape"] | None:
    """The numbers as bfloat16, their upper halves, if each is one: the lower half is zero. Else None."""
    bits = np.ascontiguousarray(rows, np.float32).view(np.uint32)
    return None if (bits & np.uint32(0xFFFF)).any() else (bits >> np.uint32(16)).astype(np.uint16)


def divided(x: Float32[jax.Array, "tokens hidden"], divisor: float) -> Float32[jax.Array, "tokens hidden"]:
    """x / divisor, what the head of some models reads; x itself where the divisor is 1."""
    return x if divisor == 1 else divide(x, jnp.float32(divisor))


def logits(x: Float32[jax.Array, "tokens hidden"], head: jax.Array) -> Float32[jax.Array, "tokens vocab"]:
    """x . head[v] for every vocabulary row v. head: [vocab, hidden], bfloat16 or float32; sums in float32."""
    if head.dtype == jnp.float32:
        return _dot(x, head)
    if library_dots():
        return _in_pieces(x, head)
    return _in_blocks(x, head)


def _dot(x: jax.Array, rows: jax.Array) -> jax.Array:
    return lax.dot_general(x, rows, (((1,), (1,)), ((), ())), precision=PRECISION)


def _in_pieces(x: jax.Array, head: jax.Array) -> jax.Array:
    """The weights stand on the left: the right operand is repacked at each call."""
    pieces, rest = [], x
    for _ in range(_PIECES):
        piece = rest.astype(jnp.bfloat16)
        pieces.append(piece)
        rest = rest - piece.astype(jnp.float32)
    pieces.append(jnp.zeros_like(piece))  # four columns are faster than three
    columns = barrier(jnp.concatenate(pieces))
    dots = lax.dot_general(head, columns, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
    largest, middle, smallest, _ = dots.reshape(head.shape[0], _PIECES + 1, x.shape[0]).transpose(1, 2, 0)
    return largest + (middle + smallest)


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
    """A coarse copy of the head, a byte a weight, and how far it may be off.

    codes: int8 [columns, vocab], value = code * step; columns: hidden, up to a multiple of 8, zero after it. step:
    float32 [vocab]. slack: the norm of what a row lost, norm: that of the coarse row; float32 [vocab], rounded up.
    """

    codes: jax.Array
    step: jax.Array
    slack: jax.Array
    norm: jax.Array


def screen_columns(hidden: int) -> int:
    """Rows of ``CoarseHead.codes``."""
    return -(-hidden // _FOLD) * _FOLD


def make_screen(rows: Float32[jax.Array, "some hidden"]) -> CoarseHead:
    """The screen of some rows of the head, float32."""
    step = jnp.maximum(jnp.abs(rows).max(axis=1) / 127, jnp.float32(1e-30))
    steps = rows / step[:, None]
    codes = jnp.clip(jnp.round(steps), -127, 127)
    up = jnp.float32(1 + 1e-4)  # beyond any rounding of these sums
    # In steps, whose squares are never too small to be told from zero.
    slack, norm = (step * jnp.sqrt(jnp.square(r).sum(axis=1)) * up + jnp.float32(1e-30) for r in (steps - codes, codes))
    missing = screen_columns(rows.shape[1]) - rows.shape[1]
    return CoarseHead(jnp.pad(codes.astype(jnp.int8).T, ((0, missing), (0, 0))), step, slack, norm)


def _coarse_scores(x: Float32[jax.Array, " hidden"], screen: CoarseHead) -> Float32[jax.Array, " vocab"]:
    """x . (codes * step). Eight columns at a time are added to the sums of all rows: a form that reads at the speed of
    memory, which the int8 kernels do not; sixteen fall out of the vectoriser.
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
    x: Float32[jax.Array, " hidden"], head: jax.Array, screen: CoarseHead
) -> tuple[Int32[jax.Array, ""], jax.Array]:
    """(token, screened): that of the largest of ``logits``, the lowest of equal ones; and whether the screen said it.
    Where a logit is infinite or NaN the token is -1.

    Every row is scored by its coarse copy. By Cauchy and Schwarz its logit is within |x| slack of that score; a float32
    sum of n products is within 8 sqrt(n) 2^-24 |x| norm but for a chance below 1e-10 (Higham and Mary, "A new approach
    to probabilistic rounding error analysis", 2019; the bound without chance is n 2^-24). Rows that could still be the
    largest are scored exactly; where they are too many, or two are closer than those sums can tell apart, the whole
    head is used.
    """
    vocab, hidden = head.shape
    score = _coarse_scores(x, screen)
    flushed = jnp.float32(hidden * _FLUSHED)
    length = jnp.sqrt(jnp.square(x).sum() + flushed) * jnp.float32(1 + 1e-4)
    sums = jnp.float32(8 * math.sqrt(hidden) * 2.0**-24) * length
    reach = length * screen.slack + 2 * sums * (screen.norm + screen.slack) + 2 * flushed
    upper, floor = score + reach, (score - reach).max()
    # Behind a barrier, for a slice of its results turns the kernel of top_k into a sort of the whole vocabulary.
    bounds, rows = barrier(lax.top_k(upper, min(_CANDIDATES, vocab)))
    few = jnp.asarray(vocab <= _CANDIDATES) | (bounds[-1] < floor)
    exact = jnp.where(bounds >= floor, logits(x[None], head[rows])[0], -jnp.inf)
    top = exact.max()
    best = jnp.where(exact == top, rows, vocab).min()  # the lowest of equal ones
    second = jnp.where(rows == best, -jnp.inf, exact).max()
    # Two sums of each of two rows, one here and one in the whole head, may be off in opposite directions.
    alone = top - second > 4 * (sums * (screen.norm + screen.slack)[rows].max() + flushed)
    sure = few & alone & jnp.isfinite(length)

    def of_all() -> jax.Array:
        scores = logits(x[None], head)[0]
        return jnp.where(jnp.isfinite(scores).all(), jnp.argmax(scores).astype(jnp.int32), -1)

    return lax.cond(sure, lambda: best.astype(jnp.int32), of_all), sure
