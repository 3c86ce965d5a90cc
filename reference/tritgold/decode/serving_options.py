"""The data types of the batch server: its sizes, requests, outcomes and counters."""

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
# (position of the first token, logits [tokens, vocab] of these prompt tokens).
PromptReader = Callable[[int, np.ndarray], None]


@dataclass(frozen=True)
class Serving:
    """The sizes of a batch server. None of them changes a token; the defaults are those of a real server.

    max_sequences: the most that are read in one pass. chunk: the most tokens of a prompt that one pass reads.
    radix_cache: whether pages are kept for requests with the same beginning. radix_cache_max_tokens: the most that are
        kept; tokens of running sequences count too, but are never evicted.
    page_size: in tokens. pages: of the pool; None: enough for max_sequences texts that fill the model's context.
    scheme: of the KV cache; it must store each token separately.

    Raises ConfigError (``serving-option``) for a size below 1, radix_cache_max_tokens below 0, or a wrong type.
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
        """The number of pages of the pool for this model."""
        return self.pages or self.max_sequences * -(-config.context // self.page_size)


@dataclass(frozen=True)
class Request:
    """A text to be continued; the first four fields are parameters of ``generate``.

    choose: function that chooses the next token from the unchanged logits, instead of ``sampling``; if it raises
    NonFiniteError, only this request fails. hear: receives the logits of every prompt token; then the cache is not
    used for this prompt.
    """

    prompt: Sequence[int]
    max_tokens: int
    sampling: Sampling = GREEDY
    stop: Collection[int] | None = None
    choose: Chooser | None = None
    hear: PromptReader | None = None


@dataclass(frozen=True)
class Outcome:
    """The result of a request. tokens: generated. reason: why they end. reused: prompt tokens found in the cache.

    error: for reason ``failed``, the error that ``generate`` would have raised; else None. moved: prompt tokens whose
    keys and values are those of another text, an approximation that the golden scheduler does not make.
    """

    tokens: list[int]
    reason: Ending
    reused: int
    error: TritgoldError | None = None
    moved: int = 0


@dataclass
class Counters:
    """Totals of a scheduler.

    requests: accepted. forwards: passes. prefilled: prompt tokens that were read. reused: prompt tokens found in the
    cache. generated: tokens emitted.
    """

    requests: int = 0
    forwards: int = 0
    prefilled: int = 0
    reused: int = 0
    generated: int = 0
