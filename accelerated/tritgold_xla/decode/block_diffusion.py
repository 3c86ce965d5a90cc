"""Block diffusion on the XLA engine: each block is one call of a compiled program."""

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from tritgold.config import check_tokens
from tritgold.errors import ContextError
from tritgold_xla.decode.block_program import fill
from tritgold_xla.decode.block_reads import Block
from tritgold_xla.decode.diffusion_options import THRESHOLDS, BlockOptions, BlockProgram, resolved
from tritgold_xla.engine import XlaEngine
from tritgold_xla.runtime.checks import check_room


@dataclass(frozen=True)
class Diffused:
    """The generated tokens, without the prompt; order: for each token the number of its pass, from 0; -1: the prefill.

    reason: ``stop``, ``length`` or ``context_full``. passes, read: number of tokens that each forward pass decided, and
    that it read; forwards_per_block: number of passes of each block; commits: number of passes that only stored a
    finished block.
    """

    tokens: list[int]
    order: list[int]
    reason: str
    passes: list[int]
    read: list[int]
    forwards_per_block: list[int]
    commits: int

    @property
    def forwards(self) -> int:
        """Number of passes over blocks, commits included, without the prompt's prefill."""
        return len(self.passes)

    @property
    def tokens_per_forward(self) -> float:
        """Generated tokens, without one decided by the prefill, / forwards; 0 without forwards."""
        return sum(number >= 0 for number in self.order) / self.forwards if self.passes else 0.0


def block_diffusion(engine: XlaEngine, prompt: list[int], max_tokens: int, options: BlockOptions) -> Diffused:
    """Generate up to ``max_tokens`` tokens. The engine is reset before and after.

    Raises, before any compute, ConfigError as ``resolved`` does, ContextError for a prompt that cannot be read
    (``check_tokens``), contains the mask (``mask-in-prompt``) or has no room for its last block (``context-length``),
    and for max_tokens below 1 (``max-tokens``).
    """
    blocks = block_by_block(engine, prompt, max_tokens, options)
    while True:
        try:
            next(blocks)
        except StopIteration as done:
            result: Diffused = done.value
            return result


def block_by_block(
    engine: XlaEngine, prompt: list[int], max_tokens: int, options: BlockOptions
) -> Generator[list[int], None, Diffused]:
    """As ``block_diffusion``, a block at a time: yields all tokens so far, none of which changes any more.

    The engine is its own from the first that are asked for until it ends or is closed. Raises then.
    """
    config = engine.config
    program = resolved(options, config)
    ids = check_room(check_tokens(prompt, config), 0, engine.capacity)
    size, n = program.block, ids.size
    if program.mask in ids:
        at = ids.tolist().index(program.mask)
        raise ContextError("the prompt holds the mask", kind="mask-in-prompt", thing=f"position {at}", got=program.mask)
    if type(max_tokens) is not int or max_tokens < 1:
        raise ContextError("max_tokens must be positive", kind="max-tokens", got=max_tokens, expected="at least 1")
    if not program.causal and n % size and n // size * size + size > engine.capacity:
        raise ContextError(
            "the prompt's last block does not fit the context",
            kind="context-length",
            got=n,
            expected=f"blocks of {size} in {engine.capacity}",
        )
    engine.reset()
    try:
        return (yield from _generate(engine, ids.tolist(), max_tokens, program, _padded(options.thresholds)))
    finally:
        engine.reset()


def _generate(
    engine: XlaEngine, text: list[int], max_tokens: int, program: BlockProgram, thresholds: np.ndarray
) -> Generator[list[int], None, Diffused]:
    n, size = len(text), program.block
    order, passes, read, blocks = list[int](), list[int](), list[int](), list[int]()
    commits, limit = 0, n + max_tokens

    def made(reason: str | None = None, end: int | None = None) -> Diffused:
        """What there is, up to position ``end``. reason: None where the last token ends the text."""
        tokens = text[n:end]
        ended = "stop" if tokens and tokens[-1] in program.eos else "length"
        return Diffused(tokens, order[: len(tokens)], reason or ended, passes, read, blocks, commits)

    committed_until = n if program.causal else n // size * size
    following = engine.read(text[:committed_until], block=None if program.causal else size) if committed_until else None
    if following is not None and committed_until == n:
        text.append(_likeliest(following, program.mask))
        order.append(-1)
        if len(text) >= limit or text[-1] in program.eos:
            return made()
    while True:
        yield text[n:]
        start = len(text) if program.causal else len(text) // size * size
        # Causal: the last block is shortened; a token that is only predicted, never read, needs no position.
        stop = min(start + size, engine.capacity + 1) if program.causal else start + size
        if stop <= start or (stop > engine.capacity and not program.causal):
            return made("context_full")
        block = Block(
            *_around(text, start, program),
            start=np.int32(start),
            stop=np.int32(stop),
            committed_until=np.int32(committed_until),
            generated=np.int32(n),
            limit=np.int32(limit),
            room=np.int32(engine.capacity),
            thresholds=thresholds,
        )
        sees = None if program.causal else size
        filled = engine.run_on_cache(fill, block, sees, f"the block at position {start}", program=program)
        first, base = len(text) - start, len(passes)
        order += (base + np.asarray(filled.order)[first : stop - start]).tolist()
        text += np.asarray(filled.ids)[first : stop - start].tolist()
        passes += np.asarray(filled.decided)[: int(filled.passes)].tolist()
        read += np.asarray(filled.read)[: int(filled.passes)].tolist()
        blocks.append(int(filled.passes))
        commits, committed_until = commits + int(filled.commits), int(filled.committed_until)
        if filled.ended:
            return made(end=int(filled.end))
        if not program.causal:
            text.append(int(filled.following))
            order.append(len(passes) - 1)
            if len(text) >= limit or text[-1] in program.eos:
                return made()


def _padded(thresholds: tuple[float, ...]) -> np.ndarray:
    return np.array(thresholds + thresholds[-1:] * (THRESHOLDS - len(thresholds)), np.float32)


def _around(text: list[int], start: int, program: BlockProgram) -> tuple[np.ndarray, np.ndarray]:
    """(ids of the block that begins at ``start``, masks for unknown tokens; ids of as many tokens before it)."""
    ids, before = np.full(program.block, program.mask, np.int32), np.zeros(program.block, np.int32)
    ids[: len(text) - start] = text[start:]
    tail = text[max(0, start - program.block) : start]
    before[program.block - len(tail) :] = tail
    return ids, before


def _likeliest(logits: np.ndarray, mask: int) -> int:
    logits[mask] = -np.inf
    return int(np.argmax(logits))
