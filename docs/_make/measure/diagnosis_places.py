"""Faults at one place, and what servers show: how often they are named, or at all found.

``python -m measure.diagnosis_places --model seeded --places 40 --out docs/data/diagnosis-places-seeded.json``

Goes on where it stopped, as ``measure.diagnosis``, whose engines these are: the golden model with a fault and float32
noise of its own. ``placed``: faults at a layer, a matrix, an operation or a head, drawn by a hash of those that change
the trace; right: the fault is named with a place where it does the very same. ``http``: the fault named from the 20
likeliest log-probabilities. ``text``: whether the tokens written greedily, without log-probabilities, fail.
"""

import argparse
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from measure.diagnosis import MODEL_AREAS, Measurement
from measure.journal import Journal
from measure.report import lines, rounded, show
from tritgold.counter_random import random_bits
from tritgold.graph import operations
from tritgold_conformance.comparing.logits import log_softmax
from tritgold_conformance.comparing.next_tokens import Completion, judge_text, shown_rows
from tritgold_conformance.diagnosis.diagnose import diagnose_view
from tritgold_conformance.diagnosis.view import View
from tritgold_conformance.faults import FAULTS, fault
from tritgold_conformance.faults.fault import Fault, Mutant
from tritgold_conformance.faults.faulty_engine import FaultyEngine
from tritgold_conformance.faults.noise import noisy
from tritgold_conformance.faults.witnesses import MODELS
from tritgold_conformance.results.diagnosis import Diagnosis

SCHEMA = "tritgold.diagnosis_places/1"
LEVELS = ("operations", "trace", "statistics", "logits")
SHOWN = 20  # log-probabilities that a server shows


def report(model: str, tokens: int, places: int, journal: Journal | None = None) -> dict[str, Any]:
    """The measurement of one model."""
    m, journal = Measurement(model, tokens), journal or Journal()
    faults = [f for f in FAULTS.values() if f.area in MODEL_AREAS]
    placed = [row for rows in _placed(m, faults, places, journal) for row in rows]
    served = [journal.row((f.name, "served"), functools.partial(_served, m, f), "named") for f in faults]
    served = [row for row in served if row]
    http, text = ([row[f"{level}_right"] for row in served if row[f"{level}_visible"]] for level in ("http", "text"))
    return {
        "schema": SCHEMA,
        "model": model,
        "model_hash": m.golden.trace.model_hash,
        "tokens": tokens,
        "seconds": round(journal.seconds),
        "summary": {
            **{level: _summary([row for row in placed if row["level"] == level]) for level in LEVELS},
            "http": {"visible": len(http), "right": sum(http)},
            "text": {"engines": len(served), "differ": len(text), "found": sum(text)},
        },
        "placed": placed,
        "served": served,
    }


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    seen = [row for row in rows if row["visible"]]
    missed = [[row["fault"], *row["named"]] for row in seen if not row["right"]]
    fault_right = sum(row["fault_right"] for row in seen)
    return {
        "engines": len(rows), "visible": len(seen), "right": sum(row["right"] for row in seen),
        "fault_right": fault_right, "missed": missed,
    }  # fmt: skip


def _placed(m: Measurement, faults: list[Fault], count: int, journal: Journal) -> Iterator[list[dict[str, Any]]]:
    """Rows of so many faults at places, four levels each."""
    config = m.golden.checkpoint.config
    of_layers = [o for o in operations(config) if o.at.layer is not None]
    kinds = sorted({o.at.what for o in of_layers})
    number = found = 0
    drawn = set[str]()
    while found < count and number < 40 * count:
        number += 1
        lots = [int(lot) for lot in random_bits(11, np.arange(5 * number, 5 * number + 5, dtype=np.uint64))]
        layer = lots[2] % config.layers
        place = (
            f"layer={layer}", kinds[lots[3] % len(kinds)], of_layers[lots[3] % len(of_layers)].name,
            f"head={lots[4] % config.heads}",
        )[lots[1] % 4]  # fmt: skip
        name = f"{faults[lots[0] % len(faults)].name}@{place}"
        if name in drawn:
            continue
        drawn.add(name)
        rows = journal.row((name, "placed"), functools.partial(_rows, m, name, 5000 + number), "named")
        found += bool(rows)
        yield rows


def _rows(m: Measurement, name: str, seed: int) -> list[dict[str, Any]]:
    """A row a level; none where the model has no such place for the fault, or it changes nothing or everything."""
    planted = fault(name).apply(m.base)
    whole = fault(name.partition("@")[0]).apply(m.base)
    if planted is None or whole is None:
        return []
    own, trace = m.predictions.base, _trace(m, planted)
    if not _differ(trace, _trace(m, own)) or not _differ(trace, _trace(m, whole)):
        return []
    evidence, plain = m.evidence(noisy(planted, seed)), m.evidence(planted)
    return [_row(m, name, level, m.named(evidence, level), trace, plain) for level in LEVELS]


def _row(
    m: Measurement, name: str, level: str, found: Diagnosis, trace: dict[str, np.ndarray], plain: View
) -> dict[str, Any]:
    told = [one for named in found.faults[:1] for one in (named.fault, *named.same)]
    same = [one for one in told if (made := fault(one).apply(m.base)) and not _differ(_trace(m, made), trace)]
    right = bool(same) and len(found.faults) == 1
    return {
        "fault": name,
        "level": level,
        "named": [named.fault for named in found.faults],
        "distance": rounded(found.faults[0].distance) if found.faults else None,
        "verdict": found.verdict,
        "right": right,
        "fault_right": right or any(one.partition("@")[0] == name.partition("@")[0] for one in told),
        "visible": right or not m.named(plain, level, faults=[]).clean,
    }


def _trace(m: Measurement, mutant: Mutant) -> dict[str, np.ndarray]:
    with np.errstate(all="ignore"):
        return FaultyEngine(mutant, len(m.golden.tokens)).trace(m.golden.tokens).arrays


def _differ(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return any(
        not np.array_equal(one[n], other[n], equal_nan=True)
        for n in one.keys() | other.keys()
        if n in one and n in other
    )


def _served(m: Measurement, planted: Fault) -> dict[str, Any] | None:
    """What a server with the fault shows."""
    mutant = planted.apply(m.base)
    if mutant is None:
        return None
    logits = m.predictions.logits(noisy(mutant, 1 + list(FAULTS).index(planted.name)), "logits")
    if logits is None or not np.isfinite(logits).all() or logits.shape != m.golden.logits.shape:
        return None
    shown, alone = _completions(logits, SHOWN), _completions(logits, 0)
    view = View(m.golden, next_tokens=shown_rows(shown, m.golden.logits.shape), completions=shown)
    found = diagnose_view(view, "measured", "measured", predictions=m.predictions)
    told = [one for named in found.faults for one in (named.fault, *named.same)]
    return {
        "fault": planted.name,
        "named": [named.fault for named in found.faults],
        "verdict": found.verdict,
        "http_visible": bool(judge_text(m.golden, shown).failing),
        "http_right": len(found.faults) == 1 and planted.name in told,
        "text_visible": bool((logits.argmax(axis=1) != m.golden.logits.argmax(axis=1)).any()),
        "text_right": bool(judge_text(m.golden, alone).failing),
    }


def _completions(logits: np.ndarray, count: int) -> list[Completion | None]:
    found: list[Completion | None] = []
    for row in log_softmax(logits):
        best = np.argsort(-row, kind="stable")[: max(count, 1)].tolist()
        found.append((best[0], {i: float(row[i]) for i in best[:count]}))
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="seeded", choices=sorted(MODELS))
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--places", type=int, default=40)
    parser.add_argument("--out", type=Path, help="the report; stdout where it is not said, and then nothing is kept")
    given = parser.parse_args()
    kept = Journal.beside(given.out, {"model": given.model, "tokens": given.tokens})
    measured = report(given.model, given.tokens, given.places, journal=kept)
    if given.out:
        given.out.write_text(lines(measured) + "\n", encoding="utf-8")
        kept.close()
    else:
        show(measured)
