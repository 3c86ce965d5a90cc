"""Diagnosis over the whole library: how often each fault is named, from what an engine shows.

``python -m measure.diagnosis --model kjv-ar --out docs/data/diagnosis-kjv-ar.json``

Goes on where it stopped: rows stand in ``OUT.rows`` until all are there. ``--merge`` and ``--only``, for faults that
are new: their rows take their places in the report that is there, and its pairs and right engines stay. An engine is
the golden model with a fault and float32 noise of its own (``faults.noise``), so that no answer is equal to the last
bit and ties break. ``matrix``: for each fault and level the named fault, its distance, those that say the same.
``paired``: two faults of different areas in one engine. ``accused``: right engines, with each kind of noise, that were
told of a fault. A fault that a level does not show counts as invisible there and not as a miss: the golden model with
it, without noise, is then within what is allowed of the golden model.
"""

import argparse
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from measure.journal import Journal
from measure.report import lines, rounded, show
from tritgold.counter_random import random_bits
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.diagnosis.diagnose import diagnose_view
from tritgold_conformance.diagnosis.per_run import Predictions
from tritgold_conformance.diagnosis.view import View, view
from tritgold_conformance.engines.ask import ask
from tritgold_conformance.faults import FAULTS
from tritgold_conformance.faults.fault import Fault, Mutant
from tritgold_conformance.faults.faulty_engine import FaultyEngine
from tritgold_conformance.faults.noise import KINDS, noisy
from tritgold_conformance.faults.witnesses import MODELS
from tritgold_conformance.golden.run import GoldenRun, judging_tokens
from tritgold_conformance.results.diagnosis import Diagnosis

SCHEMA = "tritgold.diagnosis_matrix/2"
MODEL_AREAS = ("packing", "scale", "activation", "accumulator", "graph", "attention", "kv-cache", "architecture")
# What an engine may show: everything; activations and logits, no single operations; statistics; logits alone.
LEVELS = ("operations", "trace", "statistics", "logits")
PAIR_LEVELS = ("operations", "trace")
Picked = tuple[Fault, ...]


class Measurement:
    """One model, one input, and what its faulty siblings say of it."""

    def __init__(self, model: str, tokens: int) -> None:
        checkpoint = MODELS[model]()
        self.golden = GoldenRun.of(checkpoint, judging_tokens(tokens, checkpoint.config.vocab, seed=1))
        self.predictions = Predictions(self.golden)
        self.base = self.predictions.base
        self.visible = functools.cache(self._visible)

    def with_faults(self, faults: Picked) -> Mutant | None:
        """None where the model has no place for them."""
        mutant: Mutant | None = self.base
        for fault in faults:
            mutant = fault.apply(mutant) if mutant is not None else None
        return mutant

    def evidence(self, mutant: Mutant) -> View:
        """What an engine that is this mutant shows."""
        engine = EngineUnderTest(_Shown(mutant, len(self.golden.tokens)), checked=False)
        return view(self.golden, ask(engine, self.golden))

    def named(self, evidence: View, level: str, faults: list[Fault] | None = None) -> Diagnosis:
        """The diagnosis from a level. faults: the library, where none are given."""
        limited = evidence if level == "operations" else evidence.limited(level)
        return diagnose_view(limited, "measured", "measured", faults=faults, predictions=self.predictions)

    def _visible(self, faults: Picked, level: str) -> bool:
        """Whether the faults, without any noise, are seen at the level at all."""
        mutant = self.with_faults(faults)
        return mutant is not None and not self.named(self.evidence(mutant), level, faults=[]).clean

    def differ(self, pair: Picked) -> bool:
        """Whether an engine with both is another one than with either: the second may undo what the first did."""
        shown = [self._trace(faults) for faults in (pair, pair[:1], pair[1:])]
        both = shown[0]
        return all(any(not np.array_equal(both[n], one[n]) for n in both if n in one) for one in shown[1:])

    def _trace(self, faults: Picked) -> dict[str, np.ndarray]:
        mutant = self.with_faults(faults)
        assert mutant is not None
        with np.errstate(all="ignore"):
            return FaultyEngine(mutant, len(self.golden.tokens)).trace(self.golden.tokens).arrays


class _Shown(FaultyEngine):
    """Activations and logits, and no answers: those are another measurement's."""

    unpack = generate = diffuse = serve = encode = chat = stream = None  # type: ignore[assignment]


def report(
    model: str,
    tokens: int,
    pairs: int,
    noise_runs: int,
    only: list[str] | None = None,
    levels: tuple[str, ...] = LEVELS,
    journal: Journal | None = None,
) -> dict[str, Any]:
    """The measurement. only: some faults; levels: some of LEVELS; journal: rows that are there already."""
    m, journal = Measurement(model, tokens), journal or Journal()
    faults = [f for f in FAULTS.values() if f.area in MODEL_AREAS and (not only or f.name in only)]
    matrix = [row for row in _matrix(m, faults, levels, journal) if row]
    paired = list(_pairs(m, faults, pairs, journal))
    noise = [
        journal.row(("noise", run), functools.partial(_noise, m, run, levels), "accused") for run in range(noise_runs)
    ]
    return {
        "schema": SCHEMA,
        "model": model,
        "model_hash": m.golden.trace.model_hash,
        "tokens": tokens,
        "faults": len(faults),
        "seconds": round(journal.seconds),
        "summary": {level: _summary([row for row in matrix if row["level"] == level]) for level in levels},
        "pairs": {level: _pair_summary([row for row in paired if row["level"] == level]) for level in PAIR_LEVELS},
        "noise_runs": {kind: sum(row["kind"] == kind for row in noise) for kind in KINDS},
        "accused": [row for row in noise if row["accused"]],
        "matrix": matrix,
        "paired": paired,
    }


def merged(before: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """A report with the rows of some faults from another one of the same model and input."""
    if (before["model_hash"], before["tokens"]) != (new["model_hash"], new["tokens"]):
        raise ValueError("reports of different models or inputs cannot be merged")
    order = {name: number for number, name in enumerate(FAULTS)}
    fresh = {row["fault"] for row in new["matrix"]}
    matrix = [row for row in before["matrix"] if row["fault"] not in fresh] + new["matrix"]
    matrix.sort(key=lambda row: (order.get(row["fault"], -1), LEVELS.index(row["level"])))
    known = [fault for fault in FAULTS.values() if fault.area in MODEL_AREAS]
    summary = {level: _summary([row for row in matrix if row["level"] == level]) for level in LEVELS}
    seconds = before["seconds"] + new["seconds"]
    return {**before, "faults": len(known), "seconds": seconds, "summary": summary, "matrix": matrix}


def _matrix(m: Measurement, faults: list[Fault], levels: tuple[str, ...], journal: Journal) -> Iterator[dict[str, Any]]:
    numbers = {f.name: n for n, f in enumerate(f for f in FAULTS.values() if f.area in MODEL_AREAS)}
    for fault in faults:
        # An engine that nobody asks for is not made: what it shows is collected once for all levels.
        evidence = functools.cache(functools.partial(_evidence, m, fault, numbers[fault.name] + 1))
        for level in levels:
            row = functools.partial(_row, m, fault, level, evidence)
            yield journal.row((fault.name, level), row, "named")


def _evidence(m: Measurement, fault: Fault, seed: int) -> View | None:
    mutant = m.with_faults((fault,))
    return m.evidence(noisy(mutant, seed)) if mutant is not None else None


def _row(m: Measurement, fault: Fault, level: str, evidence: Any) -> dict[str, Any] | None:
    if evidence() is None:
        return None
    found = m.named(evidence(), level)
    names = [named.fault for named in found.faults]
    same = [name for named in found.faults for name in named.same]
    right = fault.name in [*names, *same] and len(names) == 1
    return {
        "fault": fault.name,
        "area": fault.area,
        "level": level,
        "named": names,
        "same": same,
        "distance": rounded(found.faults[0].distance) if found.faults else None,
        "verdict": found.verdict,
        "right": right,
        "first": right and names == [fault.name],
        "visible": right or m.visible((fault,), level),
    }


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """top_1: named alone, or among faults that say exactly the same; strict: named first."""
    seen = [row for row in rows if row["visible"]]
    count = max(len(seen), 1)
    return {
        "engines": len(rows),
        "visible": len(seen),
        "right": sum(row["right"] for row in seen),
        "top_1": rounded(sum(row["right"] for row in seen) / count),
        "strict": rounded(sum(row["first"] for row in seen) / count),
        "none_of_the_known": sum(row["verdict"] == "none of the known faults" for row in seen),
        "missed": [row["fault"] for row in seen if not row["right"]],
        "invisible": [row["fault"] for row in rows if not row["visible"]],
    }


def _pairs(m: Measurement, faults: list[Fault], count: int, journal: Journal) -> Iterator[dict[str, Any]]:
    """Pairs of faults of different areas, drawn by a hash; each shows in a trace, and so do both together."""
    drawn: set[frozenset[Fault]] = set()
    number = 0
    while len(drawn) < count and number < 50 * count and len(faults) > 1:
        number += 1
        lots = random_bits(7, np.array([2 * number, 2 * number + 1], np.uint64))
        a, b = (faults[int(lot) % len(faults)] for lot in lots)
        if a.area == b.area or frozenset((a, b)) in drawn:
            continue
        rows = journal.row((a.name, b.name, "pair"), functools.partial(_pair, m, (a, b), 1000 + number), "both")
        if rows:
            drawn.add(frozenset((a, b)))
            yield from rows


def _pair(m: Measurement, pair: Picked, seed: int) -> list[dict[str, Any]]:
    """A row for each level; none where one of the two does not show."""
    mutant = m.with_faults(pair)
    if mutant is None or not all(m.visible((f,), "trace") for f in pair) or not m.differ(pair):
        return []
    evidence = m.evidence(noisy(mutant, seed))
    return [_pair_row(pair, level, m.named(evidence, level)) for level in PAIR_LEVELS]


def _pair_row(pair: Picked, level: str, found: Diagnosis) -> dict[str, Any]:
    """both: each is named, or says exactly the same as one that is, and nothing else is."""
    groups = [{named.fault, *named.same} for named in found.faults]
    first, second = (f.name for f in pair)
    ways = [(x, y) for x in range(len(groups)) for y in range(len(groups)) if x != y]
    return {
        "pair": [first, second],
        "level": level,
        "named": [named.fault for named in found.faults],
        "same": sorted(name for named in found.faults for name in named.same),
        "verdict": found.verdict,
        "both": len(groups) == 2 and any(first in groups[x] and second in groups[y] for x, y in ways),
        "one": any(first in group or second in group for group in groups),
    }


def _pair_summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    count = max(len(rows), 1)
    return {
        "pairs": len(rows),
        "both": rounded(sum(row["both"] for row in rows) / count),
        "at_least_one": rounded(sum(row["one"] for row in rows) / count),
        "missed": [row["pair"] for row in rows if not row["both"]],
    }


def _noise(m: Measurement, run: int, levels: tuple[str, ...]) -> dict[str, Any]:
    """A right engine; accused: the levels at which it is told of a fault or of a divergence."""
    kind = list(KINDS)[run % len(KINDS)]
    evidence = m.evidence(KINDS[kind](m.base, 100_000 + run))
    return {
        "run": run,
        "kind": kind,
        "accused": [level for level in levels if not m.named(evidence, level).clean],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="kjv-ar", choices=sorted(MODELS))
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--noise-runs", type=int, default=200)
    parser.add_argument("--only", nargs="*", help="some faults alone")
    parser.add_argument("--area", choices=MODEL_AREAS, help="the faults of one area alone")
    parser.add_argument("--levels", nargs="*", choices=LEVELS, default=LEVELS)
    parser.add_argument("--merge", action="store_true", help="put the rows of --only into the report that is there")
    parser.add_argument("--out", type=Path, help="the report; stdout where it is not said, and then nothing is kept")
    given = parser.parse_args()
    kept = Journal.beside(given.out, {"model": given.model, "tokens": given.tokens})
    only = given.only or ([f.name for f in FAULTS.values() if f.area == given.area] if given.area else None)
    measured = report(given.model, given.tokens, given.pairs, given.noise_runs, only, tuple(given.levels), journal=kept)
    if given.merge:
        measured = merged(json.loads(given.out.read_text(encoding="utf-8")), measured)
    if given.out:
        given.out.write_text(lines(measured) + "\n", encoding="utf-8")
        kept.close()
    else:
        show(measured)
