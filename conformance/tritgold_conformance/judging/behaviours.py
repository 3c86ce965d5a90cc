"""Levels generate, serve, diffuse, encode, chat, stream: does the engine give the same results as the golden model?"""

from typing import Any

import numpy as np

from tritgold_conformance.comparing.compare import Comparison
from tritgold_conformance.golden.run import GoldenRun
from tritgold_conformance.judging.comparisons import lacks
from tritgold_conformance.questions.behaviours import behaviours, fair
from tritgold_conformance.questions.evidence import BEHAVIOURS, Evidence
from tritgold_conformance.questions.text_and_bytes import Answer, same
from tritgold_conformance.results.report import Level


def judge_behaviours(golden: GoldenRun, evidence: Evidence) -> tuple[dict[str, Level], list[Comparison]]:
    """The levels, and a Comparison for each wrong answer, with the label of its question as its name."""
    levels, wrong = dict[str, Level](), list[Comparison]()
    for method in BEHAVIOURS:
        levels[method], failing = _level(golden, evidence, method)
        wrong += failing
    return levels, wrong


def _level(golden: GoldenRun, evidence: Evidence, method: str) -> tuple[Level, list[Comparison]]:
    if not evidence.has(method):
        return lacks(f"the engine has no {method}()"), []
    asked = behaviours(golden, (method,))
    if not asked:
        own = method == "chat" and golden.checkpoint.chat_template() is not None
        return lacks("the model has its own template" if own else "the questions do not apply to the model"), []
    judged = fair(golden, evidence.answers, method, or_equal=True)
    if not judged:
        given = any(q.label in evidence.answers for q in asked)
        return lacks("float noise changes every answer" if given else f"the engine gave no answer of {method}()"), []
    wrong = [
        Comparison(q.label, "fails", compared=1, what=difference(ours, theirs))
        for q, ours, theirs in judged
        if not same(ours, theirs)
    ]
    note = f"first: {wrong[0].name}: {wrong[0].what}" if wrong else f"{len(judged)} equal"
    level = Level(
        status="failed" if wrong else "passed",
        compared=len(judged),
        failed=len(wrong),
        not_assessed=len(asked) - len(judged),
        note=note,
    )
    return level, wrong


def difference(ours: Answer, theirs: Answer) -> str:
    """The first element that differs, or the whole answers if one is a text, as words."""
    position = first_difference(ours, theirs)
    return f"{_shown(theirs, position)}, expected {_shown(ours, position)}"


def first_difference(ours: Answer, theirs: Answer) -> int | None:
    """Index of the first element that differs; None if one of both is not a sequence."""
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
