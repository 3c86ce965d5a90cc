"""Explains whole runs: tries each fault of the library, and pairs, on statistics and on the logits of each path."""

from collections.abc import Callable

from tritgold_conformance.comparing.logits import LOGIT_NOISE
from tritgold_conformance.comparing.ties import first_off
from tritgold_conformance.diagnosis.level_search import LevelSearch
from tritgold_conformance.diagnosis.per_run import PATHS, Predictions
from tritgold_conformance.diagnosis.search import MOST, Found
from tritgold_conformance.diagnosis.view import View
from tritgold_conformance.faults.fault import Fault

Say = Callable[[str], None]


def explain_whole_runs(evidence: View, found: Found, library: list[Fault], predictions: Predictions, say: Say) -> None:
    """Explain statistics, if there is no trace, then logits of every path, after the faults found so far."""
    levels = ["statistics"] if evidence.statistics and not evidence.trace else []
    paths = [p for p in PATHS if getattr(evidence, p) is not None]
    if not paths and not evidence.trace and evidence.next_tokens is not None:
        paths = ["next_tokens"]
    for level in [*levels, *paths]:
        if _is_traced(evidence, level):
            continue
        say(f"whole runs: {level}")
        judge = LevelSearch(evidence, level, predictions)
        while not judge.passes(found):
            if len(found.faults) + len(found.unexplained) >= MOST or not judge.explain(found, library):
                here = judge.divergence(found.mutant)
                found.first = found.first or here
                found.unexplained.append(here)
                return


def _is_traced(evidence: View, path: str) -> bool:
    """Whether a path's logits are those of a complete trace, whose operations have all been explained."""
    if path not in PATHS or not evidence.whole_trace():
        return False
    theirs, shown = getattr(evidence, path), evidence.trace["logits"]
    return theirs.shape == shown.shape and first_off(shown, theirs, LOGIT_NOISE, 0) is None
