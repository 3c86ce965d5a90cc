"""tokenizer.json files for tests, and SentencePiece's algorithm written a second time as their judge."""

import json
from typing import Any

from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers import models, pre_tokenizers, trainers

from tritgold.formats.texts.pre_tokenizers import PRE_TOKENIZERS, pre_tokenizer_section

# Pieces in the order in which SentencePiece prefers them; every split of a piece into pieces is a merge.
WORDS = [
    "▁t",
    "he",
    "▁the",
    "ab",
    "ba",
    "aba",
    "abab",
    "in",
    "an",
    "▁a",
    "▁an",
    "and",
    "▁and",
    "er",
    "re",
    "▁▁",
    "or",
    "ll",
    "st",
    "ca",
    "cab",
    "abc",
    "▁w",
    "▁wo",
    "rd",
    "▁word",
]
CHARACTERS = list("▁abcdehilnorstw.,'\n")
SPM_SPECIAL = ["<unk>", "<s>", "</s>"]
SPM_TOKENS = [*SPM_SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *WORDS, *CHARACTERS]
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}

# What tells splitting rules apart: digits in threes, contractions, spaces, newlines, CJK, emoji, accents.
TELLING = [
    "In the beginning God created the heaven and the earth.",
    "I'll don't WE'VE  it's",
    "1234567 12 ½ ²³ 0.5",
    " leading  and   trailing ",
    "\n\n a\r\n\tb \n",
    "日本語 \U0001f638 é e\u0301 \u00a0x",
    "abab cab the word, ab.aba",
    "x<eos>y</s> <s>z<mask>",
    "$+<=>^~|` (a)[b]{c}",
    "",
]
_bits = st.sampled_from(
    [" ", "  ", "\n", "'s", "'LL", "12", "▁", "<eos>", "</s>", "the", "ab", "aba", "\U0001f638", "é"]
)
texts = st.lists(st.one_of(_bits, st.text(max_size=4)), max_size=8).map("".join)


def ruled_file(pre: str) -> dict[str, Any]:
    """A byte-level tokenizer whose merges cross every border that a rule could draw, with the rule called ``pre``.

    Trained without splitting on texts in which the rules differ: what a rule cuts apart shows in the ids.
    """
    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<bos>", "<eos>"], initial_alphabet=alphabet, show_progress=False
    )
    library.train_from_iterator([text[at:] for text in TELLING for at in range(0, len(text), 3)], trainer)
    raw, rule = json.loads(library.to_str()), PRE_TOKENIZERS[pre]
    raw |= {
        "normalizer": {"type": "NFC"} if rule.nfc else None,
        "pre_tokenizer": pre_tokenizer_section(rule),
        "post_processor": template("<bos>", 0),
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    }
    raw["model"]["ignore_merges"] = rule.ignore_merges
    return raw


def spm_file(prefix: bool = True) -> dict[str, Any]:
    """A small tokenizer in the manner of Llama 2, as the parts of its file. prefix: a space goes before the text."""
    pieces = {*WORDS, *CHARACTERS}
    splits = [(word[:at], word[at:]) for word in WORDS for at in range(len(word) - 1, 0, -1)]
    added = [{"id": i, "content": token, **_flags(), "special": True} for i, token in enumerate(SPM_SPECIAL)]
    before = [{"type": "Prepend", "prepend": "▁"}] if prefix else []
    after = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix else []
    decoders = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": [*before, REPLACE]},
        "pre_tokenizer": None,
        "post_processor": template("<s>", 1),
        "decoder": {"type": "Sequence", "decoders": [*decoders, *after]},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(SPM_TOKENS)},
            "merges": [list(split) for split in splits if set(split) <= pieces],
        },
    }


def _flags() -> dict[str, bool]:
    return dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)


def template(name: str, token: int, after: tuple[str, int] | None = None) -> dict[str, Any]:
    """A post-processor that puts a token before the text, and one behind it."""
    named = {name: token, **({after[0]: after[1]} if after else {})}
    single = [{"SpecialToken": {"id": name, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    single += [{"SpecialToken": {"id": after[0], "type_id": 0}}] if after else []
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {n: {"id": n, "ids": [t], "tokens": [n]} for n, t in named.items()},
    }


def as_text(file: dict[str, Any]) -> str:
    return json.dumps(file, ensure_ascii=False)


def sentencepiece(text: str, prefix: bool = True) -> list[int]:
    """Ids of a text without special tokens in it: join the neighbours of the best score, the leftmost of equals."""
    rank = {word: order for order, word in enumerate(WORDS)}
    symbols = list((" " * prefix + text).replace(" ", "▁"))
    while True:
        pairs = [(rank.get("".join(symbols[at : at + 2]), len(rank)), at) for at in range(len(symbols) - 1)]
        best, at = min(pairs, default=(len(rank), 0))
        if best == len(rank):
            break
        symbols[at : at + 2] = ["".join(symbols[at : at + 2])]
    found: list[int] = []
    for symbol in symbols:
        known = symbol in SPM_TOKENS
        found += [SPM_TOKENS.index(symbol)] if known else [3 + byte for byte in symbol.encode()]
    return found
