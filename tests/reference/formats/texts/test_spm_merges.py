"""Scores of SentencePiece and merges of the library: each from the other, and what neither can say for the other."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import frugal, refusal
from tokenizer_files import CHARACTERS, WORDS

from tritgold.formats.texts.spm_merges import MAX_PIECE, merges_of, scores_of

examples = settings(max_examples=100, deadline=None, derandomize=True)

PIECES = {piece: index for index, piece in enumerate([*WORDS, *CHARACTERS])}


@examples
@given(st.permutations(WORDS))
def test_every_split_of_every_piece_in_the_order_of_the_scores(order: list[str]) -> None:
    scores = {piece: -float(rank) for rank, piece in enumerate([*order, *CHARACTERS])}
    expected = [
        (word[:at], word[at:])
        for word in order
        for at in reversed(range(1, len(word)))
        if word[:at] in PIECES and word[at:] in PIECES
    ]
    assert merges_of(scores) == expected
    back = scores_of(expected, PIECES)
    assert sorted(back, key=lambda piece: -back[piece])[: len(order)] == [w for w in order if w in back]
    assert merges_of(back) == expected


def test_scores_are_exact_in_float32_and_all_different() -> None:
    found = scores_of(merges_of({piece: -float(i) for piece, i in PIECES.items()}), PIECES)
    assert sorted(found.values()) == [-float(i) for i in reversed(range(len(PIECES)))]


CHARS = {"a": 0, "b": 1, "c": 2}


@pytest.mark.parametrize(
    ("merges", "pieces", "says"),
    [
        ([("a", "b"), ("b", "c"), ("ab", "c")], {"ab": 3, "bc": 4, "abc": 5}, "'abc': is made by some of its splits"),
        ([("a", "b")], {"ab": 3, "bc": 4}, "'bc': could be joined, and no merge joins it"),
        ([("ab", "c"), ("a", "b"), ("a", "bc"), ("b", "c")], {"ab": 3, "bc": 4, "abc": 5}, "in different places"),
        ([("a", "b"), ("a", "b")], {"ab": 3}, "'ab': is made by some of its splits"),
        ([("a", "b")], {}, "'ab': is made by some of its splits"),
        ([], {"az": 3}, "'az': has a character that is not a piece: found 'z'"),
        ([], {"a" * (MAX_PIECE + 1): 3}, f"is longer than {MAX_PIECE} characters"),
    ],
)
def test_merges_that_no_scores_express(merges: list[tuple[str, str]], pieces: dict[str, int], says: str) -> None:
    error = refusal(lambda: scores_of(merges, CHARS | pieces))
    assert error.kind == "tokenizer-merges"
    assert says in str(error)


@pytest.mark.parametrize(
    ("scores", "says"),
    [
        ({"ab": -1.0, "bc": -1.0}, "pieces 'ab' and 'bc': have one score"),
        ({"ab": -1.0, "az": -2.0}, "'az': has a character that is not a piece"),
        ({"a" * 300: -1.0}, "is longer than"),
    ],
)
def test_scores_that_no_merges_express(scores: dict[str, float], says: str) -> None:
    error = refusal(lambda: merges_of({"a": 0.0, "b": 0.0, "c": 0.0, **scores}))
    assert error.kind == "tokenizer-merges"
    assert says in str(error)


def test_pieces_that_nothing_joins_may_share_a_score() -> None:
    assert merges_of({"a": 0.0, "b": 0.0, "ab": 0.0}) == [("a", "b")]


def test_a_huge_piece_is_refused_soon() -> None:
    huge = "a" * 10_000_000
    with frugal(megabytes=100):
        assert refusal(lambda: merges_of({"a": 0.0, huge: -1.0, huge[1:]: -2.0})).kind == "tokenizer-merges"
