"""Which positions a pass of block diffusion reads, as windows of fixed sizes, and when it must read the wide one.

With block attention the wide window is the block. With cache ``dual`` it is read by a block's first pass, by the pass
that stores the block, and while the first token of a sub-block is masked: the token before the sub-block predicts it.
All other passes read the sub-block: they replace its keys and values, and see the rest of the block as it was when it
was read last.

With causal attention a pass reads from the first masked token of the previous pass on: so a sub-block's first pass,
over a window of two, also stores the tokens that the last pass of the previous sub-block decided; all others need the
sub-block and the token before it. Nothing after the sub-block is seen.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from tritgold_xla.decode.diffusion_options import BlockProgram

# A NumPy array when a program is called, traced inside it.
Array = Any


class Block(NamedTuple):
    """The input of a program; positions are absolute.

    ids: int32 [block], the mask id for tokens to be decided; before: int32 [block], the tokens before the block. start,
    stop: its first position and the one after its last. committed_until: below it the cache holds the final tokens
    (causal). generated: the first position after the prompt. limit: the position after the last requested token. room:
    positions of the cache; a token after them can be predicted but not read. thresholds: float32 [THRESHOLDS], of the
    first pass, the second and so on; the last is used for all further passes.
    """

    ids: Array
    before: Array
    start: Array
    stop: Array
    committed_until: Array
    generated: Array
    limit: Array
    room: Array
    thresholds: Array


class Window(NamedTuple):
    """What a pass reads and predicts.

    begin: its first position; tokens: int32 [window], of which ``read`` are not padding; end: they see the positions
    below it. rows: int32 [sub-block], indices in the window that predict; the first of them predicts index ``first`` of
    the block, where the sub-block begins.
    """

    begin: jax.Array
    tokens: jax.Array
    read: jax.Array
    end: jax.Array
    rows: jax.Array
    first: jax.Array


def sub_block_of(masked: jax.Array, program: BlockProgram) -> jax.Array:
    """int32 []: the first sub-block with a mask; 0 where there is none. masked: bool [block]."""
    return jnp.argmax(masked).astype(jnp.int32) // program.sub_block


def needs_wide(masked: jax.Array, steps: jax.Array, program: BlockProgram) -> jax.Array:
    """bool []: whether the next pass must read the wide window. steps: int32 [sub-blocks], passes so far of each."""
    sub_block = sub_block_of(masked, program)
    if program.causal:
        return steps[sub_block] == 0
    return (steps.sum() == 0) | masked[sub_block * program.sub_block] | ~masked.any()


def causal_window(
    block: Block, ids: jax.Array, masked: jax.Array, committed_until: jax.Array, size: int, program: BlockProgram
) -> Window:
    """The window from the last committed token or from the token before the first mask, whichever is earlier."""
    first = sub_block_of(masked, program) * program.sub_block
    begin = jnp.minimum(block.start + jnp.argmax(masked).astype(jnp.int32) - 1, committed_until)
    around = jnp.concatenate([block.before, ids, jnp.zeros((2 * program.block,), jnp.int32)])
    tokens = lax.dynamic_slice(around, (begin - block.start + program.block,), (size,))
    end = jnp.minimum(jnp.minimum(block.start + first + program.sub_block, block.stop), block.room)
    rows = block.start + first - 1 - begin + lax.iota(jnp.int32, program.sub_block)
    return Window(begin, tokens, end - begin, end, rows, first)


def block_window(block: Block, ids: jax.Array, masked: jax.Array, size: int, program: BlockProgram) -> Window:
    """The window of the whole block, or of the first sub-block with a mask. Without masks the last token predicts."""
    first = sub_block_of(masked, program) * program.sub_block
    begin = jnp.int32(0) if size == program.block else first
    rows = first - begin - 1 + lax.iota(jnp.int32, program.sub_block)
    rows = jnp.where(masked.any(), rows, program.block - 1)
    tokens = lax.dynamic_slice(ids, (begin,), (size,))
    return Window(block.start + begin, tokens, jnp.int32(size), block.stop, rows, first)
