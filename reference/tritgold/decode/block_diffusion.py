"""Block diffusion the way of Fast-dLLM v2: a block of masked tokens is filled over several forward passes, then kept.

Tokens stand in blocks at absolute positions. The finished blocks are in the KV cache; the current one is forwarded
whole, its tokens seeing each other both ways, and a masked token is predicted by the position before it (token shift).
A pass decides, of the first sub-block that is not finished, every masked token whose probability is above the
threshold, and the likeliest one whatever its probability. A last pass over the finished block puts its keys and values
into the cache and predicts, as an autoregressive model would, the first token of the next.

Source: arXiv 2509.26328 and the ``generate`` of its released model. Other than there: a prompt of exactly one block is
read (there it is lost), the mask itself is never predicted (there it may be, without end), output ends at max_tokens
and at the first end-of-sequence token. One pass computes the whole block: what a sub-block cache would reuse is exact.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tritgold.config import ModelConfig, check_tokens
from tritgold.decode.autoregressive import StopReason
from tritgold.errors import ConfigError, ContextError
from tritgold.kv_cache.float32 import Float32Cache
from tritgold.model import forward
from tritgold.portable_math import exp, pairwise_sum
from tritgold.weights import ModelWeights

SUB_BLOCK = 8
THRESHOLD = 0.9  # the default of the released chat program; 1 decides one token a pass

# (tokens, keep) -> float [tokens, vocab]; the tokens follow what is kept, and are kept themselves if so asked.
BlockLogits = Callable[[list[int], bool], np.ndarray]


@dataclass(frozen=True)
class Diffused:
    """What block diffusion generated.

    tokens: without the prompt. forwards: passes over a block, those that keep it included, the prompt's prefill not.
    order: for each generated token the number of the pass that decided it, from 0; -1 for the prefill. A pass all of
    whose tokens lie behind the end has a number that nobody bears.
    """

    tokens: list[int]
    forwards: int
    order: list[int]
    reason: StopReason


def block_diffusion(
    prompt: list[int],
    config: ModelConfig,
    block_logits: BlockLogits,
    max_tokens: int,
    threshold: float = THRESHOLD,
    sub_block: int = SUB_BLOCK,
) -> Diffused:
    """Generate up to ``max_tokens`` tokens.

    threshold: probabilities strictly above it are decided at once; at 1 or more, one token a pass. sub_block: tokens
    that are decided left to right in groups; a divisor of the block. The lowest id wins a tie of logits, the first
    position one of probabilities.

    Raises, before any compute, ConfigError where the model has no mask and block, sub_block does not divide the block,
    or threshold is negative or NaN; ContextError for a prompt that cannot be read, holds the mask or leaves no room for
    its block, and for max_tokens below 1.
    """
    check_tokens(prompt, config)
    mask, block = config.mask, config.block
    if mask is None or block is None:
        hint = "bd_size and mask_token_id in config.json make a model one of block diffusion"
        raise ConfigError("is no block-diffusion model", kind="no-diffusion", thing="config", hint=hint)
    if sub_block < 1 or block % sub_block:
        raise ConfigError(
            "is not usable", kind="sub-block", thing="sub_block", got=sub_block, expected=f"a divisor of {block}"
        )
    if not threshold >= 0:
        raise ConfigError("is not usable", kind="threshold", thing="threshold", got=threshold, expected="0 or more")
    if len(prompt) % block and len(prompt) // block * block + block > config.context:
        what = "the prompt's last block does not fit the context"
        raise ContextError(
            what, kind="context-length", got=len(prompt), expected=f"blocks of {block} in {config.context}"
        )
    if mask in prompt:
        hint = "block diffusion continues a prompt; filling in masks of the prompt is another task"
        raise ContextError("the prompt holds the mask", kind="mask-in-prompt", got=prompt.index(mask), hint=hint)
    if max_tokens < 1:
        raise ContextError("max_tokens must be positive", kind="max-tokens", got=max_tokens, expected="at least 1")
    return _Decoder(prompt, config, mask, block, block_logits, max_tokens, threshold, sub_block).run()


class _Decoder:
    """ids: prompt and what is generated, masks among it only in the current block. start: of the current block."""

    def __init__(
        self,
        prompt: list[int],
        config: ModelConfig,
        mask: int,
        block: int,
        block_logits: BlockLogits,
        max_tokens: int,
        threshold: float,
        sub_block: int,
    ) -> None:
        self.config, self.mask, self.block = config, mask, block
        self.block_logits, self.threshold, self.sub_block = block_logits, threshold, sub_block
        self.prompt, self.limit = len(prompt), len(prompt) + max_tokens
        self.ids, self.order = list(prompt), dict[int, int]()  # order: position -> number of the pass
        self.start, self.forwards = 0, 0

    def run(self) -> Diffused:
        whole = self.prompt // self.block * self.block
        while self.start < whole:  # block by block: few logits at a time
            logits = self._logits(self.ids[self.start : self.start + self.block], True)
            self.start += self.block
            if self.start == self.prompt:
                self._append(logits)
        while not self._finished():
            if self.start + self.block > self.config.context:
                return self._result("context_full")
            self._fill()
            if not self._finished():
                self.forwards += 1
                logits = self._logits(self.ids[self.start :], True)
                self.start += self.block
                self._append(logits)
        stopped = self.ids[self._end() - 1] in self.config.eos
        return self._result("stop" if stopped else "length")

    def _fill(self) -> None:
        """Decide the current block, sub-block by sub-block, or as much of it as the output needs."""
        self.ids += [self.mask] * (self.start + self.block - len(self.ids))
        for first in range(self.start, self.start + self.block, self.sub_block):
            while not self._finished():
                masked = [at for at in range(first, first + self.sub_block) if self.ids[at] == self.mask]
                if not masked:
                    break
                self.forwards += 1
                logits = self._logits(self.ids[self.start :], False)
                # Token shift. Position 0 of a block is known: from the prompt, or from the pass before the block.
                before = logits[np.array(masked) - 1 - self.start]
                chosen, sure = np.argmax(before, axis=1), probabilities(before)
                decided = sure > self.threshold
                decided[np.argmax(sure)] = True
                for at, token in zip(np.array(masked)[decided].tolist(), chosen[decided].tolist(), strict=True):
                    self.ids[at], self.order[at] = token, self.forwards - 1

    def _logits(self, tokens: list[int], keep: bool) -> np.ndarray:
        """float64 [tokens, vocab], the mask impossible."""
        logits = np.array(self.block_logits(tokens, keep), np.float64)
        logits[:, self.mask] = -np.inf
        return logits

    def _append(self, logits: np.ndarray) -> None:
        self.order[len(self.ids)] = self.forwards - 1
        self.ids.append(int(np.argmax(logits[-1])))

    def _end(self) -> int:
        """Where the output ends: behind the first end-of-sequence token, or at the limit."""
        generated = range(self.prompt, min(len(self.ids), self.limit))
        return next((at + 1 for at in generated if self.ids[at] in self.config.eos), self.limit)

    def _finished(self) -> bool:
        """Whether everything up to the end is decided."""
        end = self._end()
        return len(self.ids) >= end and self.mask not in self.ids[self.prompt : end]

    def _result(self, reason: StopReason) -> Diffused:
        end = min(self._end(), len(self.ids))
        positions = range(self.prompt, end)
        return Diffused(self.ids[self.prompt : end], self.forwards, [self.order[at] for at in positions], reason)


def probabilities(logits: np.ndarray) -> np.ndarray:
    """The largest softmax probability of each row. logits: float64 [rows, vocab].

    >>> probabilities(np.array([[0.0, 0.0], [-np.inf, 3.0]])).tolist()
    [0.5, 1.0]
    """
    return 1 / pairwise_sum(exp(logits - np.max(logits, axis=1, keepdims=True)))


def reference_block_logits(weights: ModelWeights, config: ModelConfig, capacity: int) -> BlockLogits:
    """The golden model as ``BlockLogits`` with its own cache.

    capacity: positions of prompt and output; the cache has room for whole blocks of them, at most the context.
    """
    block = config.block or 1
    cache = Float32Cache(config, min(-(-capacity // block) * block, config.context))

    def block_logits(tokens: list[int], keep: bool) -> np.ndarray:
        start = cache.length
        logits = forward(tokens, weights, config, cache, block=block)
        if not keep:
            cache.truncate(start)
        return logits

    return block_logits
