"""The questions of a score, as token ids, and what is said of the answers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tritgold.config import ModelConfig
from tritgold.skills import LEVELS, Question, held_out_questions
from tritgold.tokenizer import Tokenizer
from tritgold_conformance.scoring.interval import wilson

SPARE = 2  # tokens that an engine may write besides the right answer: the end, and one that makes it wrong


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
    """What an engine made of an item. tokens: it wrote; forwards: passes over blocks, 0 where it is not diffusion.

    text: what it wrote, None where it was scored without writing (``greedy``).
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
    """Prompt and answer. The answer is what the whole text has after the prompt."""
    prompt = tokenizer.encode(question.prompt)
    whole = tokenizer.encode(question.prompt + question.answer)
    if whole[: len(prompt)] == prompt:
        return prompt, whole[len(prompt) :]
    bos = len(tokenizer.encode(""))  # merged across the edge: the answer by itself is one way to write it
    return prompt, tokenizer.encode(question.answer)[bos:]


def ends(tokenizer: Tokenizer, config: ModelConfig) -> set[int]:
    """Ids after which an answer is over: the ends of sequence, and what begins a new line."""
    bos = len(tokenizer.encode(""))
    return {*config.eos, *tokenizer.encode("\n")[bos:][:1]}


def is_right(text: str, question: Question) -> bool:
    """Whether a text that goes on from the prompt gives the answer: its first line, spaces around it left out.

    >>> is_right(" 95\\n1 + 1 = 2", Question("", "37 + 58", "95")), is_right(" 955", Question("", "37 + 58", "95"))
    (True, False)
    """
    return text.lstrip("\n").partition("\n")[0].strip() == question.right


def summary(asked: Sequence[Item], answers: Sequence[Answered]) -> list[dict[str, Any]]:
    """A row for each task and level, and last one over all (task ``all``), with 95 % intervals."""
    groups: dict[tuple[str, str], list[Answered]] = {}
    for item, answer in zip(asked, answers, strict=True):
        groups.setdefault((item.task, item.level), []).append(answer)
    rows = [_row(task, level, found) for (task, level), found in groups.items()]
    return [*rows, _row("all", "", list(answers))]


def _row(task: str, level: str, answers: Sequence[Answered]) -> dict[str, Any]:
    right, of = sum(answer.right for answer in answers), len(answers)
    row = {
        "task": task,
        "level": level,
        "right": right,
        "of": of,
        "accuracy": round(right / of, 6) if of else None,
        "interval": [round(end, 6) for end in wilson(right, of)],
    }
    if forwards := sum(answer.forwards for answer in answers):
        row["passes_per_token"] = round(forwards / max(1, sum(answer.tokens for answer in answers)), 4)
    return row
