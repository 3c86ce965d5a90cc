"""Greedy autoregressive decoding: one token a forward pass, each the first maximum of the logits."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tritgold.config import ModelConfig, check_tokens
from tritgold.errors import ContextError
from tritgold.kv_cache.float32 import Float32Cache
from tritgold.model import forward
from tritgold.weights import ModelWeights

StopReason = Literal["stop", "length", "context_full"]
NextLogits = Callable[[list[int]], np.ndarray]


@dataclass(frozen=True)
class Step:
    """A generated token. reason: why decoding ended with it, None while it goes on."""

    token: int
    reason: StopReason | None


def greedy(prompt: list[int], config: ModelConfig, next_logits: NextLogits, max_tokens: int) -> Iterator[Step]:
    """Generate up to ``max_tokens`` tokens; an engine is known here only as a function.

    next_logits: takes the tokens not yet seen (the prompt, then one at a time), returns float [vocab] for the next.
    The lowest id wins a tie. Ends with ``stop`` at an end-of-sequence token (which is yielded), with ``length``
    at max_tokens, with ``context_full`` when the model has no position left to read the token at.

    Raises ContextError before any compute when the prompt is empty, out of vocabulary or too long, or when
    max_tokens is below 1.
    """
    check_tokens(prompt, config)
    if max_tokens < 1:
        raise ContextError("max_tokens must be positive", kind="max-tokens", got=max_tokens, expected="at least 1")
    return _generate(prompt, config, next_logits, max_tokens)


def _generate(prompt: list[int], config: ModelConfig, next_logits: NextLogits, max_tokens: int) -> Iterator[Step]:
    logits, length = next_logits(prompt), len(prompt)
    for count in range(1, max_tokens + 1):
        token = int(np.argmax(logits))
        reason: StopReason | None = None
        if token in config.eos:
            reason = "stop"
        elif count == max_tokens:
            reason = "length"
        elif length == config.context:
            reason = "context_full"
        yield Step(token, reason)
        if reason:
            return
        logits, length = next_logits([token]), length + 1


def reference_logits(weights: ModelWeights, config: ModelConfig, capacity: int) -> NextLogits:
    """The golden model as a ``NextLogits`` with its own cache of ``capacity`` positions (at most the context)."""
    cache = Float32Cache(config, min(capacity, config.context))
    return lambda tokens: forward(tokens, weights, config, cache, last_only=True)[-1]
