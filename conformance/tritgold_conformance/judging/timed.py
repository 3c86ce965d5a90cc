"""Level timed: were the answers of all timed calls right?"""

import numpy as np

from tritgold_conformance.comparing.logits import judge_rows
from tritgold_conformance.contract.clock import TIMED_STEPS
from tritgold_conformance.golden.run import GoldenRun
from tritgold_conformance.judging.comparisons import lacks
from tritgold_conformance.questions.evidence import Evidence
from tritgold_conformance.results.report import Level


def judge_timed(golden: GoldenRun, evidence: Evidence) -> Level:
    """Compare the logits of the timed calls: of each prefill, and of the steps after a prompt of one token."""
    if evidence.speed is None:
        return lacks("was not timed")
    if not evidence.timed:
        return lacks("the engine's answers while it was timed are not known")
    compared = 0
    for call, rows in evidence.timed.items():
        start, end = (0, len(golden.tokens)) if call == "prefill" else (1, 1 + min(TIMED_STEPS, len(golden.tokens) - 1))
        runs, rest = divmod(len(rows), end - start)
        if rest or rows.ndim != 2:
            return Level(status="failed", compared=1, failed=1, note=f"{call}: {len(rows)} rows of {end - start} a run")
        run = golden.prefix(end)
        for number, one in enumerate(np.split(rows, runs) if runs else []):
            whole = np.concatenate([golden.logits[:start], one]) if one.shape[1] == golden.logits.shape[1] else one
            found = judge_rows(run, whole)
            compared += end - start
            if found.problem:
                note = f"{call}, run {number + 1}: {found.problem}"
                return Level(status="failed", compared=compared, failed=int(found.failing.sum()), note=note)
    return Level(status="passed", compared=compared, note=f"{compared} rows that were timed are right")
