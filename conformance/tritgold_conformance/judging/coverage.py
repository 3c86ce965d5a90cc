"""What a verdict covers: counts of what was requested, answered and judged."""

from collections import Counter
from collections.abc import Iterable

from tritgold_conformance.contract.session import Session
from tritgold_conformance.golden.run import GoldenRun
from tritgold_conformance.questions.asked import main_sessions
from tritgold_conformance.questions.evidence import BEHAVIOURS, Evidence
from tritgold_conformance.questions.ladder import ladder_of
from tritgold_conformance.results.coverage import Coverage
from tritgold_conformance.results.levels import WEAKEST
from tritgold_conformance.results.report import Level

LOOPS = ("generate", "serve", "diffuse")


def coverage(golden: GoldenRun, evidence: Evidence, levels: dict[str, Level]) -> Coverage:
    """The coverage of one judgement."""
    config = golden.checkpoint.config
    judged = {name for name, level in levels.items() if level.status != "not assessed"}
    sessions = list(_answered(golden, evidence, judged))
    texts = [session.tokens for _, session in sessions]
    if judged & {"operations", "statistics", "trace", "next_tokens"}:
        texts.append(golden.tokens)
    read = {token for text in texts for token in text}
    shown = {token for completion in evidence.next_tokens if completion is not None for token in completion[1]}
    alone = [len(s.tokens) for _, s in sessions if s.calls == ("prefill",)]
    prompts = Counter(tuple(s.tokens) for _, s in sessions if s.calls == ("prefill",))
    calls = Counter(call for _, s in sessions for call in s.calls)
    kinds = Counter(level for level, _ in sessions)
    return Coverage(
        vocab=config.vocab,
        context=config.context,
        ids_read=len(read),
        ids_stepped=len({token for _, session in sessions for token in session.stepped}),
        ids_scored=config.vocab if sessions else len(shown),
        positions=max(map(len, texts), default=0),
        lengths=sorted(set(alone)),
        texts=len(_different(texts)),
        prefills=calls["prefill"],
        steps=calls["step"],
        pieces=kinds["pieces"] + kinds["continued"],
        sessions=kinds["sessions"],
        repeats=max(prompts.values(), default=0),
        in_turns=any(session.beside for _, session in sessions),
        loops=[name for name in LOOPS if name in judged],
        text=[name for name in BEHAVIOURS if name in judged and name not in LOOPS],
        questions=levels[WEAKEST].compared,
        timed="timed" in judged,
        depth=evidence.depth,
        seed=evidence.seed,
        missing=[name for name in levels if name not in judged and name != "timed"],
    )


def _answered(golden: GoldenRun, evidence: Evidence, judged: set[str]) -> Iterable[tuple[str, Session]]:
    """(level, session) of every session that has logits and was judged."""
    for session in main_sessions(golden.tokens, evidence.has):
        level = {"prefill": "logits"}.get(session.id, session.id)
        if level in evidence.logits and level in judged:
            yield level, session
    ladder = ladder_of(golden.checkpoint.config, golden.tokens, evidence.depth, evidence.seed)
    if ladder is not None:
        for rung in ladder.rungs:
            if rung.session.id in evidence.logits and rung.level in judged:
                yield rung.level, rung.session


def _different(texts: list[list[int]]) -> list[tuple[int, ...]]:
    """Texts that are not the beginning of another text."""
    found: list[tuple[int, ...]] = []
    for text in sorted(map(tuple, texts), key=len, reverse=True):
        if not any(longer[: len(text)] == text for longer in found):
            found.append(text)
    return found
