"""A failing engine is asked each question once, and its evidence is judged elsewhere as it is here."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from library import golden, mutant
from safetensors.numpy import load_file, save_file

from tritgold.errors import FormatError
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.diagnosis.diagnose import diagnose
from tritgold_conformance.engines.ask import ask
from tritgold_conformance.faults.fault import Mutant
from tritgold_conformance.faults.faulty_engine import FaultyEngine
from tritgold_conformance.judging.check import check
from tritgold_conformance.judging.judge import judge
from tritgold_conformance.questions.behaviours import behaviours
from tritgold_conformance.questions.edge_inputs import edge_inputs
from tritgold_conformance.questions.evidence import BEHAVIOURS, Evidence
from tritgold_conformance.questions.evidence_files import (
    ARRAYS,
    JSON,
    read_evidence,
    require_evidence_of,
    write_evidence,
)
from tritgold_conformance.questions.packed_bytes import cases
from tritgold_conformance.results.report import to_json

TOKENS = 8


class Counting(FaultyEngine):
    """Counts what it is asked."""

    def __init__(self, made: Mutant) -> None:
        super().__init__(made, 64)
        self.asked: Counter[str] = Counter()

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        if name not in ("operation", "trace", "prefill", "step", "unpack", *BEHAVIOURS):
            return found

        def counted(*arguments: Any) -> Any:
            self.asked[name] += 1
            return found(*arguments)

        return counted


def test_a_failing_engine_with_a_diagnosis_is_asked_each_question_once() -> None:
    run, engine = golden("seeded", TOKENS), Counting(mutant("silu"))
    report, evidence = check(run, EngineUnderTest(engine), "seeded")
    assert report.verdict == "does not conform"
    assert diagnose(run, evidence, "seeded", unseen=False).faults
    operations = sum(1 for _ in run.operations()) + sum(1 for _ in edge_inputs(run))
    asked = Counter(q.method for q in behaviours(run, BEHAVIOURS))
    pieces = {"prefill": 3, "step": TOKENS // 4 + TOKENS, "trace": 1}
    assert engine.asked == {"operation": operations, "unpack": len(cases()), **pieces, **asked}


@pytest.mark.parametrize("name", ["eos-ignored", "bos-doubled"])
def test_a_fault_of_behaviours_alone_does_not_conform(name: str) -> None:
    run = golden("diffusing", TOKENS)
    right = check(run, EngineUnderTest(FaultyEngine(Mutant(run.checkpoint), 64)), "diffusing", timed=False)[0]
    assert right.verdict == "conforms"
    wrong = check(run, EngineUnderTest(FaultyEngine(mutant(name, on="diffusing"), 64)), "diffusing", timed=False)[0]
    assert wrong.verdict == "does not conform"
    assert {level for level, of in wrong.levels.items() if of.status == "failed"} <= set(BEHAVIOURS)


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return ask(EngineUnderTest(FaultyEngine(mutant("silu"), 64)), golden("seeded", TOKENS))


def test_evidence_that_travelled_makes_the_same_report(evidence: Evidence, tmp_path: Path) -> None:
    run = golden("seeded", TOKENS)
    write_evidence(tmp_path / "e", evidence, ("--mode", "golden"))
    again, options = read_evidence(tmp_path / "e")
    require_evidence_of(again, run, tmp_path / "e")
    assert to_json(judge(run, again, "m", options)) == to_json(judge(run, evidence, "m", ("--mode", "golden")))


def test_bad_evidence_is_refused(evidence: Evidence, tmp_path: Path) -> None:
    folder, run = tmp_path / "e", golden("seeded", TOKENS)
    write_evidence(folder, evidence)
    saved, arrays = json.loads((folder / JSON).read_text()), (folder / ARRAYS).read_bytes()
    unreadable = [{"schema": "tritgold.evidence/0"}, {"tokens": "x"}, {"packed": [True] * 99}, {"unknown": 1}]
    for change in unreadable:
        (folder / JSON).write_text(json.dumps({**saved, **change}))
        with pytest.raises(FormatError) as refused:
            read_evidence(folder)
        assert refused.value.file
        assert refused.value.expected == "tritgold.evidence/2"
        assert refused.value.hint
    for text in ("", "[1]", json.dumps(saved)[:-9]):
        (folder / JSON).write_text(text)
        with pytest.raises(FormatError):
            read_evidence(folder)
    (folder / JSON).write_text(json.dumps({**saved, "model_hash": "0"}))
    with pytest.raises(FormatError, match="golden run") as other:
        require_evidence_of(read_evidence(folder)[0], run, folder)
    assert other.value.kind == "evidence-model"
    (folder / JSON).write_text(json.dumps({**saved, "operations": saved["operations"][:-1]}))
    with pytest.raises(FormatError, match="operations"):
        require_evidence_of(read_evidence(folder)[0], run, folder)
    (folder / JSON).write_text(json.dumps(saved))
    (folder / ARRAYS).write_bytes(arrays[:-1])
    with pytest.raises(FormatError):
        read_evidence(folder)
    (folder / ARRAYS).write_bytes(arrays)
    changed = load_file(folder / ARRAYS)
    save_file({**changed, "logits/logits": changed["logits/logits"][:-1].copy()}, folder / ARRAYS)
    with pytest.raises(FormatError, match="rows of logits"):
        require_evidence_of(read_evidence(folder)[0], run, folder)
