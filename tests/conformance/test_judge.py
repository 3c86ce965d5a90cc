"""The judge on engines whose fault is known, and on engines that misbehave."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from faulty_engines import FAULTS, Crashing, Faulty, FrozenRope, LogitsOnly, NotANumber, Silent

from tritgold.errors import EngineError
from tritgold.golden import embedded_model
from tritgold_conformance.engine import Candidate, load_engine
from tritgold_conformance.golden import GoldenRun, golden_run, judging_tokens
from tritgold_conformance.judge import judge
from tritgold_conformance.report import Report, json_schema, to_json


@pytest.fixture(scope="module")
def model() -> Any:
    with embedded_model() as path:
        yield path


@pytest.fixture(scope="module")
def golden(model: Path) -> GoldenRun:
    return golden_run(model, judging_tokens(12, 259, seed=3))


def judged(golden: GoldenRun, engine: object) -> Report:
    return judge(golden, Candidate(engine), "embedded", with_speed=False)  # type: ignore[arg-type]


@pytest.fixture(scope="module", params=FAULTS)
def fault(request: pytest.FixtureRequest, golden: GoldenRun, model: Path) -> tuple[str, Report]:
    """A fault and the report on the engine that has it."""
    return request.param, judged(golden, Faulty(str(model), request.param))


def test_each_fault_is_caught_and_placed(fault: tuple[str, Report]) -> None:
    name, report = fault
    *_, where, what = FAULTS[name]
    assert report.exit_code == 1
    assert report.first_divergence is not None
    assert report.first_divergence.name == where
    assert what in report.first_divergence.what
    assert report.engine.speed is None, "no speed without a pass"
    assert report.levels["operations"].status == "failed"


def test_each_fault_is_placed_by_the_free_running_walk_too(fault: tuple[str, Report]) -> None:
    name, report = fault
    assert report.levels["trace"].status == "failed"
    assert FAULTS[name][2] in report.levels["trace"].note


# From logits alone a scale before a sub-norm cannot be seen: that is why the trace levels exist.
INVISIBLE_IN_LOGITS = {"v without scale", "gate without scale"}


def test_what_logits_alone_can_see(golden: GoldenRun, model: Path, fault: tuple[str, Report]) -> None:
    report = judged(golden, LogitsOnly(str(model), fault[0]))
    assert report.levels["operations"].status == report.levels["trace"].status == "not assessed"
    assert report.verdict == ("conforms" if fault[0] in INVISIBLE_IN_LOGITS else "does not conform")


def test_the_golden_model_conforms_exactly(golden: GoldenRun, model: Path) -> None:
    report = judged(golden, load_engine("reference", model)._engine)
    assert report.verdict == "conforms"
    assert {c.verdict for c in report.operations} == {"equal"}
    assert report.noise == 0.0


def test_steps_are_judged_apart_from_prefill(golden: GoldenRun, model: Path) -> None:
    report = judged(golden, FrozenRope(str(model)))
    assert report.levels["logits"].status == "passed"
    assert report.levels["steps"].status == "failed"
    assert report.logits[1].positions[0].passed, "position 0 cannot see it"


def test_a_silent_engine_is_not_assessed_where_it_says_nothing(golden: GoldenRun, model: Path) -> None:
    report = judged(golden, Silent(str(model)))
    assert report.levels["operations"].status == "not assessed"
    assert report.levels["trace"].status == "not assessed"
    assert report.levels["operations"].not_assessed == len(golden.trace.arrays)


def test_an_engine_that_gives_nothing_at_all_has_no_verdict(golden: GoldenRun) -> None:
    class Nothing:
        name = "nothing"

        def reset(self) -> None: ...

        def prefill(self, tokens: list[int]) -> np.ndarray:
            return np.zeros((0, 0), np.float32)

    report = judged(golden, Nothing())
    assert report.exit_code == 1, "logits of another shape are a failure, not an absence"


def test_nan_fails_every_operation(golden: GoldenRun, model: Path) -> None:
    report = judged(golden, NotANumber(str(model)))
    assert report.levels["operations"].failed == len(golden.trace.arrays)


def test_an_engine_that_crashes_cannot_be_judged(golden: GoldenRun, model: Path) -> None:
    with pytest.raises(EngineError, match="prefill failed: RuntimeError: kernel panic"):
        judged(golden, Crashing(str(model)))


def test_an_engine_cannot_spoil_the_golden_arrays(golden: GoldenRun, model: Path) -> None:
    digest = golden.trace.digest()

    class Vandal(LogitsOnly):
        def operation(self, name: str, inputs: dict[str, np.ndarray]) -> None:
            for array in inputs.values():
                array[...] = 0

    judged(golden, Vandal(str(model)))
    assert golden.trace.digest() == digest


def test_the_report_is_json_of_its_own_schema_and_ends_with_a_command(golden: GoldenRun, model: Path) -> None:
    report = judged(golden, Faulty(str(model), "no rope"))
    data = json.loads(to_json(report))
    jsonschema.validate(data, json_schema())
    assert data["schema"] == "tritgold.report/1"
    assert data["engine"]["speed"] is None
    assert "--ids " + ",".join(map(str, golden.tokens)) in data["reproduce"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**data, "verdict": "fine"}, json_schema())


def test_statistics_stand_side_by_side(golden: GoldenRun, model: Path) -> None:
    report = judged(golden, Faulty(str(model), "silu for relu2"))
    pair = report.statistics["layers.0.ffn_act"]
    assert pair["golden"].zeros > 0.4
    assert pair["engine"].zeros < 0.01


@pytest.mark.parametrize("spec", ["nonsense", "no_such_module:Class", "json:NoSuchClass", "json:JSONDecoder"])
def test_an_engine_that_cannot_be_loaded_says_why(model: Path, spec: str) -> None:
    with pytest.raises(EngineError) as caught:
        load_engine(spec, model)
    assert spec in str(caught.value)
