"""Faults between text and ids: how a tokenizer is used, and what stands around its text."""

import unicodedata
from dataclasses import replace
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, processors
from tokenizers import Tokenizer as RawTokenizer

from tritgold.tokenizer import TextStream, Tokenizer
from tritgold_conformance.faults.fault import Change, Fault, Subject, Witness

BOS = "<bos>"


def witness_tokenizer(digits: int = 3) -> Tokenizer:
    """Byte-level BPE that merges digits, which it splits in groups of at most ``digits``; <bos> is added."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    # In this order 123 and 4 are made of groups of three, and 1234 of digits that are not split.
    merges = [("1", "2"), ("3", "4"), ("12", "34"), ("12", "3"), ("4", "5"), ("t", "h"), ("th", "e"), ("Ġ", "the")]
    names = [*alphabet, *(a + b for a, b in merges), BOS]
    raw = RawTokenizer(models.BPE(vocab={name: n for n, name in enumerate(names)}, merges=merges))
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(rf"\p{{N}}{{1,{digits}}}"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens([AddedToken(BOS, special=True)])
    raw.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, raw.token_to_id(BOS))])
    return Tokenizer.from_text(raw.to_str())


def encode(s: Subject, text: str) -> list[int]:
    """Ids of a text, with one BOS."""
    switches = s.text
    tokenizer = witness_tokenizer(switches.get("digits", 3))
    if switches.get("stripped"):
        text = " ".join(text.split())
    if switches.get("normalised"):
        text = unicodedata.normalize("NFKC", text)
    ids = tokenizer.encode((" " if switches.get("leading_space") else "") + text)
    return {"doubled": ids[:1] + ids, "missing": ids[1:]}.get(switches.get("bos", ""), ids)


def chat(s: Subject, message: str) -> list[int]:
    """Ids of a user's message in the template ``User: ...\\nAssistant: ``."""
    space = "" if s.text.get("template_space_missing") else " "
    return encode(s, f"User: {message}\nAssistant:{space}")


def stream(s: Subject, ids: list[int]) -> list[str]:
    """The pieces of text that a growing list of ids gives, and what is left at the end; empty ones left out."""
    tokenizer = witness_tokenizer()
    if s.text.get("alone"):
        return [piece for i in ids if (piece := tokenizer.decode([i]))]
    growing = TextStream(tokenizer)
    pieces = [growing.push(i) for i in ids]
    return [piece for piece in (pieces if s.text.get("cut_off") else [*pieces, growing.finish()]) if piece]


def _switched(**switches: Any) -> Change:
    return lambda s: replace(s, text={**s.text, **switches})


_TEXT = Witness("text", "diffusing")

FAULTS = (
    Fault(
        "tokens-decoded-alone", "tokenizer", "Each token is decoded by itself.",
        "emoji and accents become replacement characters; whole texts are right",
        _switched(alone=True), _TEXT, ("antonellof/ferrox #124", "mukel/llama3.java #5"), ("whole-words",),
    ),
    Fault(
        "stream-cut-off", "tokenizer", "What a stream holds back at the end is never shown.",
        "an incomplete character at the end of a text is missing",
        _switched(cut_off=True), _TEXT, (), ("whole-words",),
    ),
    Fault(
        "digits-one-by-one", "tokenizer", "Digits are split one by one, where the vocabulary has groups of three.",
        "numbers cost more tokens and are answered worse",
        _switched(digits=1), _TEXT, ("microsoft/BitNet #508",),
    ),
    Fault(
        "digits-not-split", "tokenizer", "Digits are not split at all before the merges.",
        "numbers of four digits and more are other tokens",
        _switched(digits=9), _TEXT, ("microsoft/BitNet #508",),
    ),
    Fault(
        "bos-doubled", "tokenizer", "The template renders BOS and the tokenizer adds another.", "answers a little off",
        _switched(bos="doubled"), _TEXT, ("vllm-project/vllm #16976", "MakazhanAlpamys/Soup #867"),
    ),
    Fault(
        "bos-missing", "tokenizer", "No BOS at the start.", "answers a little off, worst for short prompts",
        _switched(bos="missing"), _TEXT,
    ),
    Fault(
        "leading-space-added", "tokenizer", "A space is put before the text, as SentencePiece does.",
        "the first word is another token",
        _switched(leading_space=True), _TEXT,
    ),
    Fault(
        "white-space-joined", "tokenizer", "Runs of white space become one space.", "code and lists lose their lines",
        _switched(stripped=True), _TEXT,
    ),
    Fault(
        "text-normalised", "tokenizer", "Text is normalised by NFKC.", "ligatures and full-width letters are others",
        _switched(normalised=True), _TEXT,
    ),
    Fault(
        "template-space-missing", "tokenizer", "The space behind the assistant's name is missing from the template.",
        "answers begin with a space, or oddly",
        _switched(template_space_missing=True), _TEXT, ("ikawrakow/ik_llama.cpp #339",),
    ),
)  # fmt: skip
