"""The judge on engines whose fault is known, and on engines that misbehave."""

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from asked_once import judge
from faulty_engines import (
    FAULTS,
    UNSEEN,
    Crashing,
    Faulty,
    ForgetfulPrefill,
    FrozenRope,
    LogitsOnly,
    NotANumber,
    Nothing,
    OperationsOnly,
    ReusesItsBuffers,
    Silent,
    WithoutCodes,
)

from tritgold.checkpoint import open_checkpoint
from tritgold.errors import EngineError
from tritgold.golden import embedded_model
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC
from tritgold_conformance.comparing.ties import distance_from_tie, other_codes
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.engines.load import load_engine
from tritgold_conformance.golden.reference_engine import ReferenceEngine
from tritgold_conformance.golden.run import GoldenRun, judging_tokens
from tritgold_conformance.results.report import Report, json_schema, to_json


@pytest.fixture(scope="module")
def model() -> Any:
    with embedded_model("seeded") as path:
        yield path


@pytest.fixture(scope="module")
def golden(model: Path) -> GoldenRun:
    return GoldenRun.of(open_checkpoint(model), judging_tokens(12, 259, seed=3))


def judged(golden: GoldenRun, engine: object) -> Report:
    return judge(golden, EngineUnderTest(engine), "seeded", with_speed=False)  # type: ignore[arg-type]


@pytest.fixture(scope="module", params=FAULTS)
def fault(request: pytest.FixtureRequest, golden: GoldenRun, model: Path) -> tuple[str, Report]:
    """A fault and the report on the engine that has it."""
    return request.param, judged(golden, Faulty(str(model), request.param))


def test_each_fault_is_caught_and_placed(fault: tuple[str, Report]) -> None:
    name, report = fault
    where, what = FAULTS[name]
    assert report.exit_code == 1
    assert report.first_divergence is not None
    assert report.first_divergence.name == where
    assert what in report.first_divergence.what
    assert report.engine.speed is None, "no speed without a pass"
    assert report.levels["operations"].status == "failed"


def test_each_fault_is_placed_by_the_free_running_walk_too(fault: tuple[str, Report]) -> None:
    name, report = fault
    assert report.levels["trace"].status == "failed"
    assert FAULTS[name][0] in report.levels["trace"].note


# From logits alone a scale before a sub-norm cannot be seen: that is why the trace levels exist.
INVISIBLE_IN_LOGITS = {"scale-never-on-v", "scale-never-on-gate"}


def test_what_logits_alone_can_see(golden: GoldenRun, model: Path, fault: tuple[str, Report]) -> None:
    report = judged(golden, LogitsOnly(str(model), fault[0]))
    assert report.levels["operations"].status == report.levels["trace"].status == "not assessed"
    assert report.verdict == ("conforms" if fault[0] in INVISIBLE_IN_LOGITS else "does not conform")


def test_the_golden_model_conforms_exactly(golden: GoldenRun, model: Path) -> None:
    report = judge(golden, load_engine("reference", model, golden.checkpoint, 12), "seeded", with_speed=False)
    assert report.verdict == "conforms"
    assert {c.outcome for c in report.operations} == {"equal"}
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


def test_an_engine_that_gives_nothing_at_all_is_no_pass(golden: GoldenRun) -> None:
    report = judged(golden, Nothing())
    assert report.verdict == "nothing was checked"
    assert report.exit_code == 5
    assert {level.status for level in report.levels.values()} == {"not assessed"}
    assert report.noise is None


def test_a_kernel_library_is_judged_on_its_operations(golden: GoldenRun, model: Path) -> None:
    report = judged(golden, OperationsOnly(str(model)))
    failed = {c.name: c.what for c in report.operations if not c.passed}
    assert set(failed) == {"layers.1.probs"}
    assert "KeyError: 'no such kernel'" in failed["layers.1.probs"]
    assert report.levels["logits"].status == "not assessed"
    assert "--only layers.1.probs" in report.reproduce


@pytest.mark.parametrize("fault", UNSEEN)
def test_faults_that_a_models_own_activations_do_not_show(golden: GoldenRun, model: Path, fault: str) -> None:
    report = judged(golden, Faulty(str(model), fault))
    assert report.levels["operations"].status == "passed", "on the model's own activations nothing shows"
    assert report.levels["edge_cases"].status == "failed"
    assert UNSEEN[fault] in {c.name for c in report.operations if not c.passed}


def test_a_prompt_in_pieces_is_judged_apart(golden: GoldenRun, model: Path) -> None:
    report = judged(golden, ForgetfulPrefill(str(model)))
    assert {n: v.status for n, v in report.levels.items() if v.status == "failed"} == {"continued": "failed"}


def test_an_engine_may_use_its_buffers_again(golden: GoldenRun, model: Path) -> None:
    assert judged(golden, ReusesItsBuffers(str(model))).verdict == "conforms"


def breaks_ties(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every code near a tie, though not on it, goes to the other side: much noise, and right all the same."""
    codes, scale = GOLDEN_ARITHMETIC.quantize(x)
    others = other_codes(x, scale, codes)
    distance = distance_from_tie(x, scale, codes, others)
    return np.where((distance > 0) & (distance < 3e-5), others, codes).astype(np.int8), scale


def test_a_trace_without_codes_is_followed_by_the_ties_of_its_logits(golden: GoldenRun, model: Path) -> None:
    report = judged(golden, WithoutCodes(str(model), breaks_ties))
    assert report.ties, "a control: without a broken tie this would show nothing"
    assert report.levels["trace"].status == "passed", report.levels["trace"].note
    assert report.levels["trace"].not_assessed > 0


def test_a_trace_without_codes_is_not_judged_behind_ties_that_cannot_be_searched(
    golden: GoldenRun, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tritgold_conformance.comparing.tie_search.SEARCHABLE", 0)
    report = judged(golden, WithoutCodes(str(model), breaks_ties))
    assert report.verdict != "does not conform", report.levels
    assert report.levels["trace"].compared > 2, "not embedding and layers.0.attn_norm alone"
    assert "a broken tie and a bug look alike" in report.levels["trace"].note


class TraceAlone:
    """Floats of a trace, those whose names end as told, and at most single steps beside them: no prefill."""

    def __init__(self, model: Path, ends: tuple[str, ...], steps: bool, **changed: Any) -> None:
        arithmetic = replace(GOLDEN_ARITHMETIC, **{"quantize": breaks_ties, **changed})
        self.inner, self.ends = ReferenceEngine(open_checkpoint(model), arithmetic=arithmetic), ends
        if steps:
            self.reset, self.step = self.inner.reset, self.inner.step

    def trace(self, tokens: list[int]) -> dict[str, np.ndarray]:
        return {n: a for n, a in self.inner.trace(tokens).arrays.items() if n.endswith(self.ends)}


ACTIVATIONS = ("norm", ".out", "rope", "probs", "mix", "act", "residual")
SHOWN = {
    "its own logits": ((*ACTIVATIONS, "logits"), False),
    "logits token by token": (ACTIVATIONS, True),
    "no logits": (ACTIVATIONS, False),
    "residuals alone": (("residual",), False),
}


@pytest.mark.parametrize("shown", SHOWN)
def test_a_trace_without_codes_and_without_prefill_is_not_accused(golden: GoldenRun, model: Path, shown: str) -> None:
    report = judged(golden, TraceAlone(model, *SHOWN[shown]))
    assert report.verdict == "conforms", report.levels
    assert report.levels["trace"].compared > 1


@pytest.mark.parametrize("shown", SHOWN)
@pytest.mark.parametrize("changed", ["silu", "mix"])
def test_a_wrong_one_of_these_is(golden: GoldenRun, model: Path, shown: str, changed: str) -> None:
    activation = GOLDEN_ARITHMETIC.gated_activation
    wrong: dict[str, Any] = {
        "silu": {"gated_activation": lambda gate, up, _: activation(gate, up, "silu")},
        "mix": {"mix_values": lambda w, v: GOLDEN_ARITHMETIC.mix_values(w, v) * np.float32(1.0625)},
    }[changed]
    report = judged(golden, TraceAlone(model, *SHOWN[shown], **wrong))
    # A factor on the mix is gone after its sub-norm: what shows no more than residuals cannot show it.
    unseen = changed == "mix" and SHOWN[shown][0] == ("residual",)
    assert report.levels["trace"].status == ("passed" if unseen else "failed")


def test_the_first_divergence_is_the_first_in_execution_order(golden: GoldenRun, model: Path) -> None:
    class Two(ReferenceEngine):
        def operation(self, name: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            outputs = super().operation(name, inputs)
            return {"x": outputs["x"] * np.float32(2)} if name == "logits" else outputs

        def trace(self, tokens: list[int]) -> dict[str, np.ndarray]:
            arrays = super().trace(tokens).arrays
            return {**arrays, "layers.0.attn_norm": arrays["layers.0.attn_norm"] * np.float32(2)}

    report = judged(golden, Two(golden.checkpoint))
    assert report.first_divergence is not None
    assert report.first_divergence.name == "layers.0.attn_norm"


def test_names_that_are_not_ours_are_told(golden: GoldenRun, model: Path) -> None:
    class Misspelt(LogitsOnly):
        def trace(self, tokens: list[int]) -> dict[str, np.ndarray]:
            return {"layer.0.q.out": np.zeros((12, 256)), "text": np.array(["a"])}

    report = judged(golden, Misspelt(str(model)))
    assert report.levels["trace"].status == "not assessed"
    assert "unknown names: layer.0.q.out" in report.levels["trace"].note


def test_nan_fails_every_operation(golden: GoldenRun, model: Path) -> None:
    report = judged(golden, NotANumber(str(model)))
    floats = [name for name, array in golden.trace.arrays.items() if array.dtype.kind == "f"]
    assert report.levels["operations"].failed == len(floats)


def test_an_engine_that_crashes_cannot_be_judged(golden: GoldenRun, model: Path) -> None:
    with pytest.raises(EngineError, match="prefill failed: RuntimeError: kernel panic"):
        judged(golden, Crashing(str(model)))


@pytest.mark.parametrize("name", ["Hanging", "HangingOperation", "HangingAtTheStart"])
def test_an_engine_that_hangs_cannot_be_judged(golden: GoldenRun, model: Path, name: str) -> None:
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(EngineError, match=r"took longer than 0\.2 s") as caught:
        judge(golden, load_engine(f"faulty_engines:{name}", model, golden.checkpoint, 12, seconds=0.2), "seeded")
    assert caught.value.kind == "engine-timeout"
    assert signal.getsignal(signal.SIGALRM) == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_an_engine_cannot_spoil_the_golden_arrays(golden: GoldenRun, model: Path) -> None:
    digest = golden.trace.digest()

    class Vandal(LogitsOnly):
        def operation(self, name: str, inputs: dict[str, np.ndarray]) -> None:
            for array in inputs.values():
                array[...] = 0

    judged(golden, Vandal(str(model)))
    assert golden.trace.digest() == digest


def test_the_report_is_json_of_its_own_schema_and_ends_with_a_command(golden: GoldenRun, model: Path) -> None:
    report = judged(golden, Faulty(str(model), "rope-missing"))
    data = json.loads(to_json(report))
    jsonschema.validate(data, json_schema())
    assert data["schema"] == "tritgold.report/3"
    assert data["engine"]["speed"] is None
    assert "--ids " + ",".join(map(str, golden.tokens)) in data["reproduce"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**data, "verdict": "fine"}, json_schema())


def test_statistics_stand_side_by_side(golden: GoldenRun, model: Path) -> None:
    report = judged(golden, Faulty(str(model), "silu"))
    pair = report.statistics["layers.0.ffn_act"]
    assert pair["golden"].zeros > 0.4
    assert pair["engine"].zeros < 0.01


@pytest.mark.parametrize("spec", ["nonsense", "no_such_module:Class", "json:NoSuchClass", "json:JSONDecoder"])
def test_an_engine_that_cannot_be_loaded_says_why(golden: GoldenRun, model: Path, spec: str) -> None:
    with pytest.raises(EngineError) as caught:
        load_engine(spec, model, golden.checkpoint, 12)
    assert spec in str(caught.value)
