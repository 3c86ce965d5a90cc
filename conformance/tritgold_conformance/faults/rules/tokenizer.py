"""Faults between text and ids: how a tokenizer is used, and what stands around its text."""

from collections.abc import Callable
from typing import Any

from tritgold_conformance.faults.fault import TEXT, Mutation
from tritgold_conformance.faults.library import known_fault
from tritgold_conformance.faults.mutate import text


def reads_text(**switches: Any) -> Callable[[Callable[[], None]], Mutation]:
    """Of a docstring: some switches of ``faults/tokenizer.py``."""
    return lambda page: lambda s: text(s, **switches)


@known_fault(TEXT, reads_text(alone=True), invisible_on=("whole-words",))
def tokens_decoded_alone() -> None:
    """Each token is decoded by itself.

    Looks like: emoji and accents become replacement characters; whole texts are right
    Seen in: antonellof/ferrox #124; mukel/llama3.java #5"""


@known_fault(TEXT, reads_text(cut_off=True), invisible_on=("whole-words",))
def stream_cut_off() -> None:
    """What a stream holds back at the end is never shown.

    Looks like: an incomplete character at the end of a text is missing"""


@known_fault(TEXT, reads_text(digits=1))
def digits_one_by_one() -> None:
    """Digits are split one by one, where the vocabulary has groups of three.

    Looks like: numbers cost more tokens and are answered worse
    Seen in: microsoft/BitNet #508"""


@known_fault(TEXT, reads_text(digits=9))
def digits_not_split() -> None:
    """Digits are not split at all before the merges.

    Looks like: numbers of four digits and more are other tokens
    Seen in: microsoft/BitNet #508"""


@known_fault(TEXT, reads_text(bos="doubled"))
def bos_doubled() -> None:
    """The template renders BOS and the tokenizer adds another.

    Looks like: answers a little off
    Seen in: vllm-project/vllm #16976; MakazhanAlpamys/Soup #867"""


@known_fault(TEXT, reads_text(bos="missing"))
def bos_missing() -> None:
    """No BOS at the start.

    Looks like: answers a little off, worst for short prompts"""


@known_fault(TEXT, reads_text(leading_space=True))
def leading_space_added() -> None:
    """A space is put before the text, as SentencePiece does.

    Looks like: the first word is another token"""


@known_fault(TEXT, reads_text(stripped=True))
def white_space_joined() -> None:
    """Runs of white space become one space.

    Looks like: code and lists lose their lines"""


@known_fault(TEXT, reads_text(normalised=True))
def text_normalised() -> None:
    """Text is normalised by NFKC.

    Looks like: ligatures and full-width letters are others"""


@known_fault(TEXT, reads_text(template_space_missing=True))
def template_space_missing() -> None:
    """The space after the assistant's name is missing from the template.

    Looks like: answers begin with a space, or oddly
    Seen in: ikawrakow/ik_llama.cpp #339"""
