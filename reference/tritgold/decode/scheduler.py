"""Continuous batching: requests arrive at any time, and each pass reads the next tokens of all running requests.

A step is

    admit     requests in order of arrival, as long as there is one of ``max_sequences`` slots and enough pages for the
              whole text; no request overtakes another. The part of a prompt in the radix cache is not read again.
    evict     pages that no sequence reads, if the pass needs more pages than are free
    read      one pass: the next ``chunk`` tokens of each prompt, and one token of each text that is being generated
    choose    a token for every text that has been read to its end; a finished request leaves, and its pages are
              cached for other requests or become free

Pages are reserved at admission, so a request never stops for lack of pages. A token depends only on its own text: other
requests, the cache and the division of a prompt into chunks change only the counters. If a request fails, because its
prompt makes an activation infinite, the others continue.

``server_defects.ServerDefect`` names what engines do wrong here: a token for every chunk of a prompt, positions that
advance twice per token, a fully cached prompt whose last token is read again at the next position, a last token that
is cached although it was never read.
"""

from collections import deque
from collections.abc import Iterable

import numpy as np

from tritgold.config import ModelConfig
from tritgold.decode.autoregressive import Step
from tritgold.decode.batched_forward import Part, forward_parts
from tritgold.decode.served_sequence import ServedSequence
from tritgold.decode.serving_options import Counters, Ending, Outcome, Request, Serving
from tritgold.errors import NonFiniteError
from tritgold.kv_cache.paged import PagePool
from tritgold.kv_cache.radix import RadixCache
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC, Arithmetic
from tritgold.trace import Trace
from tritgold.weights import ModelWeights


class Scheduler:
    """The scheduler of a batch server.

    outcomes: of the requests that have ended, by number; the caller removes those that it has read. waiting, running:
    the other requests, oldest first.
    """

    def __init__(
        self,
        weights: ModelWeights,
        config: ModelConfig,
        serving: Serving | None = None,
        arithmetic: Arithmetic = GOLDEN_ARITHMETIC,
    ) -> None:
        """ConfigError if the scheme cannot be paged (``kv-paged``) or, with radix_cache, shared (``kv-shared``)."""
        self.serving = serving or Serving()
        self.pool = PagePool(self.serving.scheme, config, self.serving.pool_pages(config), self.serving.page_size)
        self.radix = RadixCache(self.pool) if self.serving.radix_cache else None
        self.counters, self.outcomes = Counters(), dict[int, Outcome]()
        self.waiting, self.running = deque[ServedSequence](), list[ServedSequence]()
        self._weights, self._config, self._arithmetic = weights, config, arithmetic

    def submit(self, request: Request, trace: Trace | None = None) -> int:
        """Queue a request; returns its number, from 0. trace: receives the activations of the tokens read for it.

        Raises ContextError, and queues nothing, for a request that can never be served: as ``generate`` does, and
        ``page-budget`` for one that needs more pages than the pool has.
        """
        sequence = ServedSequence(self.counters.requests, request, self._config, self.pool, trace)
        self.waiting.append(sequence)
        self.counters.requests += 1
        return sequence.number

    def cancel(self, number: int) -> None:
        """End a request now, with the tokens it has so far. No effect if it has ended or does not exist."""
        for sequence in [*self.waiting, *self.running]:
            if sequence.number == number:
                self._end(sequence, "cancelled")

    def step(self) -> list[tuple[int, Step]]:
        """Make one pass for all running requests. Returns the new tokens, each with the number of its request."""
        self._admit()
        if not self.running:
            return []
        batch = [(sequence, sequence.part(self.serving.chunk)) for sequence in self.running]
        self._make_room([part for _, part in batch])
        unread = sum(sequence.prompt_left for sequence, _ in batch)
        logits = self._read([part for _, part in batch])
        self.counters.prefilled += unread - sum(sequence.prompt_left for sequence, _ in batch)
        said = list[tuple[int, Step]]()
        for (sequence, part), found in zip(batch, logits, strict=True):
            try:
                if isinstance(found, NonFiniteError):
                    raise found
                if part.every and sequence.hear is not None:
                    sequence.hear(sequence.cache.length - len(part.tokens), found)
                if part.wanted:
                    said.append((sequence.number, self._choose(sequence, found[-1])))
            except NonFiniteError as error:
                self._end(sequence, "failed", error)
        return said

    def run(self) -> None:
        """Step until every request has ended."""
        while self.waiting or self.running:
            self.step()

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self.serving.max_sequences:
            sequence = self.waiting[0]
            if self.radix is not None:
                sequence.find(self.radix)
            free = self.pool.free_pages + (0 if self.radix is None else self.radix.evictable_pages)
            promised = sum(other.pages_to_come for other in self.running)
            if promised + sequence.pages_to_come > free:
                sequence.leave(self.radix)
                return
            sequence.reused = sequence.cache.length
            self.counters.reused += sequence.reused
            self.running.append(self.waiting.popleft())

    def _make_room(self, parts: list[Part]) -> None:
        if self.radix is not None:
            missing = sum(part.cache.pages_missing(len(part.tokens)) for part in parts)
            self.radix.evict(missing - self.pool.free_pages)

    def _read(self, parts: list[Part]) -> list[np.ndarray | NonFiniteError]:
        """The logits of each part, or its error. If the pass fails, it is repeated for each part separately."""
        self.counters.forwards += 1
        try:
            return list(forward_parts(parts, self._weights, self._config, self._arithmetic))
        except NonFiniteError as error:
            return [error] if len(parts) == 1 else [found for part in parts for found in self._read([part])]

    def _choose(self, sequence: ServedSequence, logits: np.ndarray) -> Step:
        step = sequence.take(logits)
        self.counters.generated += 1
        if step.reason is not None:
            self._end(sequence, step.reason)
        elif self.radix is not None and len(sequence.generated) == 1:
            sequence.keep(self.radix)  # the prompt, for requests with the same beginning, while this one still runs
            self._trim()
        return step

    def _end(self, sequence: ServedSequence, reason: Ending, error: NonFiniteError | None = None) -> None:
        (self.running if sequence in self.running else self.waiting).remove(sequence)
        self.outcomes[sequence.number] = Outcome(sequence.generated, reason, sequence.reused, error)
        if self.radix is not None:
            sequence.keep(self.radix)
        sequence.leave(self.radix)
        self._trim()

    def _trim(self) -> None:
        if self.radix is not None:
            over = self.radix.cached_pages * self.pool.page_size - self.serving.radix_cache_max_tokens
            self.radix.evict(-(-over // self.pool.page_size))


def serve(
    requests: Iterable[Request], weights: ModelWeights, config: ModelConfig, serving: Serving | None = None
) -> list[Outcome]:
    """The outcomes of requests that all arrive at once, in order. Raises as ``submit`` does, before any compute."""
    scheduler = Scheduler(weights, config, serving)
    numbers = [scheduler.submit(request) for request in requests]
    scheduler.run()
    return [scheduler.outcomes[number] for number in numbers]
