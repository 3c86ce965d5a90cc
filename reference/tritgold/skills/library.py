"""All tasks, the split, and the questions of either side of it."""

import hashlib
from collections.abc import Callable, Iterator, Sequence

from tritgold.skills import numbers, words
from tritgold.skills.draws import Draws
from tritgold.skills.question import Question

Task = Callable[[Draws, int], Question]

TASKS: dict[str, Task] = {
    "copy": words.copy,
    "reverse": words.reverse,
    "sort": words.sort,
    "count": words.count,
    "brackets": words.brackets,
    "lookup": words.lookup,
    "json": words.json,
    "add": numbers.add,
    "subtract": numbers.subtract,
    "compare": numbers.compare,
    "to-roman": numbers.to_roman,
    "from-roman": numbers.from_roman,
    "weekday": numbers.weekday,
    "calendar": numbers.calendar,
    "units": numbers.units,
}
LEVELS = ("easy", "middle", "hard")
HELD_OUT_EVERY = 8  # of the keys of each task, by hash
MORE = 3
_SPLIT = {"to-roman": "roman", "from-roman": "roman"}  # a numeral that is held out is held out both ways
_IN_VAIN = 800  # questions in turn without a new one: the task has no more
_HELD_OUT_STREAM = 1 << 31  # streams of held-out questions; those of training count from 0


def held_out(task: str, key: str) -> bool:
    """Whether training never sees this key: one in HELD_OUT_EVERY, decided by a hash, whatever the seed."""
    digest = hashlib.sha256(f"{_SPLIT.get(task, task)} {key}".encode()).digest()
    return digest[0] % HELD_OUT_EVERY == 0


def training_questions(seed: int, stream: int, more: Sequence[str] = ()) -> Iterator[Question]:
    """Without end: every task alike, a quarter easy, half middle, a quarter hard, none of them held out.

    more: tasks that come more often: one that is named n times, 1 + (MORE - 1) n times as often. Raises KeyError for a
    name that is not a task's.
    """
    draws, names = Draws(seed, stream), [*TASKS, *(task for task in more for _ in range(MORE - 1))]
    while True:
        task, level = draws.pick(names), draws.pick((0, 1, 1, 2))
        question = TASKS[task](draws, level)
        if not held_out(task, question.key):
            yield question


def held_out_questions(task: str, level: int, count: int, seed: int = 0) -> list[Question]:
    """Up to ``count`` different questions that training never sees: fewer where a task has not got so many."""
    draws = Draws(seed, _HELD_OUT_STREAM + 8 * list(TASKS).index(task) + level)
    found: dict[str, Question] = {}
    in_vain = 0
    while len(found) < count and in_vain < _IN_VAIN:
        question = TASKS[task](draws, level)
        in_vain += 1
        if question.prompt not in found and held_out(task, question.key):
            found[question.prompt] = question
            in_vain = 0
    return list(found.values())
