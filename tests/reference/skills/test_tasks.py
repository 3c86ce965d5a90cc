"""The tasks: answers that a second, naive reading of the question gives too, and a split that holds."""

import hashlib
import itertools
import json
import re
from collections import Counter
from datetime import date, timedelta

import pytest

from tritgold.skills import LEVELS, TASKS, Question, held_out, held_out_questions, training_questions
from tritgold.skills.numbers import DAYS, numeral

VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
FACTORS = {
    **{("km", "m"): 1000, ("kg", "g"): 1000, ("m", "cm"): 100, ("cm", "mm"): 10, ("l", "ml"): 1000},
    **{("h", "min"): 60, ("min", "s"): 60, ("days", "h"): 24, ("weeks", "days"): 7},
}


def from_roman(text: str) -> int:
    values = [VALUES[letter] for letter in text]
    return sum(-v if v < after else v for v, after in zip(values, [*values[1:], 0], strict=True))


def closed(text: str) -> bool:
    """Whether every bracket is closed by its own kind, and nothing is left."""
    while (less := re.sub(r"\(\)|\[\]|\{\}", "", text)) != text:
        text = less
    return not text


def solved(task: str, asked: str, right: str) -> bool:
    """Whether the answer is right, read from the question's text alone."""
    words = asked.split()
    match task:
        case "copy":
            return right == words[1]
        case "reverse":
            return right == "".join(reversed(words[1]))
        case "sort":
            return Counter(right) == Counter(words[1]) and list(right) == sorted(right)
        case "count":
            return int(right) == len(words[3]) - len(words[3].replace(words[1], ""))
        case "brackets":
            return bool(right) and closed(words[1] + right)
        case "lookup":
            table, key = asked.split(": ")
            return {pair[0]: pair[1:] for pair in table.split()}[key] == right
        case "json":
            said = re.fullmatch(r"(\w+) is (\d+)(?:, (\w+))?", asked)
            assert said
            city = {"city": said[3]} if said[3] else {}
            return json.loads(right) == {"name": said[1], "age": int(said[2]), **city}
        case "add" | "subtract":
            return int(right) == int(words[0]) + int(words[2]) * (1 if words[1] == "+" else -1)
        case "compare":
            a, b = int(words[0]), int(words[2])
            return right == ("same" if a == b else "less" if a < b else "more")
        case "to-roman":
            return from_roman(right) == int(words[1])
        case "from-roman":
            return from_roman(words[1]) == int(right)
        case "weekday":
            day = date(2024, 1, 1) + timedelta(DAYS.index(words[0]) + int(words[2]))  # a Monday, and on
            return DAYS[day.weekday()] == right
        case "calendar":
            step = timedelta(1 if words[0] == "after" else -1)
            return str(date.fromisoformat(words[1]) + step) == right
        case _:
            pair = (words[1], words[3])
            factor = FACTORS.get(pair)
            if factor is None:
                return int(words[0]) == int(right) * FACTORS[pair[::-1]]
            return int(right) == int(words[0]) * factor


@pytest.mark.parametrize("task", TASKS)
def test_answers_are_right(task: str) -> None:
    for level in range(len(LEVELS)):
        asked = held_out_questions(task, level, 40)
        assert asked
        assert all(solved(task, q.asked, q.right) for q in asked)
        # The check can fail: the answer to another question is not one to this.
        others = {q.right for q in asked}
        assert len(others) == 1 or not all(solved(task, asked[0].asked, other) for other in others)


@pytest.mark.parametrize("task", TASKS)
def test_no_answer_is_in_doubt_of_its_form(task: str) -> None:
    for level in range(len(LEVELS)):
        for question in held_out_questions(task, level, 40):
            assert question.prompt.count("=") == 1
            assert question.prompt.endswith(" =")
            assert "\n" not in question.right
            assert question.right == question.right.strip() != ""
            assert question.prompt.isascii()
            assert len(question.prompt + question.answer) + 2 <= 64


def test_nothing_that_is_held_out_is_trained() -> None:
    trained = list(itertools.islice(training_questions(3, 0), 2000))
    prompts = {question.prompt for question in trained}
    for task in TASKS:
        for level in range(len(LEVELS)):
            assert prompts.isdisjoint(question.prompt for question in held_out_questions(task, level, 60))


def test_the_same_fact_is_held_out_in_every_form() -> None:
    questions = [
        task(draws, 1) for task, draws in [(TASKS["add"], Twice([37, 58, 0])), (TASKS["add"], Twice([37, 58, 1]))]
    ]
    assert questions[0].asked != questions[1].asked
    assert questions[0].key == questions[1].key
    assert all(held_out("to-roman", str(n)) == held_out("from-roman", str(n)) for n in range(1, 200))


class Twice:
    """Draws that were decided beforehand: values of ``between``, then of ``below``."""

    def __init__(self, values: list[int]) -> None:
        self._values = iter(values)

    def between(self, low: int, high: int) -> int:
        return next(self._values)

    def below(self, count: int) -> int:
        return next(self._values)


def test_one_key_in_eight_is_held_out() -> None:
    share = sum(held_out("add", f"{a} {b}") for a in range(100) for b in range(a, 100)) / 5050
    assert 0.11 < share < 0.14


def test_all_tasks_and_levels_are_trained_alike() -> None:
    kinds = Counter(question.prompt.split()[0] for question in itertools.islice(training_questions(1, 0), 3000))
    assert all(150 < kinds[word] < 250 for word in ("copy", "reverse", "sort", "count", "close", "roman", "number"))


def test_questions_are_the_same_on_every_machine() -> None:
    text = "".join(f"{q.prompt}{q.answer}\n" for q in itertools.islice(training_questions(158, 7), 500))
    text += "".join(f"{q.prompt}{q.answer}\n" for task in TASKS for q in held_out_questions(task, 1, 5))
    assert hashlib.sha256(text.encode()).hexdigest() == DIGEST
    other = "".join(f"{q.prompt}{q.answer}\n" for q in itertools.islice(training_questions(158, 8), 500))
    assert other != text[: len(other)]


DIGEST = "6f5a3c70e6a3e07abd60d646a59fbbdbb47e96dc62c6be2a9b8d35fd4b2a107b"


def test_a_task_with_few_questions_gives_those_it_has() -> None:
    found = held_out_questions("weekday", 0, 500)
    assert 3 < len(found) < 20
    assert len({question.prompt for question in found}) == len(found)


def test_numerals_all_the_way() -> None:
    assert [from_roman(numeral(n)) for n in range(1, 4000)] == list(range(1, 4000))


def test_a_question_says_what_is_asked_and_what_is_answered() -> None:
    question = Question("37 58", "37 + 58", "95")
    assert (question.prompt, question.answer) == ("37 + 58 =", " 95")
