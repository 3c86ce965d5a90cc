"""One block of block diffusion as one compiled program: its passes are a ``while_loop``, without Python between them.

A program has two kinds of passes, over a wide window and over a narrow one (``block_reads``). The head is computed only
for the positions to be predicted.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from tritgold.config import ModelConfig
from tritgold_xla.decode.block_reads import Block, Window, block_window, causal_window, needs_wide
from tritgold_xla.decode.diffusion_options import THRESHOLDS, BlockProgram
from tritgold_xla.decoder_layer import Options
from tritgold_xla.kv_cache.base import KvCache
from tritgold_xla.model import hidden_states
from tritgold_xla.parameters import Parameters
from tritgold_xla.runtime.flags import jit


class DecodedBlock(NamedTuple):
    """The result of a program.

    ids, committed_until: as in ``Block``, after the passes. order: int32 [block], the pass that decided each token, -1
    for none. end: if ended, the position after the text's last. following: the next block's first token (block
    attention). decided, read: int32 [block + 2], tokens that each pass decided, and that it read; passes, commits:
    their numbers. finite: whether all activations were finite, and no used logit was +inf or NaN.
    """

    cache: KvCache
    ids: jax.Array
    committed_until: jax.Array
    order: jax.Array
    ended: jax.Array
    end: jax.Array
    following: jax.Array
    decided: jax.Array
    read: jax.Array
    passes: jax.Array
    commits: jax.Array
    finite: jax.Array


class _State(NamedTuple):
    filled: DecodedBlock
    masked: jax.Array
    surest: jax.Array  # float32 [block], the highest probability in any pass
    likely: jax.Array  # int32 [block], its token
    likely_pass: jax.Array
    steps: jax.Array  # int32 [sub-blocks]
    done: jax.Array


class _Predictions(NamedTuple):
    """tokens: int32 [block]; sure: float32 [block], probabilities, -1 if not asked; following: see DecodedBlock."""

    tokens: jax.Array
    sure: jax.Array
    following: jax.Array


@dataclass(frozen=True)
class _Filling:
    """The passes over a block, as functions that JAX traces."""

    parameters: Parameters
    block: Block
    config: ModelConfig
    options: Options
    program: BlockProgram

    @property
    def places(self) -> jax.Array:
        """int32 [block]: 0, 1, 2 ..."""
        return lax.iota(jnp.int32, self.program.block)

    def begin(self, cache: KvCache) -> _State:
        """The state before the first pass."""
        block, p, size = self.block, self.program, self.program.block
        masked = (block.ids == p.mask) & (block.start + self.places < block.stop)
        zero, none, by_pass = jnp.int32(0), jnp.full((size,), -1, jnp.int32), jnp.zeros((size + 2,), jnp.int32)
        filled = DecodedBlock(
            cache, block.ids, block.committed_until, none, jnp.bool_(False), block.limit, zero, by_pass, by_pass, zero,
            zero, jnp.bool_(True),
        )  # fmt: skip
        steps = jnp.zeros((size // p.sub_block,), jnp.int32)
        return _State(filled, masked, jnp.full((size,), -1.0), block.ids, none, steps, jnp.bool_(False))

    def one_pass(self, state: _State, size: int) -> _State:
        """Read a window of ``size`` tokens, decide tokens by the thresholds, and set ``done`` after the last pass."""
        f, masked, p, commit = state.filled, state.masked, self.program, ~state.masked.any()
        if p.causal:
            window = causal_window(self.block, f.ids, masked, f.committed_until, size, p)
        else:
            window = block_window(self.block, f.ids, masked, size, p)
        x, cache, finite, _, _ = hidden_states(
            self.parameters, f.cache, window.tokens, window.begin, window.read, jnp.int32(0), config=self.config,
            options=self.options, end=window.end,
        )  # fmt: skip
        asked = masked & (self.places // p.sub_block == window.first // p.sub_block)
        predicted, usable = self._predictions(x, window, asked, commit)
        state = self._decided(state, window.first, asked, predicted)
        filled = state.filled._replace(
            cache=cache,
            following=predicted.following,
            read=f.read.at[f.passes].set(window.read),
            passes=f.passes + 1,
            commits=f.commits + commit.astype(jnp.int32),
            finite=f.finite & (finite & usable).all(),
        )
        done = filled.ended | (~state.masked.any() if p.causal else commit)
        return state._replace(filled=filled, done=done)

    def _predictions(
        self, x: jax.Array, window: Window, asked: jax.Array, commit: jax.Array
    ) -> tuple[_Predictions, jax.Array]:
        """The predictions from hidden states x [window, hidden]; and bool [], whether all probabilities are finite."""
        wanted = jnp.take(x, jnp.clip(window.rows, 0, window.tokens.shape[0] - 1), axis=0)
        scores = self.options.split.logits(wanted, self.parameters.head, self.options.choices)
        tokens, sure = _predicted(scores, self.program.mask)
        following, last = tokens[-1], sure[-1]
        # From the sub-block's rows to their indices in the block; nothing is asked elsewhere.
        tokens = lax.dynamic_update_slice(self.block.ids, tokens, (window.first,))
        sure = lax.dynamic_update_slice(jnp.full(asked.shape, -1.0), sure, (window.first,))
        sure = jnp.where(asked, sure, -1.0)
        # A row with a logit of +inf or NaN (other than the mask's) has only NaN probabilities.
        usable = jnp.isfinite(sure).all() & (jnp.isfinite(last) | ~commit)
        return _Predictions(tokens, sure, following), usable

    def _decided(self, state: _State, first: jax.Array, asked: jax.Array, predicted: _Predictions) -> _State:
        """The state with the tokens that this pass decides, of those asked for; cache and counts are unchanged."""
        f, p, sure, sub_block = state.filled, self.program, predicted.sure, first // self.program.sub_block
        chosen = sure > self.block.thresholds[jnp.minimum(state.steps[sub_block], THRESHOLDS - 1)]
        chosen = asked & (chosen | (self.places == jnp.argmax(sure)))
        surer = asked & (sure > state.surest)
        likely = jnp.where(surer, predicted.tokens, state.likely)
        likely_pass = jnp.where(surer, f.passes, state.likely_pass)
        ids, order = jnp.where(chosen, predicted.tokens, f.ids), jnp.where(chosen, f.passes, f.order)
        left = state.masked & ~chosen
        fill = left & (f.passes + 1 >= p.max_passes) & ~_ended(self.block, p, ids, left)[0]
        ids, order = jnp.where(fill, likely, ids), jnp.where(fill, likely_pass, order)
        left &= ~fill
        ended, end = _ended(self.block, p, ids, left)
        masked = jnp.argmax(state.masked).astype(jnp.int32)
        filled = f._replace(
            ids=ids,
            committed_until=jnp.where(state.masked.any(), self.block.start + masked, self.block.stop),
            order=order,
            ended=ended,
            end=end,
            decided=f.decided.at[f.passes].set((chosen & state.masked).sum(dtype=jnp.int32)),
        )
        steps = state.steps.at[sub_block].add(1)
        return _State(filled, left, jnp.where(surer, sure, state.surest), likely, likely_pass, steps, state.done)


def _fill(
    parameters: Parameters,
    cache: KvCache,
    block: Block,
    *,
    config: ModelConfig,
    options: Options,
    program: BlockProgram,
) -> DecodedBlock:
    """Decide the masks of a block and store it in the cache, which is donated."""
    filling, (wide, narrow) = _Filling(parameters, block, config, options, program), program.windows

    def passes(state: _State) -> _State:
        """A wide pass, and the narrow ones until the next wide one."""
        state = filling.one_pass(state, wide)
        if narrow == wide:
            return state
        more = lambda state: ~state.done & ~needs_wide(state.masked, state.steps, program)  # noqa: E731
        return lax.while_loop(more, lambda state: filling.one_pass(state, narrow), state)

    return lax.while_loop(lambda state: ~state.done, passes, filling.begin(cache)).filled


fill = jit(_fill, static=("config", "options", "program"), donate=("cache",))


def _predicted(logits: jax.Array, mask: int) -> tuple[jax.Array, jax.Array]:
    """(token int32, its probability float32) of each row; at a tie the lowest token; the mask is never chosen."""
    logits = logits.at[:, mask].set(-jnp.inf)
    largest = logits.max(axis=1, keepdims=True)
    return jnp.argmax(logits, axis=1).astype(jnp.int32), 1 / jnp.exp(logits - largest).sum(axis=1)


def _ended(block: Block, program: BlockProgram, ids: jax.Array, left: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Whether the text has ended without a mask before its end; and the position after its end, or the limit."""
    positions = block.start + lax.iota(jnp.int32, program.block)
    ends = jnp.zeros(ids.shape, bool)
    for token in program.eos:
        ends |= ids == token
    ends &= (positions >= block.generated) & (positions < jnp.minimum(block.stop, block.limit))
    end = jnp.where(ends, positions + 1, block.limit).min()
    return (block.stop >= end) & ~(left & (positions < end)).any(), end
