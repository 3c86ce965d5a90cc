"""Autoregressive decoding: one token per forward pass, the most likely or a sampled one (``sampling``)."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tritgold.config import ModelConfig, check_tokens
from tritgold.decode.sampling import GREEDY, Sampling, choose, usable_logits
from tritgold.errors import ConfigError, ContextError
from tritgold.kv_cache.base import KvCache
from tritgold.kv_cache.float32 import Float32Cache
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC, Arithmetic
from tritgold.model import forward
from tritgold.option_values import is_count
from tritgold.weights import ModelWeights

StopReason = Literal["stop", "length", "context_full"]
NextLogits = Callable[[list[int]], np.ndarray]


@dataclass(frozen=True)
class Step:
    """A generated token. reason: why decoding ended with it, None if it continues."""

    token: int
    reason: StopReason | None


@dataclass(frozen=True)
class Limits:
    """When a text ends. stop: tokens that end it. max_tokens: the most to generate. context: positions of the model."""

    stop: frozenset[int]
    max_tokens: int
    context: int

    def reason(self, token: int, count: int, before: int) -> StopReason | None:
        """Why the text ends with ``token``, the ``count``-th generated, after ``before`` tokens; None if it goes on.

        >>> limits = Limits(stop=frozenset([9]), max_tokens=3, context=8)
        >>> [limits.reason(*which) for which in [(9, 3, 8), (1, 3, 8), (1, 2, 8), (1, 2, 7)]]
        ['stop', 'length', 'context_full', None]
        """
        if token in self.stop:
            return "stop"
        if count == self.max_tokens:
            return "length"
        return "context_full" if before == self.context else None

    def positions(self, prompt: int) -> int:
        """The most positions that a prompt of ``prompt`` tokens and its output need; the last token is never read."""
        return min(prompt + self.max_tokens - 1, self.context)


def check_limits(
    prompt: Sequence[int],
    config: ModelConfig,
    max_tokens: int,
    stop: Collection[int] | None = None,
    sampling: Sampling = GREEDY,
) -> Limits:
    """The limits of a text. Raises the errors that ``generate`` raises before any compute."""
    check_tokens(prompt, config)
    check_budget(max_tokens)
    stops = config.eos if stop is None else stop
    if not isinstance(stops, Collection) or not all(is_count(token, 0, config.vocab - 1) for token in stops):
        got, expected = repr(stop), f"a collection of ids, 0 to {config.vocab - 1}"
        raise ContextError("cannot end the text", kind="token-id", thing="stop", got=got, expected=expected)
    if not isinstance(sampling, Sampling):
        raise ConfigError("is not usable", kind="sampling-option", thing="sampling", got=repr(sampling))
    return Limits(frozenset(stops), max_tokens, config.context)


def possible(logits: np.ndarray, config: ModelConfig) -> np.ndarray:
    """The logits of the model's tokens, float64 [vocab], padding cut off; the mask of a block-diffusion model is -inf.

    Raises EngineError (``logits-shape``) as ``usable_logits``.
    """
    found = usable_logits(logits, config.vocab)
    if config.mask is not None:
        found[config.mask] = -np.inf
    return found


def check_budget(max_tokens: int) -> None:
    """Raises ContextError (``max-tokens``) if it is not an integer from 1: with NaN decoding would never end."""
    if type(max_tokens) is not int or max_tokens < 1:
        raise ContextError(
            "is not usable",
            kind="max-tokens",
            thing="max_tokens",
            got=repr(max_tokens),
            expected="an integer, 1 or more",
        )


def greedy(prompt: list[int], config: ModelConfig, next_logits: NextLogits, max_tokens: int) -> Iterator[Step]:
    """Generate up to ``max_tokens`` tokens, each the first maximum of the logits: ``generate`` with its defaults."""
    return generate(prompt, config, next_logits, max_tokens)


def generate(
    prompt: list[int],
    config: ModelConfig,
    next_logits: NextLogits,
    max_tokens: int,
    sampling: Sampling = GREEDY,
    stop: Collection[int] | None = None,
) -> Iterator[Step]:
    """Generate up to ``max_tokens`` tokens with any engine, given as a function.

    next_logits: takes the tokens not yet read (the prompt, then one at a time), returns float [vocab] for the next
    token; padding of the vocabulary is cut off, and the mask of a model that has one is never generated. sampling: how
    a token is chosen. stop: tokens that end the text; None: the model's end-of-sequence tokens; with an empty set only
    max_tokens and the context end it.

    Ends with ``stop`` at such a token (which is yielded), with ``length`` at max_tokens, with ``context_full`` if the
    model has no position left to read the token; if several are true, the first of these is the reason.

    Raises ContextError before any compute if the prompt is empty, has ids outside the vocabulary or is too long, if
    max_tokens is not an integer from 1, or if a token of ``stop`` is outside the vocabulary; while it runs,
    NonFiniteError and EngineError for logits from which no token can be chosen (``sampling.candidates``, ``possible``).
    """
    limits = check_limits(prompt, config, max_tokens, stop, sampling)
    return _generate(prompt, config, next_logits, sampling, limits)


def _generate(
    prompt: list[int], config: ModelConfig, next_logits: NextLogits, sampling: Sampling, limits: Limits
) -> Iterator[Step]:
    logits, text = next_logits(prompt), list(prompt)
    while True:
        token = choose(possible(logits, config), sampling, text)
        reason = limits.reason(token, len(text) - len(prompt) + 1, len(text))
        yield Step(token, reason)
        if reason:
            return
        text.append(token)
        logits = next_logits([token])


def reference_logits(
    weights: ModelWeights,
    config: ModelConfig,
    capacity: int,
    cache: KvCache | None = None,
    arithmetic: Arithmetic = GOLDEN_ARITHMETIC,
) -> NextLogits:
    """The golden model as a ``NextLogits`` with its own cache of ``capacity`` positions (at most the context).

    cache: an empty cache to use instead. arithmetic: to use instead of the golden one, as for a sparsity rule.
    """
    rows = cache or Float32Cache(config, min(capacity, config.context))
    return lambda tokens: forward(tokens, weights, config, rows, last_only=True, arithmetic=arithmetic)[-1]
