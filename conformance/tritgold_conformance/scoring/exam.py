"""The questions of a score, as token ids, and the summary of the answers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

from tritgold.config import ModelConfig
from tritgold.skills import LEVELS, Question, held_out_questions
from tritgold.tokenizer import Tokenizer

Z = 1.959964  # 95 % of the normal distribution
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


def wilson(right: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a probability, after ``right`` successes in ``of`` trials (Wilson 1927). 0 trials: (0, 1).

    >>> [round(end, 3) for end in wilson(98, 100)], wilson(0, 0)
    ([0.93, 0.994], (0.0, 1.0))
    """
    if of == 0:
        return 0.0, 1.0
    share, more = right / of, Z * Z / of
    middle = (share + more / 2) / (1 + more)
    half = Z / (1 + more) * sqrt(share * (1 - share) / of + more / (4 * of))
    return max(0.0, middle - half), min(1.0, middle + half)
