"""Diagnosis from answers: unpacked bytes, generated tokens, text to ids and back; each is equal or not.

Tokens are the weakest evidence about a model; for a decode loop and a tokenizer they are the only evidence.
"""

from collections.abc import Iterator, Sequence

from tritgold_conformance.comparing.compare import Comparison
from tritgold_conformance.diagnosis.per_run import CANNOT_RUN
from tritgold_conformance.diagnosis.search import MOST, Found
from tritgold_conformance.diagnosis.view import View
from tritgold_conformance.faults.fault import Fault, Mutant
from tritgold_conformance.faults.packing import refusing_code_3
from tritgold_conformance.judging.behaviours import difference, first_difference
from tritgold_conformance.questions.text_and_bytes import Answer, Question, answer_of, same
from tritgold_conformance.results.diagnosis import Divergence, Named

Asked = tuple[Question, Answer]
_LEVELS = {"unpack": "packed_bytes"}  # by method; the other methods are levels of the same name


def search_answers(evidence: View, found: Found, library: list[Fault]) -> None:
    """Explain every wrong answer, level by level, with the faults found so far in the model."""
    for level in ("files", "generated", "text"):
        asked = [(q, theirs) for q, theirs in evidence.answers if q.level == level]
        wrong = [a for a in asked if not gives(found.mutant, a)]
        while wrong:
            here = _divergence(found.mutant, wrong[0])
            found.first = found.first or here
            best = _best(found.mutant, asked, wrong, library)
            if best is None or len(found.faults) + len(found.unexplained) >= MOST:
                found.unexplained.append(here)
                break
            named, found.mutant, wrong = best
            found.faults.append(named)


def gives(mutant: Mutant, asked: Asked) -> bool:
    """Whether the mutant gives the engine's answer; a mutant that cannot run, such as one of another mode, does not."""
    try:
        return same(answer_of(mutant, asked[0]), asked[1])
    except CANNOT_RUN:
        return False


def _best(
    mutant: Mutant, asked: Sequence[Asked], wrong: list[Asked], library: list[Fault]
) -> tuple[Named, Mutant, list[Asked]] | None:
    """The fault that explains the first wrong answer and most of the others, and makes no right answer wrong."""
    explaining: list[tuple[int, Fault, Mutant, list[Asked]]] = []
    for fault, made in _candidates(mutant, library, wrong[0][0]):
        if not gives(made, wrong[0]):
            continue
        left = [a for a in asked if not gives(made, a)]
        if all(any(a is w for w in wrong) for a in left):
            explaining.append((len(left), fault, made, left))
    if not explaining:
        return None
    fewest = min(count for count, *_ in explaining)
    _, fault, made, left = next(e for e in explaining if e[0] == fewest)
    named = Named(
        fault=fault.name,
        summary=fault.summary,
        level=_LEVELS.get(wrong[0][0].method, wrong[0][0].method),
        at=wrong[0][0].label,
        distance=fewest / len(asked),
        golden=len(wrong) / len(asked),
        same=list(dict.fromkeys(f.name for count, f, *_ in explaining if count == fewest and f is not fault)),
        next_best=None,
    )
    return named, made, left


def _candidates(mutant: Mutant, library: list[Fault], question: Question) -> Iterator[tuple[Fault, Mutant]]:
    """Every fault that the mutant can have; readers of packed bytes also as those that refuse code 3."""
    for fault in library:
        made = fault.apply(mutant)
        if made is not None:
            yield fault, made
            if question.method == "unpack" and made.unpack is not mutant.unpack:
                yield fault, refusing_code_3(made)


def _divergence(mutant: Mutant, asked: Asked) -> Divergence:
    question, theirs = asked
    ours = answer_of(mutant, question)
    position, what = first_difference(ours, theirs), difference(ours, theirs)
    return Divergence(
        name=question.label, level=_LEVELS.get(question.method, question.method), operation=question.method, layer=None,
        position=position, channel=None,
        comparison=Comparison(question.label, "fails", compared=1, what=what), what=what,
    )  # fmt: skip
