"""What a batch server is given: its own sizes, and the requests. And what it answers, and counts."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tritgold.config import ModelConfig
from tritgold.decode.autoregressive import StopReason
from tritgold.decode.sampling import GREEDY, Sampling
from tritgold.errors import ConfigError, TritgoldError
from tritgold.kv_cache.base import KvScheme
from tritgold.kv_cache.float32 import F32
from tritgold.option_values import is_count

Ending = StopReason | Literal["cancelled", "failed"]
_EXACT = F32()
# (logits [vocab] after the text, the text) -> the next token.
Chooser = Callable[[np.ndarray, Sequence[int]], int]
# (position of the first, logits [tokens, vocab] at tokens of the prompt).
PromptReader = Callable[[int, np.ndarray], None]


@dataclass(frozen=True)
class Serving:
    """The sizes of a batch server. None of them changes a token; the defaults are those of a server in use.

    max_sequences: that are read in one pass. chunk: tokens of a prompt that one pass reads at most.
    radix_cache: whether what was read is kept for others that begin alike. radix_cache_max_tokens: how much of it; what
        running sequences read counts, and stays in any case.
    page_size: tokens. pages: of the pool; None: as many as max_sequences texts of the model's context fill.
    scheme: how keys and values are kept, each token by itself.

    Raises ConfigError (``serving-option``) for a size below 1, radix_cache_max_tokens below 0, and another type.
    """

    max_sequences: int = 16
    chunk: int = 128
    radix_cache: bool = True
    radix_cache_max_tokens: int = 100_000
    page_size: int = 16
    pages: int | None = None
    scheme: KvScheme = _EXACT

    def __post_init__(self) -> None:
        for name in ("max_sequences", "chunk", "radix_cache_max_tokens", "page_size", "pages"):
            got, least = getattr(self, name), int(name != "radix_cache_max_tokens")
            self._check(
                name, is_count(got, least) or (name == "pages" and got is None), f"an integer, at least {least}"
            )
        self._check("radix_cache", isinstance(self.radix_cache, bool), "true or false")
        self._check("scheme", isinstance(self.scheme, KvScheme), "a KvScheme, as kv_scheme(name) gives")

    def _check(self, name: str, usable: bool, expected: str) -> None:
        if not usable:
            got = repr(getattr(self, name))
            raise ConfigError("is not usable", kind="serving-option", thing=name, got=got, expected=expected)

    def pool_pages(self, config: ModelConfig) -> int:
        """Pages of the pool for this model."""
        return self.pages or self.max_sequences * -(-config.context // self.page_size)


@dataclass(frozen=True)
class Request:
    """A text to be continued; the first parameters are those of ``generate``.

    choose: the next token by the logits as they come, instead of ``sampling``; what it raises of NonFiniteError fails
    the request alone. hear: gets the logits at every token of the prompt, of which then nothing is found cached.
    """

    prompt: Sequence[int]
    max_tokens: int
    sampling: Sampling = GREEDY
    stop: Collection[int] | None = None
    choose: Chooser | None = None
    hear: PromptReader | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of a request. tokens: generated. reason: why they end. reused: tokens of its prompt found cached.

    error: of a ``failed`` request, what ``generate`` would have raised. moved: tokens of its prompt whose keys and
    values are those of another text, an approximation that the golden scheduler does not make.
    """

    tokens: list[int]
    reason: Ending
    reused: int
    error: TritgoldError | None = None
    moved: int = 0


@dataclass
class Counters:
    """What a scheduler has done.

    requests: accepted. forwards: passes. prefilled, reused: tokens of prompts that were read, and that were found
    cached. generated: tokens emitted.
    """

    requests: int = 0
    forwards: int = 0
    prefilled: int = 0
    reused: int = 0
    generated: int = 0
