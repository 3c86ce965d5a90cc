"""Answers of decode loops and tokenizers: the questions of the fault library, as cases with their answers."""

import json
from collections.abc import Iterator
from typing import Any

from tokenizers import pre_tokenizers

from tritgold_conformance.case_vectors.draft import Draft, Group
from tritgold_conformance.faults.fault import Mutant
from tritgold_conformance.faults.witnesses import MODELS
from tritgold_conformance.questions.text_and_bytes import Question, questions

PROMPT = [256, 5, 17, 99, 5]
TOKENIZER = "tokenizer.json"
# The names of each method's arguments.
ARGUMENTS = {
    "generate": ("prompt", "max_tokens", "options"),
    "serve": ("prompt", "max_tokens", "options"),
    "diffuse": ("prompt", "max_tokens", "options"),
    "encode": ("text",),
    "chat": ("message",),
    "stream": ("ids",),
}


def groups() -> Iterator[Group]:
    """decode, tokenizer."""
    model = MODELS["diffusing"]()
    asked = questions(Mutant(model), PROMPT)
    yield Group("decode", "generated", "Tokens that a decode loop gives, greedy, drawn, in blocks.",
                [*_drafts(asked, "generated")], model)  # fmt: skip
    yield Group("tokenizer", "text", "Ids of texts, and the pieces of text of growing lists of ids.",
                [*_drafts(asked, "text")], files={TOKENIZER: tokenizer_json()})  # fmt: skip


def _drafts(asked: list[Question], level: str) -> Iterator[Draft]:
    of_level = [q for q in asked if q.level == level]
    for number, question in enumerate(of_level):
        parameters: dict[str, Any] = dict(zip(ARGUMENTS[question.method], question.arguments, strict=True))
        yield Draft(f"{question.method}-{number}", question.method, question.label, parameters)


def tokenizer_json() -> bytes:
    """The witness tokenizer as a file. Written by hand, because the output of the tokenizers library changes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [["1", "2"], ["3", "4"], ["12", "34"], ["12", "3"], ["4", "5"], ["t", "h"], ["th", "e"], ["Ġ", "the"]]
    names = [*alphabet, *(a + b for a, b in merges), "<bos>"]
    bos = names.index("<bos>")
    special = {"id": bos, "content": "<bos>", "special": True, "single_word": False, "lstrip": False, "rstrip": False,
               "normalized": False}  # fmt: skip
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": r"\p{N}{1,3}"}, "behavior": "Isolated", "invert": False}
    text, first = {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<bos>", "type_id": 0}}
    template = {
        "type": "TemplateProcessing",
        "single": [first, text],
        "pair": [text, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<bos>": {"id": "<bos>", "ids": [bos], "tokens": ["<bos>"]}},
    }
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
             "vocab": {name: number for number, name in enumerate(names)}, "merges": merges}  # fmt: skip
    whole = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [special],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": template,
        "decoder": byte_level,
        "model": model,
    }
    return json.dumps(whole, indent=1, ensure_ascii=False).encode() + b"\n"
