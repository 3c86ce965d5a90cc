"""Diagnosis from answers: bytes unpacked, tokens generated, text to ids and back, each equal or not.

Tokens are the weakest sight of a model; of a decode loop and of a tokenizer they are the only one.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tritgold_conformance.comparing.compare import Comparison
from tritgold_conformance.diagnosis.evidence import Evidence
from tritgold_conformance.diagnosis.search import MOST, Found
from tritgold_conformance.faults.fault import Fault, Subject
from tritgold_conformance.questions.text_and_bytes import Answer, Question, answer_of, same
from tritgold_conformance.results.diagnosis import Divergence, Named

Asked = tuple[Question, Answer]


def search_answers(evidence: Evidence, found: Found, library: list[Fault]) -> None:
    """Explain every answer that is wrong, level by level, behind the faults that are found already."""
    for level in ("files", "generated", "text"):
        asked = [(q, theirs) for q, theirs in evidence.answers if q.level == level]
        wrong = [a for a in asked if not _right(found.subject, a)]
        while wrong:
            here = _divergence(found.subject, wrong[0])
            found.first = found.first or here
            best = _best(found.subject, asked, wrong, library)
            if best is None or len(found.faults) + len(found.unexplained) >= MOST:
                found.unexplained.append(here)
                break
            named, found.subject, wrong = best
            found.faults.append(named)


def _right(subject: Subject, asked: Asked) -> bool:
    return same(answer_of(subject, asked[0]), asked[1])


def _best(
    subject: Subject, asked: Sequence[Asked], wrong: list[Asked], library: list[Fault]
) -> tuple[Named, Subject, list[Asked]] | None:
    """The fault that explains the first wrong answer and most of the others, and spoils none."""
    explaining: list[tuple[int, Fault, Subject, list[Asked]]] = []
    for fault in library:
        made = fault.apply(subject)
        if made is None or not _right(made, wrong[0]):
            continue
        left = [a for a in asked if not _right(made, a)]
        if all(any(a is w for w in wrong) for a in left):
            explaining.append((len(left), fault, made, left))
    if not explaining:
        return None
    fewest = min(count for count, *_ in explaining)
    _, fault, made, left = next(e for e in explaining if e[0] == fewest)
    named = Named(
        fault=fault.name,
        summary=fault.summary,
        level=wrong[0][0].level,
        at=wrong[0][0].label,
        distance=fewest / len(asked),
        golden=len(wrong) / len(asked),
        same=[f.name for count, f, *_ in explaining if count == fewest and f is not fault],
        next_best=None,
    )
    return named, made, left


def _divergence(subject: Subject, asked: Asked) -> Divergence:
    question, theirs = asked
    ours = answer_of(subject, question)
    position = _first(ours, theirs)
    what = f"{_shown(theirs, position)}, expected {_shown(ours, position)}"
    return Divergence(
        name=question.label, level=question.level, operation=question.method, layer=None,
        position=position, channel=None,
        comparison=Comparison(question.label, "fails", compared=1, what=what), what=what,
    )  # fmt: skip


def _first(ours: Any, theirs: Any) -> int | None:
    """Index of the first element that differs; None where one is no sequence."""
    if isinstance(ours, str | None) or isinstance(theirs, str | None):
        return None
    a, b = np.asarray(ours).reshape(-1), np.asarray(theirs).reshape(-1)
    shared = min(a.size, b.size)
    differing = np.flatnonzero(a[:shared] != b[:shared])
    return int(differing[0]) if differing.size else shared


def _shown(answer: Any, position: int | None) -> str:
    if position is None:
        return str(answer) if isinstance(answer, str) else "an answer"
    flat = np.asarray(answer).reshape(-1)
    return repr(flat[position].item()) if position < flat.size else "the end"
