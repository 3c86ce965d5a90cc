"""Behaviours of an engine: generated, served and diffused tokens, and text to ids and back. Answers must be equal.

An answer is judged only if float noise would not change the right answer (``fair``).
"""

from collections.abc import Container, Mapping
from functools import lru_cache

from tritgold.errors import TritgoldError
from tritgold_conformance.faults.fault import Mutant
from tritgold_conformance.faults.quick import quick
from tritgold_conformance.golden.run import GoldenRun
from tritgold_conformance.questions.evidence import BEHAVIOURS
from tritgold_conformance.questions.text_and_bytes import Answer, Question, answer_of, questions, same, stable


def behaviours(golden: GoldenRun, methods: Container[str]) -> list[Question]:
    """The questions about a golden run that these methods answer. Costs nothing if none of them is a behaviour."""
    if not any(method in methods for method in BEHAVIOURS):
        return []
    return [q for q in _all(golden) if q.method in methods]


def fair(
    golden: GoldenRun, answers: Mapping[str, Answer], method: str, or_equal: bool = False
) -> list[tuple[Question, Answer, Answer]]:
    """(question, the right answer, the engine's), for right answers that float noise does not change.

    or_equal: also for every answer that is the right one: it needs no excuse, so noise is not tried for it.
    """
    return [
        (question, _expected(golden, method, n), theirs)
        for n, question in enumerate(behaviours(golden, (method,)))
        if (theirs := answers.get(question.label)) is not None
        if (or_equal and same(_expected(golden, method, n), theirs)) or _stable(golden, method, n)
    ]


@lru_cache(maxsize=2)
def right(golden: GoldenRun) -> Mutant:
    """The golden model in the arithmetic of the run."""
    return quick(golden.checkpoint, golden.arithmetic)


@lru_cache(maxsize=64)
def _expected(golden: GoldenRun, method: str, number: int) -> Answer:
    """The right answer to question ``number`` of a method."""
    return answer_of(right(golden), behaviours(golden, (method,))[number])


@lru_cache(maxsize=64)
def _stable(golden: GoldenRun, method: str, number: int) -> bool:
    """Whether float noise leaves this answer as it is."""
    question = behaviours(golden, (method,))[number]
    return stable(right(golden), question, _expected(golden, method, number))


@lru_cache(maxsize=1)  # asking, judging and diagnosing an engine use the same golden run
def _all(golden: GoldenRun) -> list[Question]:
    mutant = right(golden)
    prompt = [t for t in golden.tokens if t != mutant.config.mask][:5]
    try:
        asked = questions(mutant, prompt) if prompt else []
    except TritgoldError:  # the context is too small for so many tokens
        return []
    return [q for q in asked if q.method in BEHAVIOURS]
