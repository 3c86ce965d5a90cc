"""Conversion between SentencePiece's scores, one per piece, and the ranked list of merges of the tokenizers library.

SentencePiece joins the neighbours that give the piece with the highest score, the leftmost if equal; the library joins
the pair that is first in its list. They agree if every split of a piece into two pieces is a merge, and the merges are
grouped by the piece they make, in the order of the scores. Only the list can express which of two splits of the same
piece is used first if both apply at once and overlap.

Source: ``llm_tokenizer_spm`` of llama.cpp's ``src/llama-vocab.cpp``; ``generate_merges`` of transformers'
``convert_slow_tokenizer.py``, whose order within a piece (longer left half first) is used here.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NoReturn

from tritgold.errors import FormatError
from tritgold.formats.untrusted_text import printable

MAX_PIECE = 256  # characters; SentencePiece's own default is 16, and the number of splits grows with the square

Merge = tuple[str, str]


def merges_of(scores: Mapping[str, float]) -> list[Merge]:
    """Every merge that the scores allow, best first. scores: of the normal pieces, by text.

    Raises FormatError for two joined pieces with the same score (their order would depend on their positions in the
    text), for a piece of more than MAX_PIECE characters, and for one with a character that is not a piece.

    >>> merges_of({"a": 0, "b": 0, "ab": -2, "ba": -1, "aba": -3})
    [('b', 'a'), ('a', 'b'), ('ab', 'a'), ('a', 'ba')]
    """
    _check_characters(scores)
    joined: dict[float, tuple[str, list[Merge]]] = {}
    for piece, score in scores.items():
        splits = splits_of(piece, scores)
        if not splits:
            continue
        if score in joined:
            both = f"{joined[score][0]!r} and {piece!r}"
            _refuse(f"pieces {printable(both)}", "have one score: which is joined first is left open", score)
        joined[score] = piece, splits
    return [merge for score in sorted(joined, reverse=True) for merge in joined[score][1]]


def scores_of(merges: Sequence[Merge], pieces: Mapping[str, int]) -> dict[str, float]:
    """The score of every normal piece: 0, -1, -2 ... in the order of the merges, then the pieces that no merge makes.

    pieces: text -> id of the normal pieces. Raises FormatError for a list of merges that no scores can express: a
    split is missing, or the merges of one piece are not next to each other.

    >>> scores_of([("a", "b")], {"a": 0, "b": 1, "ab": 2})
    {'ab': 0.0, 'a': -1.0, 'b': -2.0}
    """
    _check_characters(pieces)
    groups = [(piece, list(group)) for piece, group in groupby(merges, "".join)]
    found = {piece: float(-rank) for rank, (piece, _) in enumerate(groups)}
    if len(found) < len(groups):
        _refuse("merges", "of one piece stand in different places", None)
    for piece, group in groups:
        if piece not in pieces or set(group) != set(splits_of(piece, pieces)) or len(group) != len(set(group)):
            _refuse(f"piece {printable(repr(piece))}", "is made by some of its splits only", printable(group))
    for piece in pieces:
        if piece not in found and splits_of(piece, pieces):
            _refuse(f"piece {printable(repr(piece))}", "could be joined, and no merge joins it", None)
    rest = [piece for piece in pieces if piece not in found]
    return found | {piece: float(-len(groups) - place) for place, piece in enumerate(rest)}


def splits_of(piece: str, pieces: Mapping[str, object]) -> list[Merge]:
    """The splits of a piece into two pieces, the longest left half first."""
    if len(piece) > MAX_PIECE:
        _refuse(f"piece {printable(repr(piece))}", f"is longer than {MAX_PIECE} characters", len(piece))
    halves = ((piece[:at], piece[at:]) for at in range(len(piece) - 1, 0, -1))
    return [(left, right) for left, right in halves if left in pieces and right in pieces]


def _check_characters(pieces: Mapping[str, object]) -> None:
    """Refuse characters that are not pieces: SentencePiece starts from all characters, the library only from pieces."""
    for piece in pieces:
        if missing := [character for character in piece if character not in pieces]:
            _refuse(
                f"piece {printable(repr(piece))}", "has a character that is not a piece", printable(repr(missing[0]))
            )


def _refuse(thing: str, message: str, got: object) -> NoReturn:
    hint = "SentencePiece's scores and the tokenizers library's merges do not say the same here"
    raise FormatError(message, kind="tokenizer-merges", thing=thing, got=got, hint=hint)
