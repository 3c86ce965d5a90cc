"""Which tokens of a prompt need not be read: whole chunks from the beginning, and pieces at other positions."""

from tritgold_conformance.serving.prompt_reuse import CHUNK, Reuse, Slot, pieces, reusable

TEXT = list(range(3 * CHUNK))


def test_only_whole_chunks_of_the_beginning_are_reused_and_never_the_last_token() -> None:
    slot = Slot(kept=TEXT[: 2 * CHUNK])
    assert reusable(slot, TEXT) == Reuse(2 * CHUNK)
    assert reusable(slot, TEXT[: 2 * CHUNK]) == Reuse(CHUNK), "the last token is read in any case"
    assert reusable(slot, [*TEXT[: CHUNK + 5], 0, *TEXT[CHUNK + 6 :]]) == Reuse(CHUNK), "the second chunk differs"
    assert reusable(slot, TEXT[1:]) == reusable(Slot(), TEXT) == Reuse()


def test_pieces_are_moved_only_from_a_least_length_on() -> None:
    slot = Slot(kept=TEXT[:CHUNK], held=TEXT)
    prompt = [*TEXT[:CHUNK], *TEXT[CHUNK + 9 : CHUNK + 19], 7]
    assert reusable(slot, prompt) == reusable(slot, prompt, 11) == Reuse(CHUNK)
    found = reusable(slot, prompt, 10)
    assert (found, found.tokens) == (Reuse(CHUNK, ((CHUNK + 9, 10),)), CHUNK + 10)


def test_pieces_are_found_in_order_and_end_with_the_prompt() -> None:
    assert pieces([1, 2, 3, 4], [3, 4, 1, 2], 0, 2) == [(2, 2)], "what lies before a piece is not searched again"
    assert pieces([9, 1, 2, 3], [1, 2], 0, 1) == [(1, 2)]
    assert pieces([1, 2], [1, 2, 3], 2, 1) == []
