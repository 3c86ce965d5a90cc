"""Logits: noise passes, broken ties are searched for and followed, everything else fails."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tritgold.checkpoint import open_checkpoint
from tritgold.golden import embedded_model
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC
from tritgold.model import forward
from tritgold.trace import Trace
from tritgold_conformance.comparing.free_running import compare_traces
from tritgold_conformance.comparing.logits import LOGIT_NOISE, Explained, judge_logits
from tritgold_conformance.comparing.tie_search import FEW_TRIALS, TOGETHER
from tritgold_conformance.comparing.tie_sensitivity import allowed_by_spread
from tritgold_conformance.comparing.ties import TIE, BrokenTie, distance_from_tie, follow_ties, other_codes
from tritgold_conformance.golden.run import GoldenRun, judging_tokens

LAYER = "layers.1"
QUANTIZERS = {"attn_in": "attn_norm", "o_in": "attn_sub_norm", "ffn_in": "ffn_norm", "down_in": "ffn_sub_norm"}


@pytest.fixture(scope="module")
def golden() -> Any:
    with embedded_model("seeded") as path:
        yield GoldenRun.of(open_checkpoint(path), judging_tokens(16, 259, seed=4))


def codes(golden: GoldenRun, wanted: Callable[[np.ndarray], np.ndarray]) -> Iterator[BrokenTie]:
    """Codes of the golden run whose distance from a tie is wanted, turned to the other side."""
    for at in (f"layers.{n}.{q}" for n in range(4) for q in QUANTIZERS):
        layer, _, quantizer = at.rpartition(".")
        x, scale = golden.trace[f"{layer}.{QUANTIZERS[quantizer]}"], golden.trace[f"{at}.scale"]
        others = other_codes(x, scale, golden.trace[f"{at}.codes"])
        near = distance_from_tie(x, scale, golden.trace[f"{at}.codes"], others)
        for token, channel in np.argwhere(wanted(near)).tolist():
            scaled = float(x[token, channel]) * float(scale[token])
            other = int(np.floor(scaled) + np.ceil(scaled)) - int(golden.trace[f"{at}.codes"][token, channel])
            yield BrokenTie(f"{at}.codes", token, channel, other, float(near[token, channel]))


def code_at(golden: GoldenRun, near_tie: bool, position: int | None = None) -> BrokenTie:
    """The first code that lies near a tie, or far from any."""
    every = codes(golden, lambda distance: distance < TIE / 2 if near_tie else distance > 0.4)
    return next(code for code in every if position in (None, code.position))


def engine_with(golden: GoldenRun, *ties: BrokenTie) -> Trace:
    """The golden model with these codes turned: an engine whose noise broke exactly these ties."""
    names = iter([name for name in golden.trace.arrays if name.endswith(".codes")])

    def quantize(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        codes, scale = GOLDEN_ARITHMETIC.quantize(x)
        name = next(names)
        for tie in ties:
            if tie.name == name:
                codes[tie.position, tie.channel] = tie.code
        return codes, scale

    trace = Trace()
    c = golden.checkpoint
    forward(golden.tokens, c.weights, c.config, trace=trace, arithmetic=replace(GOLDEN_ARITHMETIC, quantize=quantize))
    return trace


def test_noise_passes_and_the_numbers_are_measured(golden: GoldenRun) -> None:
    verdict = judge_logits("prefill", golden, golden.logits * np.float32(1 + 1e-6))
    assert verdict.passed
    assert verdict.ties == []
    assert all(0 < p.relative < LOGIT_NOISE and p.explained == p.relative for p in verdict.positions)
    assert all(p.kl < 1e-8 and p.top_k == {1: 1.0, 5: 1.0, 10: 1.0} for p in verdict.positions)


def test_one_broken_tie_is_found_from_logits_alone(golden: GoldenRun) -> None:
    tie = code_at(golden, near_tie=True)
    logits = engine_with(golden, tie)["logits"]
    verdict = judge_logits("prefill", golden, logits)
    assert verdict.passed
    assert [(t.name, t.position, t.channel, t.code) for t in verdict.ties] == [
        (tie.name, tie.position, tie.channel, tie.code)
    ]
    moved = [p for p in verdict.positions if p.relative > LOGIT_NOISE]
    assert moved
    assert min(p.position for p in moved) == tie.position
    assert all(p.explained < 1e-9 for p in moved)


def test_ties_at_two_positions_are_found_one_after_the_other(golden: GoldenRun) -> None:
    first, second = code_at(golden, True, position=2), code_at(golden, True, position=9)
    verdict = judge_logits("prefill", golden, engine_with(golden, first, second)["logits"])
    assert verdict.passed
    assert {(t.position, t.channel) for t in verdict.ties} >= {(first.position, first.channel)}
    assert {t.position for t in verdict.ties} == {2, 9}


def test_two_ties_of_one_position_are_found_together(golden: GoldenRun) -> None:
    every = itertools.combinations(codes(golden, lambda distance: distance < TOGETHER), 2)
    pairs = [(a, b) for a, b in every if (a.name, a.position) == (b.name, b.position)]
    pair = min(pairs, key=lambda pair: pair[0].from_tie + pair[1].from_tie)
    verdict = judge_logits("prefill", golden, engine_with(golden, *pair)["logits"])
    assert verdict.passed
    assert set(verdict.ties) == set(pair)


SHOWN = (
    BrokenTie("layers.1.ffn_in.codes", 10, 15, -35, 9e-7),
    BrokenTie("layers.1.ffn_in.codes", 10, 86, 55, 7e-6),
)
QUIET = BrokenTie("layers.4.attn_in.codes", 12, 110, -12, 8e-7)  # after these moves row 12 by 2e-6, and row 13 by 4e-3


@pytest.mark.parametrize("own", [[], [49]])
def test_a_tie_that_its_own_row_does_not_show_is_found_where_a_later_row_does(own: list[int]) -> None:
    """As XLA broke them. own: channels of ties of that later row, broken too."""
    text = [575, 1484, 112, 401, 1555, 492, 1210, 1890, 1465, 978, 1954, 1221, 459, 2028, 1497, 2044]
    with embedded_model("kjv-ar") as path:
        golden = GoldenRun.of(open_checkpoint(path), text)
    name = "layers.1.ffn_in.codes"
    before = engine_with(golden, *SHOWN, QUIET)
    others = other_codes(before["layers.1.ffn_norm"], before["layers.1.ffn_in.scale"], before[name])
    with_own = [BrokenTie(name, 13, c, int(others[13, c]), 5e-4) for c in own]
    verdict = judge_logits("prefill", golden, engine_with(golden, *SHOWN, QUIET, *with_own)["logits"])
    assert verdict.passed, verdict.problem
    assert {(tie.position, tie.channel) for tie in verdict.ties} == {
        (10, 15),
        (10, 86),
        (12, 110),
        *((13, c) for c in own),
    }
    far = next(code for code in codes(golden, lambda distance: distance > 0.4) if code.position == 14)
    assert not judge_logits("prefill", golden, engine_with(golden, *SHOWN, QUIET, far)["logits"]).passed


def test_a_code_turned_far_from_a_tie_is_no_excuse(golden: GoldenRun) -> None:
    verdict = judge_logits("prefill", golden, engine_with(golden, code_at(golden, near_tie=False))["logits"])
    assert not verdict.passed
    assert "no rounding tie explains it" in verdict.problem


def test_behind_a_tie_the_bounds_are_as_strict_as_before(golden: GoldenRun) -> None:
    logits = engine_with(golden, code_at(golden, True, position=2))["logits"].copy()
    logits[9, 0] += np.abs(golden.logits[9]).max() * np.float32(3 * LOGIT_NOISE)
    verdict = judge_logits("prefill", golden, logits)
    assert not verdict.passed
    assert [p.position for p in verdict.positions if not p.passed] == [9]


def test_with_a_trace_ties_are_followed_and_all_the_rest_is_strict(golden: GoldenRun) -> None:
    tie = code_at(golden, near_tie=True)
    engine = engine_with(golden, tie)
    followed, ties = follow_ties(golden, engine.arrays)
    assert [(t.name, t.position, t.channel) for t in ties] == [(tie.name, tie.position, tie.channel)]
    assert followed.digest() == engine.digest()
    unfollowed = compare_traces(golden.trace.arrays, engine.arrays, len(golden.tokens))
    assert unfollowed.blind.any(), "unfollowed, the rest is not judged"
    spoiled = dict(engine.arrays)
    spoiled["layers.3.up.out"] = spoiled["layers.3.up.out"] * np.float32(1.001)
    divergence = compare_traces(followed.arrays, spoiled, len(golden.tokens)).divergence
    assert divergence is not None
    assert divergence.name == "layers.3.up.out"


def test_nothing_is_followed_behind_a_code_that_no_tie_explains(golden: GoldenRun) -> None:
    wrong = code_at(golden, near_tie=False)
    engine = engine_with(golden, wrong)
    followed, ties = follow_ties(golden, engine.arrays)
    assert ties == []
    assert followed.digest() == golden.trace.digest()
    divergence = compare_traces(followed.arrays, engine.arrays, len(golden.tokens)).divergence
    assert divergence is not None
    assert (divergence.name, divergence.worst) == (wrong.name, [wrong.position, wrong.channel])


def test_one_wrong_position_fails(golden: GoldenRun) -> None:
    logits = golden.logits.copy()
    logits[7] = golden.logits[7, ::-1]
    verdict = judge_logits("prefill", golden, logits)
    assert "1 of 16 positions, first 7" in verdict.problem
    assert verdict.positions[7].argmax[0] != verdict.positions[7].argmax[1]
    assert not verdict.positions[7].near_tie


@pytest.mark.parametrize("rows", [slice(None), slice(3, 4)])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_non_finite_logits_fail(golden: GoldenRun, rows: slice, value: float) -> None:
    logits = golden.logits.copy()
    logits[rows] = value
    assert "non-finite" in judge_logits("prefill", golden, logits).problem


@pytest.mark.parametrize(
    ("logits", "problem"),
    [(None, "nothing was returned"), (np.zeros((16, 259), np.float32), "constant"), (np.zeros((16, 258)), "shape")],
)
def test_degenerate_and_missing_logits_fail(golden: GoldenRun, logits: object, problem: str) -> None:
    assert problem in judge_logits("prefill", golden, logits).problem


def test_a_padded_vocabulary_is_a_failure_not_a_crop(golden: GoldenRun) -> None:
    padded = np.concatenate([golden.logits, np.zeros((16, 2), np.float32)], axis=1)
    assert "shape [16, 261]" in judge_logits("prefill", golden, padded).problem


def test_a_near_tie_of_the_argmax_is_told_from_a_wrong_choice(golden: GoldenRun) -> None:
    first, second = np.argsort(-golden.logits[5])[:2]
    trace = Trace(arrays={**golden.trace.arrays, "logits": golden.logits.copy()})
    trace["logits"][5, second] = np.nextafter(trace["logits"][5, first], np.float32(-np.inf))
    close = GoldenRun(golden.checkpoint, golden.tokens, trace)
    engine = trace["logits"].copy()
    engine[5, second] = np.nextafter(trace["logits"][5, first], np.float32(np.inf))
    position = judge_logits("prefill", close, engine).positions[5]
    assert position.argmax == (first, second)
    assert position.near_tie
    assert position.passed


def test_an_explanation_from_the_trace_saves_the_search(golden: GoldenRun, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_with(golden, code_at(golden, near_tie=True))
    followed, ties = follow_ties(golden, engine.arrays)
    monkeypatch.setattr("tritgold_conformance.comparing.logits.resolve_ties", None)
    verdict = judge_logits("prefill", golden, engine["logits"], [Explained(followed["logits"], ties)])
    assert verdict.passed
    assert verdict.ties == ties


def test_without_a_search_a_broken_tie_fails(golden: GoldenRun) -> None:
    engine = engine_with(golden, code_at(golden, near_tie=True))
    assert not judge_logits("prefill", golden, engine["logits"], trials=0).passed


@pytest.mark.parametrize("positions", [(9,), (2, 9)])
def test_in_an_engine_that_is_known_to_be_wrong_a_right_path_is_not_accused(
    golden: GoldenRun, positions: tuple[int, ...]
) -> None:
    engine = engine_with(golden, *(code_at(golden, True, position) for position in positions))
    verdict = judge_logits("prefill", golden, engine["logits"], trials=FEW_TRIALS)
    assert verdict.passed
    assert [tie.position for tie in verdict.ties] == [*positions]
    wrong = judge_logits("prefill", golden, engine["logits"] * np.float32(1.001), trials=FEW_TRIALS)
    assert wrong.problem.endswith("few sets of rounding ties were tried, as another level failed")


def test_where_ties_are_too_many_to_search_the_golden_models_own_spread_decides(
    golden: GoldenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tritgold_conformance.comparing.tie_search.SEARCHABLE", 0)
    engine = engine_with(golden, code_at(golden, True, position=2), code_at(golden, True, position=9))
    verdict = judge_logits("prefill", golden, engine["logits"])
    assert verdict.passed
    assert verdict.ties == []
    assert verdict.allowed is not None
    assert 1e-4 < verdict.allowed < 0.2
    coarse = golden.logits * np.float32(1 + 2 * verdict.allowed)
    failed = judge_logits("prefill", golden, coarse)
    assert not failed.passed
    assert "constant ratio" in failed.problem
    assert "broken ties move the golden logits" in failed.problem


def test_one_logit_that_is_far_off_does_not_pass_for_spread(golden: GoldenRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """The likeliest token is another one, and the root mean square of the position hardly moves."""
    monkeypatch.setattr("tritgold_conformance.comparing.tie_search.SEARCHABLE", 0)
    logits = golden.logits.astype(np.float64)
    size, best = np.sqrt((logits[5] ** 2).mean()), int(np.argmax(logits[5]))
    logits[5, best] -= 0.9 * allowed_by_spread(golden) * size * np.sqrt(logits.shape[1])
    verdict = judge_logits("prefill", golden, logits)
    assert [p.position for p in verdict.positions if not p.passed] == [5]
    assert verdict.problem.startswith("1 of 16 positions, first 5")


def test_the_spread_is_the_same_each_time_and_none_where_nothing_lies_near_a_tie(
    golden: GoldenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert allowed_by_spread(golden) == allowed_by_spread(golden) > 0
    monkeypatch.setattr("tritgold_conformance.comparing.tie_sensitivity.REACH", 0.0)
    assert allowed_by_spread(golden) == 0.0


def test_ties_that_were_not_searched_explain_nothing_and_exclude_nothing(golden: GoldenRun) -> None:
    """After another level failed: the problem does not say that no tie explains it."""
    wrong = golden.logits * np.float32(1.5)
    assert "no rounding tie explains it" in judge_logits("prefill", golden, wrong).problem
    problem = judge_logits("prefill", golden, wrong, trials=0).problem
    assert problem.endswith("rounding ties were not searched, as another level failed")


def test_a_failure_names_its_class_and_the_tokens(golden: GoldenRun) -> None:
    problem = judge_logits("prefill", golden, golden.logits * np.float32(1.5)).problem
    assert "a constant ratio of 1.5" in problem
    best = int(golden.logits[0].argmax())
    assert f"token {best} for {best}" in problem


def test_logits_beyond_float32_are_refused_not_made_into_null(golden: GoldenRun) -> None:
    huge = golden.logits.astype(np.float64)
    huge[3, 3] = 1.7e308
    assert "non-finite" in judge_logits("prefill", golden, huge).problem
