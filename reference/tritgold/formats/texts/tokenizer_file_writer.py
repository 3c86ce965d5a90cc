"""BpeTokenizer -> tokenizer.json of the ``tokenizers`` library, the inverse of ``texts.tokenizer_file``."""

import json
from typing import Any

from tritgold.formats.texts.bpe_tokenizer import BpeTokenizer
from tritgold.formats.texts.pre_tokenizers import PRE_TOKENIZERS, pre_tokenizer_section
from tritgold.formats.texts.tokenizer_file import DECODERS, PREPEND, REPLACE, STRIP

_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}


def write_tokenizer_file(tokenizer: BpeTokenizer) -> str:
    """The text of a tokenizer.json, one line; reading it gives this tokenizer again."""
    special = sorted(tokenizer.control | tokenizer.user_defined)
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    gpt2, rule = tokenizer.kind == "gpt2", PRE_TOKENIZERS[tokenizer.pre]
    prefix = tokenizer.space_prefix
    normalizer = {"type": "Sequence", "normalizers": [PREPEND, REPLACE] if prefix else [REPLACE]}
    decoder = {"type": "Sequence", "decoders": [*DECODERS, STRIP] if prefix else DECODERS}
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None if tokenizer.unknown is None else tokenizer.tokens[tokenizer.unknown],
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": not gpt2,
        "byte_fallback": not gpt2,
        "ignore_merges": gpt2 and rule.ignore_merges,
        "vocab": tokenizer.ids,
        "merges": tokenizer.merges,
    }
    root = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": token, "content": tokenizer.tokens[token], **flags, "special": token in tokenizer.control}
            for token in special
        ],
        "normalizer": ({"type": "NFC"} if rule.nfc else None) if gpt2 else normalizer,
        "pre_tokenizer": pre_tokenizer_section(rule) if gpt2 else None,
        "post_processor": _template_section(tokenizer),
        "decoder": _BYTE_LEVEL if gpt2 else decoder,
        "model": model,
    }
    return json.dumps(root, ensure_ascii=False) + "\n"


def _template_section(tokenizer: BpeTokenizer) -> dict[str, Any] | None:
    if tokenizer.first is None and tokenizer.last is None:
        return None
    text = [{"Sequence": {"id": "A", "type_id": 0}}], [{"Sequence": {"id": "B", "type_id": 1}}]
    named = {tokenizer.tokens[t]: t for t in (tokenizer.first, tokenizer.last) if t is not None}
    before, after = (
        [] if t is None else [{"SpecialToken": {"id": tokenizer.tokens[t], "type_id": 0}}]
        for t in (tokenizer.first, tokenizer.last)
    )
    return {
        "type": "TemplateProcessing",
        "single": [*before, *text[0], *after],
        "pair": [*before, *text[0], *text[1], *after],
        "special_tokens": {name: {"id": name, "ids": [t], "tokens": [name]} for name, t in named.items()},
    }
