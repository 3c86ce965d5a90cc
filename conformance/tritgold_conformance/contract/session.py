"""Session: tokens read from position 0 on, in calls of prefill and step; and the functions that run it."""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

import numpy as np

Rows = np.ndarray | None


@dataclass(frozen=True)
class Session:
    """Tokens read from position 0 on, in chunks of the given lengths; the answer is the logits at each token.

    calls: ``prefill`` or ``step`` for each chunk; by default ``usual_calls``. contained: an error of the engine counts
    as the answer to this session only. beside: the id of another session, which a second instance reads in turns.
    """

    id: str
    tokens: list[int]
    chunks: list[int]
    calls: tuple[str, ...] = ()
    contained: bool = False
    beside: str = ""

    def __post_init__(self) -> None:
        if not self.calls:
            object.__setattr__(self, "calls", usual_calls(self.chunks))

    @property
    def kind(self) -> tuple[bool, bool]:
        """What it needs from an engine: (a prefill after other tokens, single steps)."""
        return len(self.chunks) > 1 and "prefill" in self.calls, "step" in self.calls

    @property
    def stepped(self) -> set[int]:
        """The ids that are read in single steps."""
        starts = accumulate(self.chunks, initial=0)
        return {self.tokens[at] for call, at in zip(self.calls, starts, strict=False) if call == "step"}


class Reader(Protocol):
    """An object that reads sessions, such as EngineUnderTest."""

    def reset(self) -> None:
        """Forget all tokens."""

    def prefill(self, tokens: list[int]) -> Rows:
        """Logits [tokens, vocab], or None."""

    def step(self, token: int) -> Rows:
        """Logits [vocab], or None."""


def usual_calls(chunks: Sequence[int]) -> tuple[str, ...]:
    """The default calls: a chunk of one token is a step, unless it is the only chunk.

    >>> usual_calls([3, 1]), usual_calls([1])
    (('prefill', 'step'), ('prefill',))
    """
    return tuple("step" if length == 1 and len(chunks) > 1 else "prefill" for length in chunks)


def cuts(tokens: int) -> tuple[int, int]:
    """The ends of the first and of the second prefill of a prompt in pieces; single steps follow.

    >>> cuts(40)
    (13, 30)
    """
    return tokens // 3, tokens - tokens // 4


def groups(sessions: Sequence[Session]) -> Iterator[list[Session]]:
    """The sessions in order; two that are read in turns are one group."""
    by_id = {session.id: session for session in sessions}
    taken = {session.beside for session in sessions}
    for session in sessions:
        if session.id not in taken:
            yield [session, by_id[session.beside]] if session.beside else [session]


def read_in_turns(
    readers: Sequence[Reader], sessions: Sequence[Session], begin: Callable[[str], None] = lambda _: None
) -> list[Rows]:
    """Logits [tokens, vocab] of sessions, each read by its own reader; the readers take turns, call by call.

    None if a call is not answered, shape (0, 0) if rows have different widths. begin: receives the name of each call.
    """
    rows: list[Rows] = [None] * len(sessions)
    running = {n: _reading(readers[n], session, begin) for n, session in enumerate(sessions)}
    while running:
        for number, reading in list(running.items()):
            try:
                next(reading)
            except StopIteration as ended:
                rows[number] = ended.value
                del running[number]
    return rows


def _reading(reader: Reader, session: Session, begin: Callable[[str], None]) -> Generator[None, None, Rows]:
    begin("reset")
    reader.reset()
    start, pieces = 0, list[np.ndarray]()
    for call, length in zip(session.calls, session.chunks, strict=True):
        tokens, start = session.tokens[start : start + length], start + length
        begin(call)
        given = reader.step(tokens[0]) if call == "step" else reader.prefill(tokens)
        if given is None:
            return None
        pieces.append(np.atleast_2d(given))
        yield
    return np.concatenate(pieces) if len({piece.shape[1:] for piece in pieces}) == 1 else np.zeros((0, 0))
