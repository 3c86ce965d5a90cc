"""The summary of a score: accuracy by task and level, with its 95 % interval."""

from collections.abc import Sequence
from math import sqrt
from typing import Any

from tritgold_conformance.questions.exam import Answered, Item

Z = 1.959964  # 95 % of the normal distribution


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
