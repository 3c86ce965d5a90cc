"""The search for faults, one after the other: explain the first divergence, add that fault to the model, repeat."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from tritgold.trace_names import TraceName
from tritgold_conformance.diagnosis.divergence import divergence
from tritgold_conformance.diagnosis.per_operation import Local
from tritgold_conformance.diagnosis.placing import at_places
from tritgold_conformance.diagnosis.rules import Label, Match, Near, Scan
from tritgold_conformance.faults.fault import Fault, Mutant
from tritgold_conformance.results.diagnosis import Divergence, Named, Ranked

MOST = 4  # faults that are searched for in one engine
SHOWN = 10  # candidates in a ranking


@dataclass
class Found:
    """The state of a search. mutant: the golden model with the faults found so far. within: see Diagnosis."""

    mutant: Mutant
    faults: list[Named] = field(default_factory=list)
    unexplained: list[Divergence] = field(default_factory=list)
    ranking: list[Ranked] = field(default_factory=list)
    first: Divergence | None = None
    within: list[str] = field(default_factory=list)


def search_operations(local: Local, faults: Iterable[Fault]) -> Found:
    """Explain every wrong output, operation by operation, in execution order."""
    library, found, skip = list(faults), Found(local.base), set[Label]()
    failing = local.failing()
    while failing and len(found.faults) + len(found.unexplained) < MOST:
        first = failing[0]
        here = _divergence(local, first)
        found.first = found.first or here
        near = [_near(local, fault, found.mutant, first) for fault in library]
        explaining = [_completed(local, n, failing, skip) for n in near if n is not None and n.explains]
        matches = [m for m, spoils in explaining if not spoils]
        wholly = {m.fault.name: m.distance for m, _ in explaining}
        if not found.ranking:
            found.ranking = _ranking(near, {m.fault.name for m in matches})
        if not matches:
            spoiling = [m for m, spoils in explaining if spoils]
            moving = [n for n in near if n is not None and n.moves]
            matches = _placed(local, moving, spoiling, found.mutant, failing, skip)
            wholly |= {m.fault.name: m.distance for m in matches}
        pair = () if matches else _pair(local, [n for n in near if n is not None], found.mutant, failing, skip)
        if not matches and not pair:
            found.unexplained.append(here)
            skip |= {label for label in local.rules if _kind(label) == _kind(first)}
            failing = [label for label in failing if label not in skip]
            continue
        if matches:
            best = min(matches, key=lambda m: (len(m.scan.failing), m.distance))
            found.faults.append(_named(local, best, matches, near, wholly, first))
        else:
            best = pair[-1]
            found.faults += [_named(local, m, [m], [], {}, first) for m in pair]
        found.mutant = best.mutant
        failing = [label for label in best.scan.failing if label not in skip]
    return found


def _near(local: Local, fault: Fault, mutant: Mutant, first: Label) -> Near | None:
    """A candidate, replayed as far as the first divergence; None where the model has no place for it."""
    candidate = fault.apply(mutant)
    if candidate is None:
        return None
    scan = local.scan(candidate, first[0], until=first)
    found = scan.distances.get(first, float("inf"))
    explains = first in scan.distances and first not in scan.failing
    moves = found != local.off(first)
    return Near(fault, candidate, found, moves, explains)


def _completed(local: Local, n: Near, failing: list[Label], skip: set[Label]) -> tuple[Match, bool]:
    """A candidate that explains the first divergence, replayed to the end; and whether it spoils something else.

    Its distance is the largest over the outputs that it explains, or over those that it makes wrong.
    """
    scan, wrong = local.complete(n.mutant, skip), set(failing)
    spoilt = set(scan.failing) - wrong | ({failing[0]} & set(scan.failing))
    explained = wrong - set(scan.failing)
    worst = max((scan.distances.get(label, float("inf")) for label in spoilt or explained), default=0.0)
    return Match(n.fault, n.mutant, worst, scan), bool(spoilt)


def _placed(
    local: Local, near: list[Near], spoiling: list[Match], mutant: Mutant, failing: list[Label], skip: set[Label]
) -> list[Match]:
    """Faults at one place that explain the first divergence and spoil nothing."""
    found = []
    for fault in at_places(local, near, spoiling, mutant, failing):
        candidate = _near(local, fault, mutant, failing[0])
        if candidate is not None and candidate.explains:
            match, spoils = _completed(local, candidate, failing, skip)
            found += [] if spoils else [match]
    return found


def _pair(local: Local, near: list[Near], mutant: Mutant, failing: list[Label], skip: set[Label]) -> tuple[Match, ...]:
    """Two faults of one operation, where neither explains it alone: those that move the output, two by two."""
    first = failing[0]
    moving = [n for n in near if n.moves]
    wrong = set(failing)
    for a in moving:
        for b in moving:
            both = b.fault.apply(a.mutant) if a is not b else None
            if both is None:
                continue
            scan = local.scan(both, first[0], until=first)
            if first not in scan.distances or first in scan.failing:
                continue
            whole = local.complete(both, skip)
            if first in whole.failing or not set(whole.failing) <= wrong:
                continue
            worst = max((whole.distances.get(x, 0.0) for x in wrong - set(whole.failing)), default=0.0)
            return Match(a.fault, a.mutant, worst, Scan()), Match(b.fault, both, worst, whole)
    return ()


def _named(
    local: Local,
    best: Match,
    matches: list[Match],
    near: list[Near | None],
    wholly: dict[str, float],
    first: Label,
) -> Named:
    """wholly: distances of candidates that were replayed to the end."""
    same = [m.fault.name for m in matches if m is not best and m.scan.distances == best.scan.distances]
    others = [
        (n.fault.name, found)
        for n in near
        if n is not None and n.moves and n.fault.name not in (best.fault.name, *same)
        if np.isfinite(found := wholly.get(n.fault.name, n.distance))
    ]
    return Named(
        fault=best.fault.name,
        summary=best.fault.summary,
        level=first[0],
        at=first[1],
        distance=best.distance,
        golden=_finite(local.off(first)),
        same=same,
        next_best=min(others, key=lambda o: o[1], default=None),
        codes=local.codes() if TraceName.of(first[1]).role == "codes" else None,
    )


def _ranking(near: list[Near | None], explaining: set[str]) -> list[Ranked]:
    known = sorted((n for n in near if n is not None), key=lambda n: (n.fault.name not in explaining, n.distance))
    return [
        Ranked(
            fault=n.fault.name,
            distance=n.distance if np.isfinite(n.distance) else None,
            explains=n.fault.name in explaining,
        )
        for n in known[:SHOWN]
    ]


def _divergence(local: Local, label: Label) -> Divergence:
    rule = local.rules[label]
    return divergence(
        label[0], local.base, local.comparisons[label], local.golden_values[label], local.theirs(label), rule.tolerance
    )


def _kind(label: Label) -> str:
    """``layers.3.q.acc [extreme sums]`` -> ``q``: the same for all outputs of one operation in all layers."""
    return TraceName.of(label[1]).what


def _finite(x: float) -> float:
    return x if np.isfinite(x) else -1.0
