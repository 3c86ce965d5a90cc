"""Level accuracy, the weakest: is the engine right as often as the golden model, on the same questions?

Questions are paired: those that the golden model answers and the engine does not are lost, the others gained. Another
right engine loses and gains with equal probability, because only broken ties tell them apart. So the exact sign test
(McNemar) bounds how often a right engine is accused, and the level fails below that bound alone.
"""

from math import comb

from tritgold_conformance.comparing.compare import Comparison
from tritgold_conformance.golden.run import GoldenRun
from tritgold_conformance.judging.comparisons import lacks
from tritgold_conformance.questions.accuracy import Exam, exam_of
from tritgold_conformance.questions.evidence import Evidence
from tritgold_conformance.questions.exam import Answered
from tritgold_conformance.results.levels import WEAKEST
from tritgold_conformance.results.report import Level

CHANCE = 1e-3  # largest probability of accusing a right engine
LEAST = 10  # right answers of the golden model: so many losses without a gain are the fewest below CHANCE
WEAKER = "weaker than every other level: logits that are all a little wrong answer as well"
ALLOWED = f"losses that chance explains with a probability of {CHANCE:g} or more (exact sign test)"


def judge_accuracy(golden: GoldenRun, evidence: Evidence) -> tuple[Level, list[Comparison]]:
    """The level, and a Comparison if it fails, with the first question that was lost."""
    exam = exam_of(golden.checkpoint, evidence.depth, evidence.seed)
    if isinstance(exam, str):
        return lacks(exam), []
    theirs = _answers(exam, evidence)
    if not theirs:
        return lacks("the engine answers no questions: it gives no logits, and writes no text"), []
    ours = {n: exam.by_logits(golden.of_text(_text(exam, n)).logits, exam.items[n]).right for n in theirs}
    known = sum(ours.values())
    if known < LEAST:
        why = f"the golden model answers {known} of {len(ours)}: that fewer than {LEAST} are lost may be chance"
        return lacks(why), []
    lost = [n for n in sorted(theirs) if ours[n] and not theirs[n].right]
    gained = sum(answer.right and not ours[n] for n, answer in theirs.items())
    likely = chance(len(lost), gained)
    failed = likely < CHANCE
    note = f"{known - len(lost) + gained} of {len(theirs)} right, golden {known}: {len(lost)} lost, {gained} gained"
    note += f" (chance {likely:.2g})" if lost else ""
    wrong = []
    if failed:
        note += f"; first: {_shown(exam, lost[0], theirs[lost[0]])}"
        wrong = [Comparison(WEAKEST, "fails", len(theirs), differing=len(lost), what=note, why=ALLOWED)]
    level = Level(
        status="failed" if failed else "passed",
        compared=len(theirs),
        failed=len(lost) if failed else 0,
        not_assessed=len(exam.items) - len(theirs),
        note=f"{note}; {WEAKER}",
    )
    return level, wrong


def chance(lost: int, gained: int) -> float:
    """The probability of at least so many losses, if each of the discordant answers is lost or gained alike.

    >>> chance(10, 0) < CHANCE < chance(9, 0), chance(12, 2) > CHANCE, chance(0, 0)
    (True, True, 1.0)
    """
    discordant = lost + gained
    return sum(comb(discordant, n) for n in range(lost, discordant + 1)) / 2**discordant


def _answers(exam: Exam, evidence: Evidence) -> dict[int, Answered]:
    """The engine's answers by number. An error that it raised is wrong, and so is a question that it alone declines.

    HTTP errors are neither right nor wrong: they are left out.
    """
    found, declined = dict[int, Answered](), list[int]()
    for n, (label, item) in enumerate(zip(exam.labels, exam.items, strict=True)):
        if label in evidence.logits:
            found[n] = exam.by_logits(evidence.logits[label], item)
        elif label in evidence.answers:
            found[n] = exam.written(evidence.answers[label], item)
        elif evidence.refused.get(label):
            found[n] = Answered(False, f"raised: {evidence.refused[label]}")
        elif any(evidence.has(method) for method in ("prefill", "step", "generate")):
            declined.append(n)
    return found | dict.fromkeys(declined, Answered(False)) if found else {}


def _text(exam: Exam, number: int) -> list[int]:
    return [*exam.items[number].prompt, *exam.items[number].answer]


def _shown(exam: Exam, number: int, answer: Answered) -> str:
    """A question and its right answer, with the engine's if it wrote one."""
    question = exam.items[number].question
    written = "" if answer.text is None else f", not {answer.text.strip()!r}"
    return f"{question.prompt} {question.right}{written}"
