"""What the sequences of the JAX engine's cache already hold of a new prompt: first chunks, and pieces further on.

Whole chunks with which two prompts begin have the same keys, bit for bit: the same programs read the same tokens.
Nothing smaller does. Pieces at other positions (``--cache-reuse``) have the keys of another text.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

CHUNK = 128  # tokens of a prompt that one pass reads: the engine's largest program


@dataclass
class Slot:
    """One sequence of the engine's cache.

    kept: tokens of the whole chunks, from position 0 on, that later prompts may reuse. held: all tokens in the cache
    while the slot is free. used: the number of the pass after which it became free, to reuse the oldest first.
    """

    kept: list[int] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    used: int = 0
    free: bool = True


class Reuse(NamedTuple):
    """first: tokens of the prompt's first chunks. moved: (position in the slot, tokens) of pieces that follow them."""

    first: int = 0
    moved: tuple[tuple[int, int], ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens of the prompt that need not be read."""
        return self.first + sum(count for _, count in self.moved)


def reusable(slot: Slot, prompt: list[int], least: int = 0) -> Reuse:
    """What a slot holds of a prompt, whose last token is always read. least: tokens of a piece; 0: no pieces.

    >>> reusable(Slot([7] * CHUNK, [7] * CHUNK + [1, 2, 3]), [7] * CHUNK + [2, 3, 9], 2)
    Reuse(first=128, moved=((129, 2),))
    """
    first, most = 0, (len(prompt) - 1) // CHUNK * CHUNK
    while first < min(most, len(slot.kept)) and slot.kept[first : first + CHUNK] == prompt[first : first + CHUNK]:
        first += CHUNK
    return Reuse(first, tuple(pieces(slot.held, prompt[:-1], first, least)) if least else ())


def pieces(held: list[int], prompt: list[int], begin: int, least: int) -> list[tuple[int, int]]:
    """(position in ``held``, tokens) of the pieces that continue ``prompt`` from ``begin``, each of ``least`` or more.

    The search is that of llama.cpp's server: one pass over ``held``, of which parts may be left out.

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
