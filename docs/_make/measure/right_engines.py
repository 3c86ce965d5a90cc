"""Right engines, live, that must not be accused: XLA at several thread counts, transformers in float32.

``python -m measure.right_engines --engine xla --threads 2 --runs 20 --out
docs/data/right-engines.json``, once for each engine and thread count: XLA reads its threads when it starts. Each run is
another input; every level that the engine gives is diagnosed by itself. Rows of earlier commands stay in the report.
transformers runs by the Python that TRITGOLD_PEERS_PYTHON names, with the threads that it chooses: one.
"""

import argparse
import importlib
import json
import sys
from pathlib import Path
from typing import Any

from measure.report import lines
from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.golden import trained_model
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.diagnosis.diagnose import diagnose_view
from tritgold_conformance.diagnosis.view import view
from tritgold_conformance.engines.ask import ask
from tritgold_conformance.engines.load import load_engine
from tritgold_conformance.golden.run import GoldenRun, judging_tokens

SCHEMA = "tritgold.right_engines/1"
LEVELS = ("operations", "trace", "statistics", "logits")
FIRST = 1000  # seed of the first run's input


def diagnosed(checkpoint: Checkpoint, engine: EngineUnderTest, tokens: int, run: int) -> dict[str, Any]:
    """levels: what was diagnosed; accused: the levels of them with a divergence or a fault."""
    golden = GoldenRun.of(checkpoint, judging_tokens(tokens, checkpoint.config.vocab, FIRST + run))
    evidence, levels, accused = view(golden, ask(engine, golden)), [], []
    for level in LEVELS:
        limited = evidence if level == "operations" else evidence.limited(level)
        if level in limited.levels:
            levels.append(level)
            # No candidates: whether there is anything to explain is all that is asked.
            if not diagnose_view(limited, "", "", faults=[]).clean:
                accused.append(level)
    return {"run": run, "levels": levels, "accused": accused}


def main() -> None:
    """Run one engine, and put its rows into the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("xla", "transformers"), required=True)
    parser.add_argument("--model", choices=("kjv-ar", "kjv-dlm"), default="kjv-ar")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    if given.engine == "xla":
        importlib.import_module("tritgold_conformance.engines.xla").start_with(given.threads)
    path = trained_model(given.model)
    checkpoint = open_checkpoint(path)
    who = {"engine": given.engine, "threads": given.threads, "model": given.model, "tokens": given.tokens}
    known = json.loads(given.out.read_text(encoding="utf-8"))["rows"] if given.out.exists() else []
    rows = [row for row in known if {key: row[key] for key in who} != who]
    engine = load_engine(given.engine, path, checkpoint, given.tokens)
    for run in range(given.runs):
        rows.append({**who, **diagnosed(checkpoint, engine, given.tokens, run)})
        print(rows[-1], file=sys.stderr, flush=True)
    report = {"schema": SCHEMA, "runs": len(rows), "accused": sum(bool(row["accused"]) for row in rows), "rows": rows}
    given.out.write_text(lines(report) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
