"""One request in the scheduler: its text, its pages, and the cached prefix that it reads."""

import numpy as np

from tritgold.config import ModelConfig
from tritgold.decode.autoregressive import Step, check_limits, possible
from tritgold.decode.batched_forward import Part
from tritgold.decode.sampling import choose
from tritgold.decode.serving_options import Request
from tritgold.errors import ContextError
from tritgold.kv_cache.paged import PagedCache, PagePool
from tritgold.kv_cache.radix import Node, RadixCache
from tritgold.trace import Trace


class ServedSequence:
    """State of one request; ``scheduler`` calls its methods.

    text: prompt and generated tokens. Tokens that are not in the cache must still be read: the rest of the prompt, or
    the newest token; there is no other difference between prefill and decoding. reused: tokens found in the cache.
    """

    def __init__(self, number: int, request: Request, config: ModelConfig, pool: PagePool, trace: Trace | None) -> None:
        """Raises ContextError as ``generate`` does, and ``page-budget`` for a text that the pool cannot hold."""
        self.number, self.sampling, self.trace, self.config = number, request.sampling, trace, config
        self.limits = check_limits(request.prompt, config, request.max_tokens, request.stop, request.sampling)
        self.text = [int(token) for token in request.prompt]
        self.prompt, self.reused = len(self.text), 0
        self._choose, self.hear = request.choose, request.hear
        self.cache = PagedCache(pool, self.limits.positions(self.prompt))
        self._node: Node | None = None
        if self.pages_to_come > pool.pages:
            raise ContextError(
                "prompt and max_tokens need more pages than there are",
                kind="page-budget",
                got=self.pages_to_come,
                expected=f"at most {pool.pages}",
                hint="ask for fewer tokens, or give the pool more pages",
            )

    @property
    def generated(self) -> list[int]:
        """The tokens after the prompt."""
        return self.text[self.prompt :]

    @property
    def prompt_left(self) -> int:
        """The number of prompt tokens that are not read yet."""
        return max(0, self.prompt - self.cache.length)

    @property
    def pages_to_come(self) -> int:
        """The most pages that it may still allocate until it ends."""
        return -(-self.cache.capacity // self.cache.pool.page_size) - len(self.cache.table)

    def find(self, radix: RadixCache) -> None:
        """Use the cached beginning of the prompt, and lock it.

        The last token is always read, because its logits are not cached.
        """
        found = radix.match([] if self.hear else self.text[:-1])
        radix.lock(found.node)
        self._node = found.node
        self.cache.share(found.pages)

    def keep(self, radix: RadixCache) -> None:
        """Cache the whole pages read so far, for other requests; not the newest token, which has no keys yet."""
        whole = self.cache.length // self.cache.pool.page_size
        kept = radix.insert(self.text[: whole * self.cache.pool.page_size], self.cache.table[:whole])
        radix.lock(kept.node)
        self._unlock(radix)
        self._node = kept.node
        self.cache.share(kept.pages)

    def leave(self, radix: RadixCache | None) -> None:
        """Release its own pages and unlock the cached ones."""
        self.cache.truncate(0)
        if radix is not None:
            self._unlock(radix)

    def part(self, chunk: int) -> Part:
        """Its part of the next pass: at most ``chunk`` tokens; with logits if they are the last tokens of the text."""
        start = self.cache.length
        tokens = self.text[start : start + chunk]
        every = self.hear is not None and start < self.prompt
        return Part(tokens, self.cache, start + len(tokens) == len(self.text), self.trace, every)

    def take(self, logits: np.ndarray) -> Step:
        """Choose and append the next token by the logits [vocab] after the text. Raises as ``choose`` does."""
        if self._choose is not None:
            token = self._choose(logits, self.text)
        else:
            token = choose(possible(logits, self.config), self.sampling, self.text)
        reason = self.limits.reason(token, len(self.text) - self.prompt + 1, len(self.text))
        self.text.append(token)
        return Step(token, reason)

    def _unlock(self, radix: RadixCache) -> None:
        if self._node is not None:
            radix.unlock(self._node)
            self._node = None
