"""Holes measured in other projects' gates (docs/diagnosis.md): this suite must fail on each of them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from asked_once import diagnose, judge, judge_operations
from click.testing import CliRunner
from library import Shown, golden, model

from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC
from tritgold.trace import Trace
from tritgold_conformance.cli import main
from tritgold_conformance.comparing.activation_statistics import MOMENTS, moments
from tritgold_conformance.comparing.compare import Bound, Comparison, Exact, Ulp, compare
from tritgold_conformance.comparing.logits import judge_logits
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.faults import FAULTS
from tritgold_conformance.faults.fault import Mutant
from tritgold_conformance.faults.faulty_engine import FaultyEngine


def failing(made: Mutant) -> set[str]:
    outcomes = judge_operations(golden("seeded", 12), EngineUnderTest(Shown(made, 12)))
    return {c.name for c in outcomes if isinstance(c, Comparison) and not c.passed}


def test_a_scale_20_percent_too_small_fails() -> None:
    def apply_scales(acc: np.ndarray, scale: np.ndarray, w: np.ndarray, rule: str) -> np.ndarray:
        return GOLDEN_ARITHMETIC.apply_scales(acc, scale, w, rule) * np.float32(0.8)

    made = Mutant(model("seeded"), replace(GOLDEN_ARITHMETIC, apply_scales=apply_scales))
    assert "layers.0.q.out" in failing(made)


def test_one_element_in_eight_ignored_fails() -> None:
    made = FAULTS["every-8th-skipped"].apply(Mutant(model("seeded")))
    assert made is not None
    assert "layers.0.q.acc" in failing(made)


@pytest.mark.parametrize("name", ["rope-missing", "mask-missing", "softmax-scale-missing"])
def test_position_0_alone_cannot_see_it_and_the_suite_looks_further(name: str) -> None:
    made = FAULTS[name].apply(Mutant(model("seeded")))
    assert made is not None
    alone, whole = golden("seeded", 1), golden("seeded", 12)
    engine = Shown(made, 12)
    assert judge_logits("logits", alone, engine.prefill(alone.tokens)).passed
    engine.reset()
    assert not judge_logits("logits", whole, engine.prefill(whole.tokens)).passed


def test_a_cosine_of_1_with_another_scale_fails() -> None:
    run = golden("seeded", 12)
    assert not judge_logits("logits", run, run.logits * np.float32(1.01)).passed


def test_one_unit_in_the_last_place_is_not_scrambled() -> None:
    x = np.linspace(1, 2, 100, dtype=np.float32).reshape(4, 25)
    near = np.nextafter(x, np.float32(3))
    assert compare("x", x, near, Ulp(1, "one rounding")).outcome == "within"
    assert compare("x", x, x[:, ::-1].copy(), Ulp(1, "one rounding")).outcome == "fails"


@pytest.mark.parametrize("count", [1, 20_480])
@pytest.mark.parametrize("tolerance", [Exact(), Ulp(1e9, "wide"), Bound(np.full((160, 128), np.inf), "all")])
def test_nan_fails_whatever_the_tolerance(count: int, tolerance: Exact | Ulp | Bound) -> None:
    x = np.ones((160, 128), np.float32)
    bad = x.copy()
    bad.reshape(-1)[:count] = np.nan
    found = compare("x", x, bad, tolerance)
    assert found.outcome == "fails"
    assert f"non-finite: {count} of 20480" in found.what


def test_nan_in_one_logit_fails() -> None:
    run = golden("seeded", 12)
    bad = run.logits.copy()
    bad[5, 7] = np.nan
    assert not judge_logits("logits", run, bad).passed


class WithStatistics:
    """Right statistics, but for one moment of one array."""

    name = "statistics"

    def __init__(self, moment: str, value: float) -> None:
        self.moment, self.value = moment, value

    def statistics(self, tokens: list[int]) -> dict[str, dict[str, float]]:
        arrays = FaultyEngine(Mutant(model("seeded")), len(tokens)).trace(tokens).arrays
        found = {n: dict(zip(MOMENTS, moments(a).tolist(), strict=True)) for n, a in arrays.items()}
        found["layers.1.ffn_act"][self.moment] = self.value
        return found


def test_nan_in_one_moment_of_statistics_is_not_skipped() -> None:
    """A maximum that skips NaN reads 20,480 of them as 0."""
    run = golden("seeded", 12)
    for value in (np.nan, np.inf):
        found = diagnose(run, EngineUnderTest(WithStatistics("rms", value)), "seeded", faults=[], unseen=False)
        assert found.first_divergence is not None
        assert found.first_divergence.name == "layers.1.ffn_act"
    right = diagnose(
        run, EngineUnderTest(WithStatistics("name of no moment", np.nan)), "seeded", faults=[], unseen=False
    )
    assert right.clean


def test_two_paths_that_agree_on_the_wrong_thing_fail_both() -> None:
    made = FAULTS["silu"].apply(Mutant(model("seeded")))
    assert made is not None
    report = judge(golden("seeded", 12), EngineUnderTest(Shown(made, 12)), "seeded", with_speed=False)
    assert {report.levels[level].status for level in ("logits", "continued", "steps")} == {"failed"}


def test_a_missing_reference_is_no_pass() -> None:
    assert compare("x", np.zeros((0, 4), np.float32), np.zeros((0, 4), np.float32), Exact()).outcome == "fails"
    assert compare("x", np.zeros((1, 4), np.float32), None, Exact()).outcome == "fails"


def test_a_missing_reference_file_is_no_pass(tmp_path: Path) -> None:
    """Neither a trace that is not there, on either side, nor one that has nothing in it."""
    whole, empty, absent = (tmp_path / f"{name}.safetensors" for name in ("whole", "empty", "absent"))
    run = golden("seeded", 12)
    Trace(list(run.tokens), "golden/1", "e", "h", arrays=dict(run.trace.arrays)).save(whole)
    Trace(list(run.tokens), "golden/1", "e", "h").save(empty)
    codes = {
        pair: CliRunner().invoke(main, ["compare", *map(str, pair)]).exit_code
        for pair in ((whole, whole), (absent, whole), (whole, absent), (empty, whole), (whole, empty), (empty, empty))
    }
    assert codes.pop((whole, whole)) == 0
    assert set(codes.values()) <= {3, 5}
    assert CliRunner().invoke(main, ["check", "--engine", "reference", "--model", str(absent)]).exit_code == 3
