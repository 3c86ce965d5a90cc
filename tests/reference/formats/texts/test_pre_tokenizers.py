"""Names of splitting rules: recognised in tokenizer.json, and built so that the library splits as they say."""

from typing import Any

import pytest
from tokenizers import Regex, pre_tokenizers
from tokenizers.pre_tokenizers import PreTokenizer as Library

from tritgold.formats.texts.pre_tokenizers import (
    PRE_TOKENIZERS,
    byte_characters,
    pre_tokenizer_name,
    pre_tokenizer_section,
)

SPLIT = {"type": "Split", "behavior": "Isolated", "invert": False}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
# The pattern of Llama 3's tokenizer.json, and Qwen 2's, which takes digits one by one.
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")


def sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(steps)}


def regex(pattern: str) -> dict[str, Any]:
    return {**SPLIT, "pattern": {"Regex": pattern}}


@pytest.mark.parametrize(
    ("section", "ignore_merges", "nfc", "name"),
    [
        ({**BYTES, "use_regex": True}, False, False, "gpt-2"),
        (sequence(regex(LLAMA3), BYTES), True, False, "llama-bpe"),
        (sequence(regex(LLAMA3), BYTES), False, False, "smaug-bpe"),
        (sequence(regex(QWEN2), BYTES), False, True, "qwen2"),
        (sequence({"type": "Digits", "individual_digits": True}, {**BYTES, "use_regex": True}), False, False, "smollm"),
        (sequence(regex(QWEN2), BYTES), False, False, None),
        (BYTES, False, False, None),
        ({**BYTES, "use_regex": True, "add_prefix_space": True}, False, False, None),
        (sequence(BYTES, regex(LLAMA3)), True, False, None),
        (sequence({**regex(LLAMA3), "behavior": "Removed"}, BYTES), True, False, None),
        (sequence({**regex(LLAMA3), "invert": True}, BYTES), True, False, None),
        ({"type": "Whitespace"}, False, False, None),
        (None, False, False, None),
        ({"type": "Sequence", "pretokenizers": 7}, False, False, None),
        (sequence({"type": "Split", "pattern": 7, "behavior": "Isolated"}, BYTES), False, False, None),
    ],
)
def test_a_rule_is_recognised_by_all_that_it_does(section: Any, ignore_merges: bool, nfc: bool, name: str) -> None:
    assert pre_tokenizer_name(section, ignore_merges, nfc) == name


def pieces(name: str, text: str) -> list[str]:
    """What the library makes of the rule, bytes as characters left out."""
    steps = pre_tokenizer_section(PRE_TOKENIZERS[name])["pretokenizers"]
    splitter: Library = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(step["pattern"]["Regex"]), "isolated") for step in steps[:-1]]
    )
    assert steps[-1] == BYTES
    return [piece for piece, _ in splitter.pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt-2", "I|'ll| 1234| WE|'|VE| $<|a|  \n"),
        ("llama-bpe", "I|'ll| |123|4| WE|'VE| $<|a|  \n"),
        ("qwen2", "I|'ll| |1|2|3|4| WE|'VE| $<|a|  \n"),
        ("smollm", "I|'ll| |1|2|3|4| WE|'|VE| $<|a|  \n"),
        ("falcon", "I|'|ll| |123|4| WE|'|VE| |$<|a|  \n"),
        ("default", "I|'|ll| |123|4| WE|'|VE| |$<|a|  \n"),
    ],
)
def test_what_each_rule_makes_of_one_text(name: str, expected: str) -> None:
    """Bug case B45: the rules differ, so that a wrong one shows. llama.cpp's ``default`` is not GPT-2's."""
    assert pieces(name, "I'll 1234 WE'VE $<a  \n") == expected.split("|")


def test_aliases_are_one_rule() -> None:
    assert PRE_TOKENIZERS["falcon3"] == PRE_TOKENIZERS["llama3"] == PRE_TOKENIZERS["llama-bpe"]
    assert PRE_TOKENIZERS["default"] != PRE_TOKENIZERS["gpt-2"]


def test_the_characters_for_bytes() -> None:
    assert byte_characters() == set(pre_tokenizers.ByteLevel.alphabet())
