"""Continuous batching on the JAX engine: a sequence of its cache for each request, one pass for all that write.

An answer has the bits that it would have alone, because no program depends on who else is there: a token is always
decided by ``step_all`` over all sequences, of which those that are not writing take part with a token that is forgotten
at once; and a prompt is always read in the same chunks from its beginning, by a pass of its own for each.

So a prefix is reused in whole chunks of a prompt and nothing smaller: their keys are those of the same programs over
the same tokens. A sequence that is free keeps what it has read, until a request begins otherwise.

``cache_reuse``, which is off unless asked for, gives that up for the requests that it finds something for: after what
begins alike, pieces of so many tokens or more that a free sequence has further on are moved to where the prompt has
them, as llama.cpp's server does. Their keys are those of another text, so the answer is near what it would be alone and
not the same; nothing that is computed after them is kept for others.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tritgold.decode.autoregressive import Limits, Step, check_limits, possible
from tritgold.decode.sampling import choose
from tritgold.decode.serving_options import Counters, Ending, Outcome, Request
from tritgold.errors import ContextError, NonFiniteError

if TYPE_CHECKING:
    from tritgold_conformance.engines.xla import XlaEngine

CHUNK = 128  # tokens of a prompt that one pass reads: the engine's largest program
_ANY = 0  # the token of sequences that are not writing


@dataclass(eq=False)
class _Sequence:
    """A request. text: prompt and what was generated. place: its sequence of the engine, once it is running.

    moved: tokens of the prompt whose keys are those of another text.
    """

    number: int
    request: Request
    limits: Limits
    text: list[int]
    read: int = 0
    reused: int = 0
    moved: int = 0
    place: int = -1

    @property
    def prompt(self) -> int:
        """Tokens of the prompt."""
        return len(self.request.prompt)

    @property
    def writing(self) -> bool:
        """Whether only its newest token is unread."""
        return self.read >= self.prompt


@dataclass
class _Place:
    """A sequence of the engine. kept: the whole chunks of a prompt that its cache holds. used: when it was last.

    held: all that its cache holds while it is free.
    """

    kept: list[int] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    used: int = 0
    holder: _Sequence | None = None


class XlaScheduler:
    """The JAX engine as ``ServedModel`` says. reuse: whether whole chunks of a prompt are kept for later requests.

    cache_reuse: tokens that a piece at another position has at least to be used; 0: none is, and answers are exact.
    """

    def __init__(self, engine: "XlaEngine", reuse: bool = True, cache_reuse: int = 0) -> None:
        self.engine, self.counters, self.outcomes = engine, Counters(), dict[int, Outcome]()
        self._config, self._reuse, self._least = engine.config, reuse, cache_reuse
        self._waiting, self._running = deque[_Sequence](), list[_Sequence]()
        self._places = [_Place() for _ in range(engine.sequences)]
        engine.reset()

    @property
    def unfinished(self) -> tuple[int, int]:
        """(waiting, running)."""
        return len(self._waiting), len(self._running)

    @property
    def positions_in_use(self) -> int:
        """Positions that running requests have read."""
        return sum(sequence.read for sequence in self._running)

    def submit(self, request: Request) -> int:
        """Queue a request. Raises as ``check_limits``, and ContextError ``page-budget`` for more than the cache has."""
        limits = check_limits(request.prompt, self._config, request.max_tokens, request.stop, request.sampling)
        if (needed := limits.positions(len(request.prompt))) > self.engine.capacity:
            raise ContextError(
                "prompt and max_tokens need more positions than there are",
                kind="page-budget",
                got=needed,
                expected=f"at most {self.engine.capacity}",
                hint="ask for fewer tokens, or give the KV cache more memory",
            )
        sequence = _Sequence(self.counters.requests, request, limits, [int(token) for token in request.prompt])
        self.counters.requests += 1
        self._waiting.append(sequence)
        return sequence.number

    def cancel(self, number: int) -> None:
        """End a request now. One that has ended, or never was, stays as it is."""
        for sequence in [*self._waiting, *self._running]:
            if sequence.number == number:
                self._end(sequence, "cancelled")

    def step(self) -> list[tuple[int, Step]]:
        """A chunk of each prompt that is not read yet, and one token of all texts under way."""
        self._admit()
        writing = [sequence for sequence in self._running if sequence.writing]
        said = [step for sequence in list(self._running) if not sequence.writing for step in self._read_chunk(sequence)]
        if writing:
            said += self._write(writing)
        return said

    def _admit(self) -> None:
        while self._waiting and any(place.holder is None for place in self._places):
            sequence = self._waiting.popleft()
            free = [n for n, place in enumerate(self._places) if place.holder is None]
            # The last token is read in any case; and a chunk that the cache's end cuts is never kept.
            most = 0 if sequence.request.hear else (sequence.prompt - 1) // CHUNK * CHUNK
            alike = {n: min(most, _alike(self._places[n].kept, sequence.text)) for n in free}
            moves = {n: self._pieces(sequence, self._places[n], alike[n]) for n in free}
            found = {n: alike[n] + sum(count for _, count in moves[n]) for n in free}
            best = min(free, key=lambda n: (-found[n], self._places[n].used))
            place = self._places[best]
            place.kept = place.kept[: alike[best]]
            place.holder, sequence.place = sequence, best
            sequence.read = sequence.reused = alike[best]
            for start, count in moves[best]:
                self.engine.move(start, sequence.read, count, best)
                sequence.read += count
                sequence.moved += count
            self.engine.truncate(sequence.read, best)
            self.counters.reused += sequence.reused
            self._running.append(sequence)

    def _pieces(self, sequence: _Sequence, place: _Place, begin: int) -> list[tuple[int, int]]:
        """What of the prompt after ``begin`` a place holds further on; its last token is read in any case."""
        if not self._least or sequence.request.hear:
            return []
        return pieces(place.held, sequence.text[: sequence.prompt - 1], begin, self._least)

    def _read_chunk(self, sequence: _Sequence) -> list[tuple[int, Step]]:
        begin, hear = sequence.read, sequence.request.hear
        chunk = sequence.text[begin : begin + CHUNK]
        self.counters.forwards += 1
        try:
            if hear is None:
                logits = self.engine.read(chunk, sequence=sequence.place)
            else:
                rows = self.engine.prefill(chunk, sequence.place)
                hear(begin, rows)
                logits = rows[-1]
        except NonFiniteError as error:
            self._end(sequence, "failed", error)
            return []
        sequence.read += len(chunk)
        self.counters.prefilled += len(chunk)
        place = self._places[sequence.place]
        # Another program than the usual one has read what ``hear`` hears: within roundings, and not to be shared.
        whole = len(chunk) == CHUNK and hear is None and sequence.read < self.engine.capacity
        if self._reuse and whole and len(place.kept) == begin:
            place.kept += chunk
        return self._choose(sequence, logits) if sequence.writing else []

    def _write(self, writing: list[_Sequence]) -> list[tuple[int, Step]]:
        """A token for each. A pass that is not finite is made again for each alone, by the same program."""
        try:
            rows = self._step_all(writing)
        except NonFiniteError as error:
            if len(writing) > 1:
                return [step for sequence in writing for step in self._write([sequence])]
            self._end(writing[0], "failed", error)
            return []
        for sequence in writing:
            sequence.read += 1
        return [step for sequence, row in zip(writing, rows, strict=True) for step in self._choose(sequence, row)]

    def _step_all(self, writing: list[_Sequence]) -> list[np.ndarray]:
        tokens, lengths = [_ANY] * len(self._places), self.engine.lengths
        for sequence in writing:
            tokens[sequence.place] = sequence.text[-1]
        self.counters.forwards += 1
        rows = self.engine.step_all(tokens)
        there = {sequence.place for sequence in writing}
        for place, length in enumerate(lengths):
            if place not in there:
                self.engine.truncate(length, place)
        return [rows[sequence.place] for sequence in writing]

    def _choose(self, sequence: _Sequence, logits: np.ndarray) -> list[tuple[int, Step]]:
        request, text = sequence.request, sequence.text
        try:
            if request.choose is not None:
                token = request.choose(logits, text)
            else:
                token = choose(possible(logits, self._config), request.sampling, text)
        except NonFiniteError as error:
            self._end(sequence, "failed", error)
            return []
        reason = sequence.limits.reason(token, len(text) - sequence.prompt + 1, len(text))
        text.append(token)
        self.counters.generated += 1
        if reason is not None:
            self._end(sequence, reason)
        return [(sequence.number, Step(token, reason))]

    def _end(self, sequence: _Sequence, reason: Ending, error: NonFiniteError | None = None) -> None:
        self.outcomes[sequence.number] = Outcome(
            sequence.text[sequence.prompt :], reason, sequence.reused, error, sequence.moved
        )
        if sequence.place < 0:
            self._waiting.remove(sequence)
            return
        self._running.remove(sequence)
        place = self._places[sequence.place]
        place.holder, place.used = None, self.counters.forwards
        length = self.engine.lengths[sequence.place]
        # An idle sequence takes part in each pass: it needs room for a token.
        kept = min(length, self.engine.capacity - 1) if self._least else min(len(place.kept), length)
        place.held = sequence.text[:kept]
        self.engine.truncate(kept, sequence.place)


def pieces(held: list[int], prompt: list[int], begin: int, least: int) -> list[tuple[int, int]]:
    """(where it is held, tokens) of the pieces with which ``prompt`` goes on from ``begin``, each of ``least`` or more.

    As llama.cpp's server looks for them: what is held is gone through once, and of it parts are left out.

    >>> pieces([1, 2, 9, 9, 3, 4, 5, 9, 6, 7], [1, 2, 3, 4, 5, 6, 7, 8], 2, 2)
    [(4, 3), (8, 2)]
    """
    found, at, start = list[tuple[int, int]](), begin, begin
    while start < len(held) and at < len(prompt):
        count = 0
        while start + count < len(held) and at + count < len(prompt) and held[start + count] == prompt[at + count]:
            count += 1
        if count >= least:
            found.append((start, count))
            at += count
        start += count if count >= least else 1
    return found


def _alike(kept: list[int], text: list[int]) -> int:
    """Tokens of whole chunks that two begin with alike."""
    alike = 0
    while alike < len(kept) and kept[alike : alike + CHUNK] == text[alike : alike + CHUNK]:
        alike += CHUNK
    return alike
