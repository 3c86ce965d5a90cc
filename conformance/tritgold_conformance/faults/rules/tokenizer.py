"""Faults between text and ids: how a tokenizer is used, and what stands around its text."""

from tritgold_conformance.faults.fault import TEXT, Mutant
from tritgold_conformance.faults.library import known_fault
from tritgold_conformance.faults.mutate import text


@known_fault(TEXT, invisible_on=("whole-words",))
def tokens_decoded_alone(s: Mutant) -> Mutant:
    """Each token is decoded by itself.

    Looks like: emoji and accents become replacement characters; whole texts are right
    Seen in: antonellof/ferrox #124; mukel/llama3.java #5"""
    return text(s, alone=True)


@known_fault(TEXT, invisible_on=("whole-words",))
def stream_cut_off(s: Mutant) -> Mutant:
    """What a stream holds back at the end is never shown.

    Looks like: an incomplete character at the end of a text is missing"""
    return text(s, cut_off=True)


@known_fault(TEXT)
def digits_one_by_one(s: Mutant) -> Mutant:
    """Digits are split one by one, where the vocabulary has groups of three.

    Looks like: numbers cost more tokens and are answered worse
    Seen in: microsoft/BitNet #508"""
    return text(s, digits=1)


@known_fault(TEXT)
def digits_not_split(s: Mutant) -> Mutant:
    """Digits are not split at all before the merges.

    Looks like: numbers of four digits and more are other tokens
    Seen in: microsoft/BitNet #508"""
    return text(s, digits=9)


@known_fault(TEXT)
def bos_doubled(s: Mutant) -> Mutant:
    """The template renders BOS and the tokenizer adds another.

    Looks like: answers a little off
    Seen in: vllm-project/vllm #16976; MakazhanAlpamys/Soup #867"""
    return text(s, bos="doubled")


@known_fault(TEXT)
def bos_missing(s: Mutant) -> Mutant:
    """No BOS at the start.

    Looks like: answers a little off, worst for short prompts"""
    return text(s, bos="missing")


@known_fault(TEXT)
def leading_space_added(s: Mutant) -> Mutant:
    """A space is put before the text, as SentencePiece does.

    Looks like: the first word is another token"""
    return text(s, leading_space=True)


@known_fault(TEXT)
def white_space_joined(s: Mutant) -> Mutant:
    """Runs of white space become one space.

    Looks like: code and lists lose their lines"""
    return text(s, stripped=True)


@known_fault(TEXT)
def text_normalised(s: Mutant) -> Mutant:
    """Text is normalised by NFKC.

    Looks like: ligatures and full-width letters are others"""
    return text(s, normalised=True)


@known_fault(TEXT)
def template_space_missing(s: Mutant) -> Mutant:
    """The space after the assistant's name is missing from the template.

    Looks like: answers begin with a space, or oddly
    Seen in: ikawrakow/ik_llama.cpp #339"""
    return text(s, template_space_missing=True)
