"""One block of block diffusion as one compiled program: its passes are a ``while_loop``, no Python between them.

With block attention every pass reads the block. With causal attention it reads what is behind the first masked token
of the pass before: so a block's first pass, over a window of two blocks, also keeps what the last pass of the block
before had decided; all others need the block and the token before it, whose prediction is the block's first token. The
head is computed for the positions in question alone.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from tritgold.config import ModelConfig
from tritgold_xla.decode.diffusion_options import THRESHOLDS, BlockProgram
from tritgold_xla.kv_cache.base import KvCache
from tritgold_xla.layers import lm_head
from tritgold_xla.model import Options, hidden_states
from tritgold_xla.parameters import Parameters
from tritgold_xla.runtime.flags import jit

# From NumPy when a program is called, traced inside it.
Array = Any


class Block(NamedTuple):
    """A block and what is to be known about it; positions are absolute.

    ids: int32 [block], the mask where a token is to be decided; before: int32 [block], the tokens before it. start,
    stop: its first position and the one after its last. committed_until: below it the cache holds the final tokens
    (causal). generated: the first position that is not the prompt's. limit: behind the last one that is wanted. room:
    positions of the cache; a token behind them can be decided and not read. thresholds: float32 [THRESHOLDS], of the
    first pass, the second and so on; the last is that of every other.
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


class DecodedBlock(NamedTuple):
    """What a program returns.

    ids, committed_until: as in ``Block``, afterwards. order: int32 [block], the pass that decided each token, -1 for
    none. end: after the text's last position, if ended. following: the next block's first token (block attention).
    decided: int32 [block + 2], tokens of each pass; passes, commits: how many. finite: whether all activations were,
    and no logit in question +inf or NaN.
    """

    cache: KvCache
    ids: jax.Array
    committed_until: jax.Array
    order: jax.Array
    ended: jax.Array
    end: jax.Array
    following: jax.Array
    decided: jax.Array
    passes: jax.Array
    commits: jax.Array
    finite: jax.Array


class _State(NamedTuple):
    filled: DecodedBlock
    masked: jax.Array
    surest: jax.Array  # float32 [block], the highest probability that any pass saw
    likely: jax.Array  # int32 [block], for which token
    likely_pass: jax.Array
    steps: jax.Array  # int32 [sub-blocks]
    done: jax.Array


def _fill(
    parameters: Parameters,
    cache: KvCache,
    block: Block,
    *,
    config: ModelConfig,
    options: Options,
    program: BlockProgram,
) -> DecodedBlock:
    """Decide the masks of a block, and keep it. The cache is donated."""
    p, size = program, program.block
    index = lax.iota(jnp.int32, size)
    masked = (block.ids == p.mask) & (block.start + index < block.stop)
    zero, none = jnp.int32(0), jnp.full((size,), -1, jnp.int32)
    filled = DecodedBlock(
        cache, block.ids, block.committed_until, none, jnp.bool_(False), block.limit, zero,
        jnp.zeros((size + 2,), jnp.int32), zero, zero, jnp.bool_(True),
    )  # fmt: skip
    sub_blocks = size // p.sub_block
    state = _State(
        filled, masked, jnp.full((size,), -1.0), block.ids, none, jnp.zeros((sub_blocks,), jnp.int32), jnp.bool_(False)
    )

    def one_pass(state: _State, window: int = size) -> _State:
        f, masked = state.filled, state.masked
        first = jnp.argmax(masked).astype(jnp.int32)  # 0 where nothing is masked
        commit = ~masked.any()
        if p.causal:
            begin = jnp.minimum(block.start + first - 1, f.committed_until)
            around = jnp.concatenate([block.before, f.ids, jnp.zeros((2 * size,), jnp.int32)])
            tokens = lax.dynamic_slice(around, (begin - block.start + size,), (window,))
            rows = block.start - 1 - begin + index
            asked = masked
        else:
            begin, tokens = block.start, f.ids
            sub_block = first // p.sub_block
            inside = index // p.sub_block == sub_block
            asked = masked & inside
            rows = sub_block * p.sub_block - 1 + lax.iota(jnp.int32, p.sub_block)
            rows = jnp.where(commit, size - 1, rows)  # the last token says how the text goes on
        count = jnp.minimum(block.stop, block.room) - begin
        x, cache, finite, _, _ = hidden_states(
            parameters, f.cache, tokens, begin, count, zero, config=config, options=options
        )
        wanted = jnp.take(x, jnp.clip(rows, 0, tokens.shape[0] - 1), axis=0)
        tokens_of, sure_of = _predicted(lm_head.logits(wanted, parameters.head), p.mask)
        if p.causal:
            predicted, sure, step = tokens_of, sure_of, f.passes
        else:
            # Of the sub-block's rows to their places in the block; elsewhere nothing is asked.
            predicted = jnp.zeros((size,), jnp.int32)
            predicted = lax.dynamic_update_slice(predicted, tokens_of, (sub_block * p.sub_block,))
            sure = lax.dynamic_update_slice(jnp.full((size,), -1.0), sure_of, (sub_block * p.sub_block,))
            step = state.steps[sub_block]
        sure = jnp.where(asked, sure, -1.0)
        # Of a row with a logit of +inf or NaN, but the mask's, no probability is a number.
        finite &= jnp.isfinite(sure).all() & (jnp.isfinite(sure_of[-1]) | ~commit)
        chosen = sure > block.thresholds[jnp.minimum(step, THRESHOLDS - 1)]
        chosen = asked & (chosen | (index == jnp.argmax(sure)))
        surer = asked & (sure > state.surest)
        surest = jnp.where(surer, sure, state.surest)
        likely = jnp.where(surer, predicted, state.likely)
        likely_pass = jnp.where(surer, f.passes, state.likely_pass)
        ids, order = jnp.where(chosen, predicted, f.ids), jnp.where(chosen, f.passes, f.order)
        left = masked & ~chosen
        spent = f.passes + 1 >= p.max_passes
        fill = left & spent & _unfinished(block, p, ids, left)
        ids, order = jnp.where(fill, likely, ids), jnp.where(fill, likely_pass, order)
        left &= ~fill
        end = _end(block, p, ids)
        ended = (block.stop >= end) & ~(left & (block.start + index < end)).any()
        done = ended | (commit if not p.causal else ~left.any())
        filled = DecodedBlock(
            cache=cache,
            ids=ids,
            committed_until=jnp.where(commit, block.stop, block.start + first),
            order=order,
            ended=ended,
            end=end,
            following=tokens_of[-1],
            decided=f.decided.at[f.passes].set((chosen & masked).sum(dtype=jnp.int32)),
            passes=f.passes + 1,
            commits=f.commits + commit.astype(jnp.int32),
            finite=f.finite & finite.all(),
        )
        steps = state.steps if p.causal else state.steps.at[sub_block].add(1)
        return _State(filled, left, surest, likely, likely_pass, steps, done)

    if p.causal:
        state, one_pass = one_pass(state, 2 * size), partial(one_pass, window=size + 1)
    return lax.while_loop(lambda state: ~state.done, one_pass, state).filled


fill = jit(_fill, static=("config", "options", "program"), donate=("cache",))


def _predicted(logits: jax.Array, mask: int) -> tuple[jax.Array, jax.Array]:
    """(token int32, its probability float32) of each row; the lowest of equal logits; the mask is impossible."""
    logits = logits.at[:, mask].set(-jnp.inf)
    largest = logits.max(axis=1, keepdims=True)
    return jnp.argmax(logits, axis=1).astype(jnp.int32), 1 / jnp.exp(logits - largest).sum(axis=1)


def _end(block: Block, program: BlockProgram, ids: jax.Array) -> jax.Array:
    """Behind the first end of sequence that is decided, or the limit."""
    positions = block.start + lax.iota(jnp.int32, program.block)
    ends = jnp.zeros(ids.shape, bool)
    for token in program.eos:
        ends |= ids == token
    ends &= (positions >= block.generated) & (positions < jnp.minimum(block.stop, block.limit))
    return jnp.where(ends, positions + 1, block.limit).min()


def _unfinished(block: Block, program: BlockProgram, ids: jax.Array, left: jax.Array) -> jax.Array:
    """Whether the text has not ended: then what is left of a block that has had its passes is filled."""
    end = _end(block, program, ids)
    return ~((block.stop >= end) & ~(left & (block.start + lax.iota(jnp.int32, program.block) < end)).any())
