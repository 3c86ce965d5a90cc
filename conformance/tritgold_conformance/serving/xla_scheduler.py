"""Continuous batching on the JAX engine: one sequence of its cache for each request, one pass for all that generate.

An answer has the same bits as if it were the only one, because no program depends on other requests: a token is always
computed by ``step_all`` over all sequences (sequences that do not generate take part with a token that is forgotten at
once), and a prompt is always read in the same chunks from its beginning, each chunk in its own pass.

So a prefix is reused in whole chunks of a prompt and in nothing smaller (``prompt_reuse``). A free sequence keeps what
it has read, until a request takes it whose prompt begins differently.

``cache_reuse``, off by default, gives this up for requests for which it finds something: after the common beginning,
pieces of so many tokens or more that a free sequence has further on are moved to their position in the prompt, as
llama.cpp's server does. Their keys are those of another text, so the answer is close to the exact one but not equal;
nothing that is computed after them is kept for other requests.
"""

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tritgold.decode.autoregressive import Limits, Step, check_limits, possible
from tritgold.decode.sampling import choose
from tritgold.decode.serving_options import Counters, Ending, Outcome, Request
from tritgold.errors import ContextError, NonFiniteError
from tritgold_conformance.serving.prompt_reuse import CHUNK, Reuse, Slot, reusable

if TYPE_CHECKING:
    from tritgold_conformance.engines.xla import XlaEngine

_ANY = 0  # the token of sequences that do not generate


@dataclass(eq=False)
class _Sequence:
    """A request. text: prompt and generated tokens. slot: its sequence of the engine; -1 while it waits.

    moved: tokens of the prompt whose keys are those of another text. turn: the pass in which it came, or in which its
    last chunk was read.
    """

    number: int
    request: Request
    limits: Limits
    text: list[int]
    read: int = 0
    reused: int = 0
    moved: int = 0
    slot: int = -1
    turn: int = 0

    @property
    def prompt(self) -> int:
        """The number of tokens of the prompt."""
        return len(self.request.prompt)

    @property
    def writing(self) -> bool:
        """Whether the prompt is read, so that only the newest token is not in the cache."""
        return self.read >= self.prompt


class XlaScheduler:
    """The JAX engine as a ``ServedModel``. reuse: whether whole chunks of a prompt are kept for later requests.

    cache_reuse: the smallest piece at another position that is used, in tokens; 0: no pieces, and answers are exact.
    """

    def __init__(self, engine: "XlaEngine", reuse: bool = True, cache_reuse: int = 0) -> None:
        self.engine, self.counters, self.outcomes = engine, Counters(), dict[int, Outcome]()
        self._config, self._reuse, self._least = engine.config, reuse, cache_reuse
        self._waiting, self._running = deque[_Sequence](), list[_Sequence]()
        self._slots = [Slot() for _ in range(engine.sequences)]
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
        """Queue a request. Raises as ``check_limits``, and ContextError ``page-budget`` if it never fits the cache."""
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
        """End a request now; nothing happens if it has ended or the number is unknown."""
        for sequence in [*self._waiting, *self._running]:
            if sequence.number == number:
                self._end(sequence, "cancelled")

    def step(self) -> list[tuple[int, Step]]:
        """Read one chunk of one prompt, and generate one token of every text whose prompt was read before.

        One chunk, so that a first token waits for no other prompt, and no text waits for more than a chunk. Prompts
        take turns: a long one does not hold up those that came after it.
        """
        self._admit()
        writing = [sequence for sequence in self._running if sequence.writing]
        unread = [sequence for sequence in self._running if not sequence.writing]
        said = self._read_chunk(min(unread, key=lambda sequence: sequence.turn)) if unread else []
        return said + (self._write(writing) if writing else [])

    def _admit(self) -> None:
        """Give each free slot to the request that waits longest: the slot that holds most of its prompt."""
        while self._waiting and (free := [n for n, slot in enumerate(self._slots) if slot.free]):
            sequence = self._waiting.popleft()
            hears, prompt = sequence.request.hear is not None, sequence.text
            found = {n: Reuse() if hears else reusable(self._slots[n], prompt, self._least) for n in free}
            best = min(free, key=lambda n: (-found[n].tokens, self._slots[n].used))
            slot, (first, moved) = self._slots[best], found[best]
            slot.kept, slot.free, sequence.slot = slot.kept[:first], False, best
            sequence.read = sequence.reused = first
            for start, count in moved:
                self.engine.move(start, sequence.read, count, best)
                sequence.read += count
                sequence.moved += count
            self.engine.truncate(sequence.read, best)
            self.counters.reused += sequence.reused
            sequence.turn = self.counters.forwards
            self._running.append(sequence)

    def _read_chunk(self, sequence: _Sequence) -> list[tuple[int, Step]]:
        begin, hear = sequence.read, sequence.request.hear
        chunk = sequence.text[begin : begin + CHUNK]
        self.counters.forwards += 1
        sequence.turn = self.counters.forwards
        try:
            if hear is None:
                logits = self.engine.read(chunk, sequence=sequence.slot)
            else:
                rows = self.engine.prefill(chunk, sequence.slot)
                hear(begin, rows)
                logits = rows[-1]
        except NonFiniteError as error:
            self._end(sequence, "failed", error)
            return []
        sequence.read += len(chunk)
        self.counters.prefilled += len(chunk)
        slot = self._slots[sequence.slot]
        # ``prefill``, which gives ``hear`` its logits, is another program: equal within roundings, so it is not shared.
        whole = len(chunk) == CHUNK and hear is None and sequence.read < self.engine.capacity
        if self._reuse and whole and len(slot.kept) == begin:
            slot.kept += chunk
        return self._choose(sequence, logits) if sequence.writing else []

    def _write(self, writing: list[_Sequence]) -> list[tuple[int, Step]]:
        """A token for each. If a pass gives NaN or inf, it is repeated for each text alone, by the same program."""
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
        tokens, lengths = [_ANY] * len(self._slots), self.engine.lengths
        for sequence in writing:
            tokens[sequence.slot] = sequence.text[-1]
        self.counters.forwards += 1
        rows = self.engine.step_all(tokens)
        there = {sequence.slot for sequence in writing}
        for slot, length in enumerate(lengths):
            if slot not in there:
                self.engine.truncate(length, slot)
        return [rows[sequence.slot] for sequence in writing]

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
        if sequence.slot < 0:
            self._waiting.remove(sequence)
            return
        self._running.remove(sequence)
        slot = self._slots[sequence.slot]
        slot.free, slot.used = True, self.counters.forwards
        length = self.engine.lengths[sequence.slot]
        # A free sequence takes part in each pass, so it needs room for one token.
        kept = min(length, self.engine.capacity - 1) if self._least else min(len(slot.kept), length)
        slot.held = sequence.text[:kept]
        self.engine.truncate(kept, sequence.slot)
