"""Questions of the tasks, and which of them a golden model with something changed answers rightly.

A prompt is read at once and its answer token by token, as in decoding: some faults, KV schemes and rules act on one of
the two only. Answers are a text of 1 (right) and 0, in the order of the questions, so that two models can be compared
question by question.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.errors import NonFiniteError
from tritgold.golden import trained_model
from tritgold.skills import TASKS
from tritgold.tokenizer import Tokenizer
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.faults.fault import Mutant
from tritgold_conformance.faults.faulty_engine import FaultyEngine
from tritgold_conformance.questions import exam
from tritgold_conformance.scoring import greedy
from tritgold_conformance.scoring.summary import wilson

AR, DLM = "skills-ar", "skills-dlm"
ROOM = 64  # positions, more than any question and its answer have


@cache
def opened(name: str) -> tuple[Checkpoint, Tokenizer]:
    """A trained model and its tokenizer."""
    folder = trained_model(name)
    return open_checkpoint(folder), Tokenizer(folder / "tokenizer.json")


def questions(name: str, count: int) -> list[exam.Item]:
    """Held-out questions of middle difficulty, ``count`` of each task: the first ones of any larger count."""
    return exam.items(opened(name)[1], TASKS, ("middle",), count)


def of_mutant(mutant: Mutant, count: int) -> str:
    """The answers of skills-ar with something changed."""
    engine = FaultyEngine(mutant, ROOM)
    return of_engine(EngineUnderTest(engine, config=mutant.config, checked=False), questions(AR, count))


def of_engine(engine: EngineUnderTest, asked: Sequence[exam.Item]) -> str:
    """The answers of any engine on skills-ar; one that is not finite is wrong."""
    checkpoint, tokenizer = opened(AR)
    found = ""
    for item in asked:
        try:
            with np.errstate(all="ignore"):
                (answer,) = greedy.score(engine, [item], checkpoint.config, tokenizer, by_steps=True)
            found += marks([answer])
        except NonFiniteError:
            found += "0"
    return found


def marks(answers: Sequence[exam.Answered]) -> str:
    """1 for a right answer, 0 for another."""
    return "".join("1" if answer.right else "0" for answer in answers)


def figures(answers: str, golden: str) -> dict[str, Any]:
    """What a row says of answers. golden: those of the unchanged model to the same questions.

    lost: answers of the unchanged model that are wrong now; gained: right now, and wrong there.

    >>> found = figures("1100", "1010")
    >>> found["right"], found["lost"], found["gained"]
    (2, 1, 1)
    """
    right, of = answers.count("1"), len(answers)
    pairs = list(zip(golden, answers, strict=True))
    return {
        "right": right,
        "of": of,
        "accuracy": round(right / of, 6) if of else None,
        "interval": [round(end, 6) for end in wilson(right, of)],
        "lost": pairs.count(("1", "0")),
        "gained": pairs.count(("0", "1")),
        "answers": answers,
    }


def effect(row: dict[str, Any], golden: dict[str, Any]) -> str:
    """What a fault does to answers: destroys more than half of the right ones, costs more than it gains, or hides.

    >>> [effect(figures(answers, "1110"), {"right": 3}) for answers in ("0010", "0110", "1110", "0111")]
    ['destroys', 'costs', 'hides', 'hides']
    """
    if row["lost"] > golden["right"] / 2:
        return "destroys"
    return "costs" if row["lost"] > row["gained"] else "hides"
