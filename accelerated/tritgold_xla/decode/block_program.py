"""One block of block diffusion as one compiled program: its passes are a ``while_loop``, without Python between them.

With block attention every pass reads the block. With causal attention a pass reads from the first masked token of the
previous pass on: so a block's first pass, over a window of two blocks, also stores the tokens that the last pass of the
previous block decided; all other passes need the block and the token before it, whose prediction is the block's first
token. The head is computed only for the positions to be predicted.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from tritgold.config import ModelConfig
from tritgold_xla.decode.diffusion_options import THRESHOLDS, BlockProgram
from tritgold_xla.decoder_layer import Options
from tritgold_xla.kv_cache.base import KvCache
from tritgold_xla.model import hidden_states
from tritgold_xla.parameters import Parameters
from tritgold_xla.runtime.flags import jit

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


class DecodedBlock(NamedTuple):
    """The result of a program.

    ids, committed_until: as in ``Block``, after the passes. order: int32 [block], the pass that decided each token, -1
    for none. end: if ended, the position after the text's last. following: the next block's first token (block
    attention). decided: int32 [block + 2], tokens decided in each pass; passes, commits: their numbers. finite: whether
    all activations were finite, and no used logit was +inf or NaN.
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
    surest: jax.Array  # float32 [block], the highest probability in any pass
    likely: jax.Array  # int32 [block], its token
    likely_pass: jax.Array
    steps: jax.Array  # int32 [sub-blocks]
    done: jax.Array


class _Window(NamedTuple):
    """What a pass reads and predicts.

    begin: its first position; tokens: int32 [window]. rows: int32, indices in the window that predict. asked: bool
    [block], where a prediction is needed; the first of the rows predicts index ``first`` of the block. step: number of
    earlier passes over these positions.
    """

    begin: jax.Array
    tokens: jax.Array
    rows: jax.Array
    asked: jax.Array
    first: jax.Array
    step: jax.Array


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
        zero, none = jnp.int32(0), jnp.full((size,), -1, jnp.int32)
        filled = DecodedBlock(
            cache, block.ids, block.committed_until, none, jnp.bool_(False), block.limit, zero,
            jnp.zeros((size + 2,), jnp.int32), zero, zero, jnp.bool_(True),
        )  # fmt: skip
        steps = jnp.zeros((size // p.sub_block,), jnp.int32)
        return _State(filled, masked, jnp.full((size,), -1.0), block.ids, none, steps, jnp.bool_(False))

    def one_pass(self, state: _State, size: int) -> _State:
        """Read a window of ``size`` tokens, decide tokens by the thresholds, and set ``done`` after the last pass."""
        f, commit = state.filled, ~state.masked.any()
        window = self._causal_window(state, size) if self.program.causal else self._block_window(state, commit)
        count = jnp.minimum(self.block.stop, self.block.room) - window.begin
        x, cache, finite, _, _ = hidden_states(
            self.parameters, f.cache, window.tokens, window.begin, count, jnp.int32(0), config=self.config,
            options=self.options,
        )  # fmt: skip
        predicted, usable = self._predictions(x, window, commit)
        state = self._decided(state, window, predicted)
        filled = state.filled._replace(
            cache=cache,
            following=predicted.following,
            passes=f.passes + 1,
            commits=f.commits + commit.astype(jnp.int32),
            finite=f.finite & (finite & usable).all(),
        )
        done = filled.ended | (~state.masked.any() if self.program.causal else commit)
        return state._replace(filled=filled, done=done)

    def _causal_window(self, state: _State, size: int) -> _Window:
        """The window from the last committed token or from the token before the first mask, whichever is earlier."""
        block, f, length = self.block, state.filled, self.program.block
        first = jnp.argmax(state.masked).astype(jnp.int32)  # 0 where nothing is masked
        begin = jnp.minimum(block.start + first - 1, f.committed_until)
        around = jnp.concatenate([block.before, f.ids, jnp.zeros((2 * length,), jnp.int32)])
        tokens = lax.dynamic_slice(around, (begin - block.start + length,), (size,))
        return _Window(begin, tokens, block.start - 1 - begin + self.places, state.masked, jnp.int32(0), f.passes)

    def _block_window(self, state: _State, commit: jax.Array) -> _Window:
        """The window of the whole block; predictions are for the first sub-block with a mask."""
        p = self.program
        sub_block = jnp.argmax(state.masked).astype(jnp.int32) // p.sub_block
        asked = state.masked & (self.places // p.sub_block == sub_block)
        rows = sub_block * p.sub_block - 1 + lax.iota(jnp.int32, p.sub_block)
        rows = jnp.where(commit, p.block - 1, rows)  # the last token predicts the next block's first token
        return _Window(self.block.start, state.filled.ids, rows, asked, sub_block * p.sub_block, state.steps[sub_block])

    def _predictions(self, x: jax.Array, window: _Window, commit: jax.Array) -> tuple[_Predictions, jax.Array]:
        """The predictions from hidden states x [window, hidden]; and bool [], whether all probabilities are finite."""
        wanted = jnp.take(x, jnp.clip(window.rows, 0, window.tokens.shape[0] - 1), axis=0)
        tokens, sure = _predicted(self.options.split.logits(wanted, self.parameters.head), self.program.mask)
        following, last = tokens[-1], sure[-1]
        if not self.program.causal:
            # From the sub-block's rows to their indices in the block; nothing is asked elsewhere.
            size = self.program.block
            tokens = lax.dynamic_update_slice(jnp.zeros((size,), jnp.int32), tokens, (window.first,))
            sure = lax.dynamic_update_slice(jnp.full((size,), -1.0), sure, (window.first,))
        sure = jnp.where(window.asked, sure, -1.0)
        # A row with a logit of +inf or NaN (other than the mask's) has only NaN probabilities.
        usable = jnp.isfinite(sure).all() & (jnp.isfinite(last) | ~commit)
        return _Predictions(tokens, sure, following), usable

    def _decided(self, state: _State, window: _Window, predicted: _Predictions) -> _State:
        """The state with the tokens that this pass decides; cache and counts are unchanged."""
        f, p, sure, asked = state.filled, self.program, predicted.sure, window.asked
        chosen = sure > self.block.thresholds[jnp.minimum(window.step, THRESHOLDS - 1)]
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
        first = jnp.argmax(state.masked).astype(jnp.int32)
        filled = f._replace(
            ids=ids,
            committed_until=jnp.where(state.masked.any(), self.block.start + first, self.block.stop),
            order=order,
            ended=ended,
            end=end,
            decided=f.decided.at[f.passes].set((chosen & state.masked).sum(dtype=jnp.int32)),
        )
        steps = state.steps if p.causal else state.steps.at[window.first // p.sub_block].add(1)
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
    filling, size = _Filling(parameters, block, config, options, program), program.block
    state = filling.begin(cache)
    if program.causal:
        state, size = filling.one_pass(state, 2 * size), size + 1
    return lax.while_loop(lambda state: ~state.done, lambda state: filling.one_pass(state, size), state).filled


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
