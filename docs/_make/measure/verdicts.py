"""What the judge says of every fault of the library, to compare two versions of the judge.

``python -m measure.verdicts --out NOW.json`` with this checkout on PYTHONPATH; with an earlier one on it, the same
script writes what that judge said. ``python -m measure.verdicts --compare BEFORE.json NOW.json`` prints each
difference.

Each fault is judged on the model that shows it (kjv-ar's on ``seeded``, which is small), on one text, in one process,
without speed. Right engines: the golden model itself on every model.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tritgold.checkpoint import Checkpoint
from tritgold.errors import TritgoldError
from tritgold_conformance.faults import FAULTS
from tritgold_conformance.faults.faulty_engine import FaultyEngine
from tritgold_conformance.faults.witnesses import MODELS

TOKENS, SEED = 40, 1
SMALL = tuple(name for name in MODELS if not name.startswith("kjv"))
LEVELS = {"files": "packed_bytes", "vectors": "edge_cases", "text": "next_tokens"}  # what they were called before
RENAMED = ("-behind-", "-after-")  # four faults got a plainer name; they are compared by it


@cache
def golden_run(checkpoint: Checkpoint) -> Any:
    """The golden run of a model: one object, by which the judge keeps what it has computed."""
    from tritgold_conformance.golden.run import GoldenRun, judging_tokens

    return GoldenRun.of(checkpoint, judging_tokens(TOKENS, checkpoint.config.vocab, SEED))


def judged(checkpoint: Any, mutant: Any, name: str) -> dict[str, Any]:
    """verdict; failing: the levels that failed; first: where it differs first. By the judge on the path."""
    try:
        from tritgold_conformance.contract.engine_under_test import EngineUnderTest
        from tritgold_conformance.judging.check import check
    except ImportError:  # before the house was rebuilt (decision 0009)
        return _judged_before(checkpoint, mutant, name)
    golden = golden_run(checkpoint)
    return _row(check(golden, EngineUnderTest(FaultyEngine(mutant, 64)), name, timed=False)[0])


def _judged_before(checkpoint: Any, mutant: Any, name: str) -> dict[str, Any]:
    from tritgold_conformance.engine import Candidate  # type: ignore[import-not-found]
    from tritgold_conformance.judge import judge  # type: ignore[import-not-found]

    from tritgold_conformance.golden import GoldenRun, judging_tokens  # type: ignore[attr-defined]

    golden = GoldenRun.of(checkpoint, judging_tokens(TOKENS, checkpoint.config.vocab, SEED))
    return _row(judge(golden, Candidate(FaultyEngine(mutant, 64)), name, False))


def _row(report: Any) -> dict[str, Any]:
    failing = [LEVELS.get(level, level) for level, found in report.levels.items() if found.status == "failed"]
    first = report.first_divergence
    return {"verdict": report.verdict, "failing": failing, "first": None if first is None else first.name}


def rows() -> Iterator[tuple[str, dict[str, Any]]]:
    """(fault or "right engine", and the model) -> the row."""
    module = sys.modules["tritgold_conformance.faults.fault"]
    mutant_class = getattr(module, "Mutant", None) or module.Subject  # its earlier name
    models = {name: MODELS[name]() for name in SMALL}
    for name, checkpoint in models.items():
        yield f"right engine, {name}", judged(checkpoint, mutant_class(checkpoint), name)
    for name, known in FAULTS.items():
        where = known.shown_by.model if known.shown_by.model in models else "seeded"
        changed = known.apply(mutant_class(models[where]))
        if changed is not None:
            try:
                row = judged(models[where], changed, where)
            except TritgoldError as error:  # an answer of another shape: the command's exit code is 1 or 3 by its kind
                row = {"verdict": f"{type(error).__name__} [{error.kind}]", "failing": [], "first": None}
            yield f"{name.replace(*RENAMED)}, {where}", row


def differences(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """One line for each row that differs, or that only one of the two has."""
    for key in sorted(before.keys() | now.keys()):
        if key not in before or key not in now:
            yield f"{key}: only {'now' if key in now else 'before'}"
            continue
        for part in ("verdict", "failing", "first"):
            if before[key][part] != now[key][part]:
                yield f"{key}: {part} {before[key][part]} -> {now[key][part]}"


def main() -> None:
    """Write the rows, or compare two files of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("BEFORE", "NOW"))
    given = parser.parse_args()
    if given.compare:
        before, now = (json.loads(path.read_text(encoding="utf-8")) for path in given.compare)
        print("\n".join(differences(before, now)) or "no difference")
        return
    found = []
    for key, row in rows():
        found.append(f" {json.dumps(key)}: {json.dumps(row)}")
        given.out.write_text("{\n" + ",\n".join(found) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
