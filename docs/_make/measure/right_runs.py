"""Right engines over models, texts, lengths and policies, by the judge: how many runs, and how many were accused.

``python -m measure.right_runs --rounds 185 --out docs/data/right-runs.json``

The engines are those of tests/adversary/right, in plain NumPy. A round is a small model of its own seed and shape, and
a text of its own length; each right engine reads it, and all levels that it gives are judged: those of float32 in each
round, those that declare another policy in every third.
Goes on where it stopped: rounds stand in ``OUT.rows`` until all are there.
"""

import argparse
import contextlib
import sys
import tempfile
import time
import warnings
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from measure.journal import Journal
from measure.report import lines, rounded, show
from tritgold.checkpoint import open_checkpoint
from tritgold.counter_random import random_bits
from tritgold.golden.seeded import Shape, write_seeded_model
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.engines.ask import ask
from tritgold_conformance.faults.quick import in_memory
from tritgold_conformance.golden.run import GoldenRun, judging_tokens
from tritgold_conformance.judging.judge import judge
from tritgold_conformance.policies import named_policy

ADVERSARY = Path(__file__).parents[3] / "tests" / "adversary"
SCHEMA = "tritgold.right_runs/1"
SHAPES = (
    {"hidden": 64, "inter": 96, "layers": 2, "heads": 4, "kv_heads": 2},
    {"hidden": 64, "inter": 128, "layers": 1, "heads": 2, "kv_heads": 1},
    {"hidden": 32, "inter": 96, "layers": 1, "heads": 4, "kv_heads": 4},
    {"hidden": 96, "inter": 160, "layers": 1, "heads": 3, "kv_heads": 1},
)
LENGTHS = (1, 2, 3, 5, 8, 8, 13, 13, 20, 47)
FIRST = 30_000  # seed of the first round's model


def right_engines() -> dict[str, type]:
    """By name: the right ones that read any model."""
    sys.path.insert(0, str(ADVERSARY))
    from registry import all_entries  # type: ignore[import-not-found]

    return {name: e.engine for name, e in all_entries().items() if e.group == "right" and e.model == "seeded"}


def one_round(number: int, made: dict[str, type]) -> dict[str, Any]:
    """runs: of how many engines, by policy. accused: (engine, level, note) of those that do not conform."""
    lots = [int(lot) for lot in random_bits(17, np.arange(2 * number, 2 * number + 2, dtype=np.uint64))]
    shape, count = SHAPES[lots[0] % len(SHAPES)], LENGTHS[lots[1] % len(LENGTHS)]
    runs, accused = Counter[str](), list[list[str]]()
    with tempfile.TemporaryDirectory(prefix="tritgold-") as folder:
        write_seeded_model(Path(folder), Shape(seed=FIRST + number, context=64, **shape))
        checkpoint = in_memory(open_checkpoint(folder))
        tokens = judging_tokens(count, checkpoint.config.vocab, number)
        for policy, names in _by_policy(made, number).items():
            if "kv-q8_0" in policy and checkpoint.config.kv_heads * checkpoint.config.head_dim % 32:
                continue  # rows of keys that are no whole blocks
            run = GoldenRun.of(checkpoint, tokens, policy=named_policy(policy))
            for name in names:
                report = judge(run, ask(EngineUnderTest(made[name](folder), config=checkpoint.config), run), "seeded")
                accused += [[name, level, of.note] for level, of in report.levels.items() if of.status == "failed"]
            runs[policy] += len(names)
    return {"round": number, "tokens": count, **shape, "runs": dict(runs), "accused": accused}


def _by_policy(made: dict[str, type], number: int) -> dict[str, list[str]]:
    """Names of engines by policy: all of float32, and of the others, whose golden side is dear, every third."""
    found: dict[str, list[str]] = {}
    for name, engine in made.items():
        found.setdefault(named_policy(getattr(engine, "policy", "float32")).name, []).append(name)
    return {
        policy: names
        for n, (policy, names) in enumerate(sorted(found.items()))
        if (n + number) % 3 == 0 or policy == "float32"
    }


def report(rounds: int, journal: Journal | None = None, minutes: float = np.inf) -> dict[str, Any]:
    """All rounds, or as many as begin within so many minutes. runs, accused: engines, by policy and in all.

    at_most: of right engines that are accused, with a confidence of 95 %, where none was: the rule of three.
    """
    journal, made, end = journal or Journal(), right_engines(), time.monotonic() + 60 * minutes
    rows = []
    for number in range(rounds):
        if time.monotonic() > end:
            break
        rows.append(journal.row(("round", number), partial(one_round, number, made), "accused"))
    return summed(rows, len(made), journal.seconds)


def summed(rows: list[dict[str, Any]], engines: int, seconds: float) -> dict[str, Any]:
    """The report of these rounds."""
    by_policy = Counter[str]()
    for row in rows:
        by_policy.update(row["runs"])
    accusations = [[row["round"], *found] for row in rows for found in row["accused"]]
    accused, runs = len({(number, name) for number, name, *_ in accusations}), by_policy.total()
    return {
        "schema": SCHEMA,
        "rounds": len(rows),
        "engines": engines,
        "seconds": round(seconds),
        "runs": runs,
        "accused": accused,
        "at_most": None if accused else rounded(3 / max(runs, 1)),
        "by_policy": dict(sorted(by_policy.items())),
        "tokens": dict(sorted(Counter(row["tokens"] for row in rows).items())),
        "accusations": accusations,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=185)
    parser.add_argument("--minutes", type=float, default=np.inf, help="begin no round later; the next call goes on")
    parser.add_argument("--out", type=Path, help="the report; stdout where it is not said, and then nothing is kept")
    given = parser.parse_args()
    warnings.simplefilter("ignore", RuntimeWarning)  # of engines of float16 on edge inputs
    kept = Journal.beside(given.out)
    with contextlib.redirect_stdout(sys.stderr):  # one of the engines prints a verdict of its own
        measured = report(given.rounds, kept, given.minutes)
    if given.out:
        given.out.write_text(lines(measured) + "\n", encoding="utf-8")
        if measured["rounds"] == given.rounds:
            kept.close()
    else:
        show(measured)
