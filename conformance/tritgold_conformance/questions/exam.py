"""Questions with one right answer, as token ids, and what a right answer to them is."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tritgold.config import ModelConfig
from tritgold.skills import LEVELS, Question, held_out_questions
from tritgold.tokenizer import Tokenizer
from tritgold_conformance.contract.session import Session

SPARE = 2  # tokens that an engine may write beyond the right answer: the end, and one that makes it wrong


@dataclass(frozen=True)
class Item:
    """One question. prompt, answer: ids; level: one of LEVELS."""

    task: str
    level: str
    question: Question
    prompt: list[int]
    answer: list[int]


@dataclass(frozen=True)
class Answered:
    """An engine's answer to an item. tokens: how many it generated; forwards: passes over blocks, 0 without diffusion.

    text: what it wrote, None if it was scored by its logits.
    """

    right: bool
    text: str | None = None
    tokens: int = 0
    forwards: int = 0


def items(tokenizer: Tokenizer, tasks: Iterable[str], levels: Iterable[str], count: int, seed: int = 0) -> list[Item]:
    """Up to ``count`` held-out questions of each task and level, in order."""
    levels = list(levels)
    return [
        Item(task, level, question, *_ids(tokenizer, question))
        for task in tasks
        for level in levels
        for question in held_out_questions(task, LEVELS.index(level), count, seed)
    ]


def _ids(tokenizer: Tokenizer, question: Question) -> tuple[list[int], list[int]]:
    """Prompt and answer: the ids of the whole text, unless the tokenizer merges across the edge between them."""
    prompt = tokenizer.encode(question.prompt)
    whole = tokenizer.encode(question.prompt + question.answer)
    if whole[: len(prompt)] == prompt:
        return prompt, whole[len(prompt) :]
    bos = len(tokenizer.encode(""))  # merged across the edge: use the ids of the answer alone
    return prompt, tokenizer.encode(question.answer)[bos:]


def ends(tokenizer: Tokenizer, config: ModelConfig) -> set[int]:
    """Ids that end an answer: the ends of sequence, and the beginning of a new line."""
    bos = len(tokenizer.encode(""))
    return {*config.eos, *tokenizer.encode("\n")[bos:][:1]}


def is_right(text: str, question: Question) -> bool:
    """Whether the first line of a text after the prompt is the right answer, without the spaces around it.

    >>> is_right(" 95\\n1 + 1 = 2", Question("", "37 + 58", "95")), is_right(" 955", Question("", "37 + 58", "95"))
    (True, False)
    """
    return text.lstrip("\n").partition("\n")[0].strip() == question.right


def session(name: str, item: Item, first: str, by_steps: bool, contained: bool = False) -> Session:
    """Question and answer as one session: one prefill of both; or the prompt by ``first`` and the answer by steps.

    first: ``prefill`` or ``step``. by_steps: ignored for ``step``, which has no other way.
    """
    tokens = [*item.prompt, *item.answer]
    if first == "prefill" and not by_steps:
        return Session(name, tokens, [len(tokens)], ("prefill",), contained)
    prompt = [len(item.prompt)] if first == "prefill" else [1] * len(item.prompt)
    calls = (first,) * len(prompt) + ("step",) * len(item.answer)
    return Session(name, tokens, [*prompt, *[1] * len(item.answer)], calls, contained)


def by_logits(rows: np.ndarray, item: Item, over: set[int]) -> Answered:
    """The answer in the logits of a session, float [tokens, vocab]: right if greedy decoding would write it.

    That is, if each of its tokens, and then one that ends it, has the largest logit. NaN counts as the largest.
    """
    return by_choices(np.argmax(rows[len(item.prompt) - 1 :], axis=1).tolist(), item, over)


def by_choices(chosen: list[int], item: Item, over: set[int]) -> Answered:
    """The answer in the greedy tokens after the prompt and after each token of the right answer."""
    return Answered(chosen[:-1] == item.answer and chosen[-1] in over)


def by_ids(made: list[int], item: Item, over: set[int], tokenizer: Tokenizer, forwards: int = 0) -> Answered:
    """The answer in generated ids: those before the first one that ends an answer."""
    end = next((n for n, token in enumerate(made) if token in over), len(made))
    text = tokenizer.decode(made[:end])
    return Answered(end < len(made) and is_right(text, item.question), text, len(made), forwards)
