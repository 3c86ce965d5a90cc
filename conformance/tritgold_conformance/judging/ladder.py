"""Levels lengths, long_state, vocabulary, pieces, sessions: logits of each session of ``questions.ladder``.

Each session is compared with the golden logits of its text, with ties followed as for the judged text; what explains a
long prompt is tried first on its prefixes. If the logits of the judged text fail, the engine is wrong already, and
these levels are not assessed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tritgold_conformance.comparing.compare import Comparison
from tritgold_conformance.comparing.logits import Explained, judge_rows, moved_by
from tritgold_conformance.comparing.tie_search import FEW_TRIALS, MAX_TRIALS
from tritgold_conformance.contract.session import cuts
from tritgold_conformance.golden.run import GoldenRun
from tritgold_conformance.judging.comparisons import lacks
from tritgold_conformance.questions.evidence import Evidence
from tritgold_conformance.questions.ladder import LADDER_LEVELS, Ladder, Rung, ladder_of
from tritgold_conformance.results.report import Level

# Failing sessions after which no ties are tried, to save time: a right one with a broken tie may then be called wrong.
FEW_SEARCHED = 20
DECLINED = "gave no logits, which it gives in other sessions"


@dataclass
class _Text:
    """A text with its golden run, and the explanations of the engine's logits on it so far."""

    golden: GoldenRun
    known: list[Explained] = field(default_factory=list)


@dataclass
class _Found:
    """The counts of a level so far. worst: largest error of a row, relative to its largest logit."""

    sessions: int = 0
    rows: int = 0
    absent: int = 0
    worst: float = 0.0
    ties: int = 0
    weak: int = 0  # sessions that were only compared within the golden model's own spread
    moved_by: str = ""  # the cause of this spread
    failing: list[Comparison] = field(default_factory=list)


def judge_ladder(
    golden: GoldenRun, evidence: Evidence, known: list[Explained], failed: bool
) -> tuple[dict[str, Level], list[Comparison]]:
    """The levels and the failing sessions. known: explanations of the judged text. failed: its logits are wrong."""
    ladder = ladder_of(golden.checkpoint.config, golden.tokens, evidence.depth, evidence.seed)
    if ladder is None:
        return {name: lacks("one text alone was asked") for name in LADDER_LEVELS}, []
    if failed:
        return {name: lacks("the logits of the judged text are wrong already") for name in LADDER_LEVELS}, []
    if not any(evidence.has(method) for method in ("prefill", "step")):
        return {name: lacks("the engine has no prefill() and no step()") for name in LADDER_LEVELS}, []
    texts: dict[int, _Text] = {0: _Text(golden, list(known))}
    found = {name: _Found(moved_by=moved_by(golden)) for name in LADDER_LEVELS}
    kinds = answered_kinds(evidence, ladder)
    broken = 0
    for rung in ladder.rungs:
        of, name = found[rung.level], rung.session.id
        if name in evidence.logits:
            broken += _judge(of, rung, evidence, texts, ladder, trials=_trials(broken))
        elif message := evidence.refused.get(name):
            of.failing.append(Comparison(name, "fails", 1, what=f"raised: {message}"))
        elif name in evidence.refused and rung.session.kind in kinds:
            of.failing.append(Comparison(name, "fails", 1, what=DECLINED))
        else:
            of.absent += 1
    return {name: _level(of) for name, of in found.items()}, [c for of in found.values() for c in of.failing]


def answered_kinds(evidence: Evidence, ladder: Ladder) -> set[tuple[bool, bool]]:
    """The values of ``Session.kind`` for which the engine has answered at least one session."""
    answered = {rung.session.kind for rung in ladder.rungs if rung.session.id in evidence.logits}
    main = {"logits": (False, False), "continued": (True, bool(cuts(len(evidence.tokens))[0]) and evidence.has("step"))}
    return answered | {kind for path, kind in {**main, "steps": (False, True)}.items() if path in evidence.logits}


def _trials(broken: int) -> int:
    """Sets of ties that are tried at a position, after so many sessions that failed."""
    return MAX_TRIALS if not broken else FEW_TRIALS if broken <= FEW_SEARCHED else 0


def _judge(of: _Found, rung: Rung, evidence: Evidence, texts: dict[int, _Text], ladder: Ladder, trials: int) -> bool:
    """Judge one session; returns whether it fails."""
    if rung.text not in texts:
        texts[rung.text] = _Text(texts[0].golden.of_text(ladder.texts[rung.text]))
    text, count = texts[rung.text], len(rung.session.tokens)
    known = [why.first(count) for why in text.known if len(why.logits) >= count]
    rows = judge_rows(text.golden.prefix(count), evidence.logits[rung.session.id], known, trials)
    of.sessions += 1
    of.rows += count
    if rows.problem:
        wrong = int(rows.failing.sum())
        of.failing.append(Comparison(rung.session.id, "fails", count, differing=wrong, what=rows.problem))
        return True
    assert rows.why is not None
    of.worst, of.ties = max(of.worst, rows.worst), of.ties + len(rows.why.ties)
    of.weak += rows.why.allowed is not None
    if rows.why.ties or rows.why.allowed is not None:
        text.known.append(rows.why)
    return False


def _level(of: _Found) -> Level:
    judged = of.sessions + sum(c.compared == 1 for c in of.failing)
    return Level(
        status="failed" if of.failing else "passed" if judged else "not assessed",
        compared=judged,
        failed=len(of.failing),
        not_assessed=of.absent,
        note="; ".join(_notes(of)),
    )


def _notes(of: _Found) -> Iterator[str]:
    if of.failing:
        yield f"first: {of.failing[0].name}: {of.failing[0].what}"
    elif of.sessions:
        yield f"{of.rows} rows, at most {of.worst:.1e} of the largest logit"
        if of.ties:
            yield f"broken ties followed: {of.ties}"
        if of.weak:
            yield f"{of.weak} sessions held to what {of.moved_by} do to the golden model's own logits"
    else:
        yield "there was nothing to ask"
