"""How one text reaches an engine: in one prefill, in pieces, token by token."""

import numpy as np


def cuts(tokens: int) -> tuple[int, int]:
    """Where a prompt in pieces is cut: two prefills up to these, then single steps.

    >>> cuts(40)
    (13, 30)
    """
    return tokens // 3, tokens - tokens // 4


def stacked(pieces: list[np.ndarray | None]) -> np.ndarray | None:
    """All rows [tokens, vocab]. None where a piece is missing; rows of several widths make shape (0, 0)."""
    whole = [np.atleast_2d(piece) for piece in pieces if piece is not None]
    if len(whole) < len(pieces):
        return None
    if len({piece.shape[1:] for piece in whole}) > 1:
        return np.zeros((0, 0))
    return np.concatenate(whole)
