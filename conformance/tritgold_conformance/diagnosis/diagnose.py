"""diagnose: finds the faults of an engine from its evidence, from the most precise level to the least precise."""

from collections.abc import Callable, Iterable

import numpy as np

from tritgold_conformance.comparing.activation_statistics import moments_distance
from tritgold_conformance.comparing.compare import refused
from tritgold_conformance.diagnosis.behaviours import gives, search_answers
from tritgold_conformance.diagnosis.divergence import divergence
from tritgold_conformance.diagnosis.level_search import moved
from tritgold_conformance.diagnosis.per_operation import Local
from tritgold_conformance.diagnosis.per_run import PATHS, Predictions
from tritgold_conformance.diagnosis.search import Found, search_operations
from tritgold_conformance.diagnosis.view import View, view
from tritgold_conformance.diagnosis.whole_runs import explain_whole_runs
from tritgold_conformance.faults import FAULTS
from tritgold_conformance.faults.fault import Fault, Mutant
from tritgold_conformance.golden.run import GoldenRun
from tritgold_conformance.questions.evidence import Evidence
from tritgold_conformance.questions.text_and_bytes import answer_of
from tritgold_conformance.results.diagnosis import Diagnosis, Verdict

Say = Callable[[str], None]


def diagnose(
    golden: GoldenRun,
    evidence: Evidence,
    model: str,
    level: str | None = None,
    faults: Iterable[Fault] | None = None,
    unseen: bool = True,
    say: Say = lambda _: None,
) -> Diagnosis:
    """Diagnose an engine from its answers. A pure function: ``engines.ask`` asks the engine.

    level: the most precise level to use (``operations``, ``trace``, ``statistics``, ``logits``); None: all that exist.
    unseen: list the faults that this run could not have shown; costs a pass for each fault.
    """
    seen = view(golden, evidence)
    if level is not None:
        seen = seen.limited(level)
    return diagnose_view(seen, evidence.name, model, faults, unseen, say)


def diagnose_view(
    evidence: View,
    engine: str,
    model: str,
    faults: Iterable[Fault] | None = None,
    unseen: bool = False,
    say: Say = lambda _: None,
    predictions: Predictions | None = None,
) -> Diagnosis:
    """The same from a view. faults: the library by default.

    predictions: of an earlier diagnosis with the same model and input, to be used again.
    """
    predictions = predictions or Predictions(evidence.golden)
    library = list(FAULTS.values() if faults is None else faults)
    local = Local(evidence, predictions.base, predictions.tolerances)
    say("candidates, operation by operation")
    found = search_operations(local, library) if local.sources else Found(local.base)
    found.within += local.passed_over()
    if not found.unexplained:
        explain_whole_runs(evidence, found, library, predictions, say)
    if not found.unexplained and evidence.answers:
        say("answers")
        search_answers(evidence, found, library)
    _raised(evidence, found)
    could_not, no_place = (None, None)
    if unseen:
        say("faults that this run could not have shown")
        could_not, no_place = _unseen(local, library, predictions)
    return Diagnosis(
        verdict=_verdict(evidence, found),
        engine=engine,
        model=model,
        model_hash=evidence.golden.trace.model_hash,
        tokens=evidence.golden.tokens,
        levels=evidence.levels,
        first_divergence=found.first,
        faults=found.faults,
        unexplained=found.unexplained,
        ranking=found.ranking,
        could_not_see=could_not,
        no_place=no_place,
        within=found.within,
    )


def _raised(evidence: View, found: Found) -> None:
    """Report the first operation that raised as unexplained: no known fault raises, and its output is unknown."""
    if not evidence.raised:
        return
    name, message = next(iter(evidence.raised.items()))
    plain, _, label = name.partition(" [")
    comparison = refused(name, evidence.golden.trace[plain], message)
    nothing = np.zeros(0)
    here = divergence("edge_cases" if label else "operations", found.mutant, comparison, nothing, nothing, None)
    found.first = found.first or here
    found.unexplained.append(here)


def _verdict(evidence: View, found: Found) -> Verdict:
    if found.unexplained:
        return "named in part" if found.faults else "none of the known faults"
    if not evidence.levels:
        return "nothing was checked"
    if found.faults:
        return "named"
    return "nothing found" if found.within else "nothing to explain"


def _unseen(local: Local, library: list[Fault], predictions: Predictions) -> tuple[list[str], list[str]]:
    """(faults that this run could not have shown, faults that the model cannot have)."""
    could_not, no_place = [], []
    evidence = local.evidence
    paths = [p for p in PATHS if getattr(evidence, p) is not None]
    if not paths and evidence.next_tokens is not None:
        paths = ["logits"]  # next tokens are the most likely tokens of the logits
    golden = {p: predictions.logits(local.base, p) for p in paths}
    right = {q.label: answer_of(local.base, q) for q, _ in evidence.answers}
    names = [] if evidence.trace else list(evidence.statistics)
    own = predictions.statistics(local.base) if names else {}
    ours = {n: np.where(np.isnan(evidence.statistics[n]), np.nan, own[n]) for n in names}  # only the given moments
    allowed = predictions.statistics_allowed(names) if names else np.zeros(0)

    def shown(mutant: Mutant) -> bool:
        return bool((moments_distance(predictions.statistics(mutant), ours, predictions.few) > allowed).any())

    for fault in library:
        mutant = fault.apply(local.base)
        if mutant is None:
            no_place.append(fault.name)
        elif not (
            local.moves(mutant)
            or shown(mutant)
            or any(moved(predictions.logits(mutant, p), golden[p]) for p in paths)
            or any(not gives(mutant, (q, right[q.label])) for q, _ in evidence.answers)
        ):
            could_not.append(fault.name)
    return could_not, no_place
