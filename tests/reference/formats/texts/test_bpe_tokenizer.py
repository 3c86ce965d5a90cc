"""BpeTokenizer: what it leaves open to nobody."""

from typing import Any

import pytest
from refusals import refusal
from tokenizer_files import CHARACTERS, SPM_TOKENS, WORDS

from tritgold.formats.texts.bpe_tokenizer import BpeTokenizer

GOOD: dict[str, Any] = {"kind": "gpt2", "tokens": ["a", "b", "ab", "<s>"], "merges": [("a", "b")], "pre": "gpt-2"}


def test_ids_and_normal_tokens() -> None:
    made = BpeTokenizer(**GOOD | {"tokens": ["a", None, "b", "ab", "<s>", "<u>"]}, control={4}, user_defined={5})
    assert made.ids == {"a": 0, "b": 2, "ab": 3, "<s>": 4, "<u>": 5}
    assert made.normal() == {"a": 0, "b": 2, "ab": 3}


def test_bytes_are_no_pieces() -> None:
    made = BpeTokenizer("llama", SPM_TOKENS, [], control=frozenset({0, 1, 2}))
    assert list(made.normal()) == [*WORDS, *CHARACTERS]
    assert made.normal()["▁t"] == 259


@pytest.mark.parametrize(
    ("kind", "says", "changes"),
    [
        ("tokenizer-tokens", "token 'a': occurs twice", {"tokens": ["a", "b", "ab", "a"]}),
        ("tokenizer-tokens", "special token 4", {"control": {4}}),
        ("tokenizer-tokens", "special token -1", {"user_defined": {-1}}),
        ("tokenizer-tokens", "token before the text 9", {"first": 9}),
        ("tokenizer-tokens", "token after 1: is not a token", {"last": 1, "tokens": ["a", None, "b", "ab"]}),
        ("tokenizer-tokens", "unknown token 4", {"unknown": 4}),
        ("tokenizer-merges", "names a token that there is not: found 'x'", {"merges": [("a", "b"), ("a", "x")]}),
        ("tokenizer-merges", "names a token that there is not: found 'ba'", {"merges": [("b", "a")]}),
        ("tokenizer-tokens", "byte token <0x00>: is missing", {"kind": "llama"}),
    ],
)
def test_what_is_refused(kind: str, says: str, changes: dict[str, Any]) -> None:
    error = refusal(lambda: BpeTokenizer(**GOOD | changes))
    assert error.kind == kind
    assert says in str(error)
