"""Diagnosis over the whole library: how often each fault is named, from what an engine shows.

``python -m tritgold_conformance.measurements.diagnosis [--model kjv-ar] [--tokens 40] [--pairs 100] [--noise-runs 100]
> docs/data/diagnosis-kjv-ar.json``: an hour on two cores for everything.

An engine is the golden model with a fault and float noise of its own (``faults.noise``), so that no answer is equal to
the last bit and ties break. ``matrix``: for each fault and level the named fault, its distance, those that say the
same.
``pairs``: two faults of different areas in one engine. ``accused``: right engines with noise that were told of a fault.
A fault that a level provably or measurably does not show counts as ``invisible`` there and not as a miss: the golden
model with it, without noise, is then within what is allowed of the golden model.
"""

import argparse
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from tritgold.counter_random import random_bits
from tritgold_conformance.diagnosis.answer import Diagnosis
from tritgold_conformance.diagnosis.diagnose import diagnose_evidence
from tritgold_conformance.diagnosis.evidence import Evidence, collect
from tritgold_conformance.diagnosis.whole import Predictions
from tritgold_conformance.engine import Candidate
from tritgold_conformance.faults import FAULTS
from tritgold_conformance.faults.fault import Fault, Subject
from tritgold_conformance.faults.faulty_engine import FaultyEngine
from tritgold_conformance.faults.noise import noisy
from tritgold_conformance.faults.witnesses import MODELS
from tritgold_conformance.golden import GoldenRun, judging_tokens
from tritgold_conformance.measurements.report import rounded, show

SCHEMA = "tritgold.diagnosis_matrix/1"
MODEL_AREAS = ("packing", "scale", "activation", "accumulator", "graph", "attention", "kv-cache")
# What an engine may show: everything; activations and logits, no single operations; statistics; logits alone.
LEVELS = ("operations", "trace", "statistics", "logits")
Picked = tuple[Fault, ...]


class Measurement:
    """One model, one input, and what its faulty siblings say of it."""

    def __init__(self, model: str, tokens: int) -> None:
        checkpoint = MODELS[model]()
        self.golden = GoldenRun.of(checkpoint, judging_tokens(tokens, checkpoint.config.vocab, seed=1))
        self.base = Subject(checkpoint)
        self.predictions = Predictions(self.golden.tokens)

    def evidence(self, faults: Picked, seed: int) -> Evidence | None:
        """Of an engine with these faults and noise; None where the model has no place for them."""
        subject: Subject | None = self.base
        for fault in faults:
            subject = fault.apply(subject) if subject is not None else None
        if subject is None:
            return None
        return collect(self.golden, Candidate(_Shown(noisy(subject, seed), len(self.golden.tokens))))

    def named(self, evidence: Evidence, level: str) -> Diagnosis:
        """The diagnosis from a level."""
        limited = evidence if level == "operations" else evidence.limited(level)
        return diagnose_evidence(limited, "measured", "measured", predictions=self.predictions)

    def visible(self, faults: Picked, level: str) -> bool:
        """Whether the fault, without any noise, is seen at the level at all."""
        subject = self.base
        for fault in faults:
            subject = fault.apply(subject) or subject
        quiet = collect(self.golden, Candidate(_Shown(subject, len(self.golden.tokens))))
        limited = quiet if level == "operations" else quiet.limited(level)
        return (
            diagnose_evidence(limited, "", "", faults=[], predictions=self.predictions).verdict != "nothing to explain"
        )


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
) -> dict[str, Any]:
    """The measurement. only: some faults; levels: some of LEVELS."""
    m = Measurement(model, tokens)
    faults = [f for f in FAULTS.values() if f.area in MODEL_AREAS and (not only or f.name in only)]
    matrix = list(_matrix(m, faults, levels))
    paired = list(_pairs(m, faults, pairs))
    accused = [run for run in range(noise_runs) if _accused(m, run, levels)]
    return {
        "schema": SCHEMA,
        "model": model,
        "model_hash": m.golden.trace.model_hash,
        "tokens": tokens,
        "faults": len(faults),
        "summary": {level: _summary([row for row in matrix if row["level"] == level]) for level in levels},
        "pairs": _pair_summary(paired),
        "noise_runs": noise_runs,
        "accused": len(accused),
        "matrix": matrix,
        "paired": paired,
    }


def _matrix(m: Measurement, faults: list[Fault], levels: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for number, fault in enumerate(faults):
        evidence = m.evidence((fault,), seed=number + 1)
        if evidence is None:
            continue
        for level in levels:
            found = m.named(evidence, level)
            names = [named.fault for named in found.faults]
            same = [name for named in found.faults for name in named.same]
            right = fault.name in [*names, *same] and len(names) == 1
            print(f"{fault.name} {level}: {', '.join(names) or found.verdict}", file=sys.stderr, flush=True)
            yield {
                "fault": fault.name,
                "area": fault.area,
                "level": level,
                "named": names,
                "same": same,
                "distance": rounded(found.faults[0].distance) if found.faults else None,
                "verdict": found.verdict,
                "right": right,
                "first": names[:1] == [fault.name] and len(names) == 1,
                "visible": right or m.visible((fault,), level),
            }


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """top_1: named alone, or among faults that say exactly the same; strict: named first."""
    seen = [row for row in rows if row["visible"]]
    count = max(len(seen), 1)
    return {
        "engines": len(rows),
        "visible": len(seen),
        "top_1": rounded(sum(row["right"] for row in seen) / count),
        "strict": rounded(sum(row["first"] for row in seen) / count),
        "none_of_the_known": sum(row["verdict"] == "none of the known faults" for row in seen),
        "missed": [row["fault"] for row in seen if not row["right"]],
        "invisible": [row["fault"] for row in rows if not row["visible"]],
    }


def _pairs(m: Measurement, faults: list[Fault], count: int) -> Iterator[dict[str, Any]]:
    """Pairs of faults of different areas, drawn by a hash; both of a pair are visible in a trace by themselves."""
    drawn: set[tuple[str, str]] = set()
    number = 0
    while len(drawn) < count and number < 50 * count and len(faults) > 1:
        number += 1
        lots = random_bits(7, np.array([2 * number, 2 * number + 1], np.uint64))
        a, b = (faults[int(lot) % len(faults)] for lot in lots)
        if a.area == b.area or (a.name, b.name) in drawn or (b.name, a.name) in drawn:
            continue
        evidence = m.evidence((a, b), seed=1000 + number)
        if evidence is None or not all(m.visible((f,), "trace") for f in (a, b)):
            continue
        drawn.add((a.name, b.name))
        found = m.named(evidence, "operations")
        names = {named.fault for named in found.faults}
        same = {name for named in found.faults for name in named.same}
        yield {
            "pair": [a.name, b.name],
            "named": [named.fault for named in found.faults],
            "same": sorted(same),
            "both": {a.name, b.name} <= names | same and len(names) == 2,
            "one": bool({a.name, b.name} & (names | same)),
        }


def _pair_summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    count = max(len(rows), 1)
    return {
        "pairs": len(rows),
        "both": rounded(sum(row["both"] for row in rows) / count),
        "at_least_one": rounded(sum(row["one"] for row in rows) / count),
        "missed": [row["pair"] for row in rows if not row["both"]],
    }


def _accused(m: Measurement, run: int, levels: tuple[str, ...]) -> bool:
    evidence = m.evidence((), seed=100_000 + run)
    assert evidence is not None
    return any(m.named(evidence, level).verdict != "nothing to explain" for level in levels)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="kjv-ar", choices=sorted(MODELS))
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--noise-runs", type=int, default=100)
    parser.add_argument("--only", nargs="*", help="some faults alone")
    parser.add_argument("--levels", nargs="*", choices=LEVELS, default=LEVELS)
    given = parser.parse_args()
    show(report(given.model, given.tokens, given.pairs, given.noise_runs, given.only, tuple(given.levels)))
