"""Writing tokenizer.json: the library reads it, and what is written reads as the same tokenizer."""

from typing import Any

import pytest
from tokenizer_files import TELLING, as_text, spm_file
from tokenizers import Tokenizer as Library

from tritgold.formats.texts.bpe_tokenizer import BpeTokenizer
from tritgold.formats.texts.pre_tokenizers import PRE_TOKENIZERS
from tritgold.formats.texts.tokenizer_file import read_tokenizer_file
from tritgold.formats.texts.tokenizer_file_writer import write_tokenizer_file
from tritgold.golden import trained_model

AR = (trained_model("kjv-ar") / "tokenizer.json").read_text(encoding="utf-8")


def same(written: str, original: str) -> None:
    ours, theirs = Library.from_str(written), Library.from_str(original)
    for text in TELLING:
        ids = theirs.encode(text).ids
        assert ours.encode(text).ids == ids, text
        assert ours.decode(ids) == theirs.decode(ids), text


def test_a_byte_level_tokenizer() -> None:
    read = read_tokenizer_file(AR)
    same(write_tokenizer_file(read), AR)
    assert read_tokenizer_file(write_tokenizer_file(read)) == read


@pytest.mark.parametrize("prefix", [True, False])
def test_a_sentencepiece_like_tokenizer(prefix: bool) -> None:
    """The file in hand was written by hand: everything but the flags of the library comes out the same."""
    raw = spm_file(prefix)
    read = read_tokenizer_file(as_text(raw))
    same(write_tokenizer_file(read), as_text(raw))
    assert read_tokenizer_file(write_tokenizer_file(read)) == read


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "smaug-bpe", "qwen2", "smollm", "falcon", "default"])
def test_every_rule_reads_as_itself(pre: str) -> None:
    base = read_tokenizer_file(AR)
    made = BpeTokenizer("gpt2", base.tokens, base.merges, base.control, pre=pre, first=0, last=1)
    assert read_tokenizer_file(write_tokenizer_file(made)) == made
    ids = Library.from_str(write_tokenizer_file(made)).encode("In the beginning").ids
    assert (ids[0], ids[-1]) == (0, 1)


def test_ignored_merges_keep_a_whole_piece() -> None:
    """Llama 3's rule: ``abc`` is a token, and no merge makes it."""
    fields: dict[str, Any] = {"tokens": ["a", "b", "c", "ab", "abc"], "merges": [("a", "b")]}
    found = {
        pre: Library.from_str(write_tokenizer_file(BpeTokenizer("gpt2", pre=pre, **fields))).encode("abc").ids
        for pre in ("llama-bpe", "smaug-bpe")
    }
    assert found == {"llama-bpe": [4], "smaug-bpe": [3, 2]}


def test_user_defined_tokens_are_found_and_decoded() -> None:
    made = BpeTokenizer("gpt2", ["a", "b", "<u>", "<c>"], [], frozenset({3}), frozenset({2}), pre="gpt-2")
    library = Library.from_str(write_tokenizer_file(made))
    assert library.encode("a<u>b<c>").ids == [0, 2, 1, 3]
    assert library.decode([0, 2, 1, 3]) == "a<u>b"


def test_aliases_are_written_alike() -> None:
    assert PRE_TOKENIZERS["llama3"] is PRE_TOKENIZERS["llama-bpe"]
