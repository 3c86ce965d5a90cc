"""Every fault is caught by an input that ships, and changes nothing where it says so: a mutation test of the suite."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from asked_once import judge_edge_cases, judge_operations
from library import Shown, golden, model, mutant

from tritgold.model import forward
from tritgold_conformance.comparing.compare import Comparison
from tritgold_conformance.comparing.free_running import compare_traces
from tritgold_conformance.comparing.logits import LOGIT_NOISE
from tritgold_conformance.contract.engine_under_test import EngineUnderTest
from tritgold_conformance.diagnosis.distance import relative
from tritgold_conformance.diagnosis.per_run import predicted_logits
from tritgold_conformance.faults import FAULTS, fault
from tritgold_conformance.faults.fault import AREAS, INVISIBLE, Fault, Mutant
from tritgold_conformance.faults.faulty_engine import FaultyEngine
from tritgold_conformance.faults.rules.activation import clamp_127
from tritgold_conformance.questions.text_and_bytes import Question, answer_of, questions, same

PROMPT = [256, 5, 17, 99, 5]


@pytest.fixture(scope="module")
def asked() -> list[tuple[Question, Any]]:
    right = Mutant(model("diffusing"))
    return [(q, answer_of(right, q)) for q in questions(right, PROMPT)]


def is_shown(f: Fault, asked: list[tuple[Question, Any]]) -> bool:
    """Whether the fault's own witness shows it, by the judge's own means."""
    w = f.shown_by
    if w.level in ("files", "generated", "text"):
        made = mutant(f.name, on="diffusing")
        return any(not same(answer_of(made, q), right) for q, right in asked if q.level == w.level)
    run, made = golden(w.model, w.tokens), mutant(f.name, on=w.model)
    engine = EngineUnderTest(Shown(made, w.tokens))
    if w.level in ("operations", "vectors"):
        judged = judge_operations if w.level == "operations" else judge_edge_cases
        return any(isinstance(c, Comparison) and not c.passed for c in judged(run, engine))
    if w.level == "trace":
        return compare_traces(run.trace.arrays, engine.trace(run.tokens), w.tokens).divergence is not None
    ours = predicted_logits(made, run.tokens, w.level)
    return ours is None or bool((relative(ours, run.logits) > LOGIT_NOISE).any())


@pytest.mark.parametrize("f", FAULTS.values(), ids=FAULTS)
def test_a_fault_is_shown_by_its_witness(f: Fault, asked: list[tuple[Question, Any]]) -> None:
    assert is_shown(f, asked)


def test_the_witnesses_show_nothing_where_nothing_is_wrong(asked: list[tuple[Question, Any]]) -> None:
    for level in ("operations", "vectors"):
        judged = judge_operations if level == "operations" else judge_edge_cases
        right = EngineUnderTest(Shown(Mutant(model("seeded")), 40))
        assert all(isinstance(c, Comparison) and c.passed for c in judged(golden(), right))
    assert all(same(answer_of(Mutant(model("diffusing")), q), right) for q, right in asked)


def test_the_library_is_large_enough_and_says_what_it_must() -> None:
    assert len(FAULTS) >= 70
    assert {f.area for f in FAULTS.values()} == set(AREAS)
    assert len({f.summary for f in FAULTS.values()}) == len(FAULTS)
    for f in FAULTS.values():
        assert f.looks_like, f.name
        assert set(f.invisible_on) <= INVISIBLE.keys(), f.name


# key of INVISIBLE -> (model, tokens) on which one prefill must be the golden one, bit for bit.
BLIND = {
    "position-0": ("seeded", 1),
    "free-running": ("seeded", 40),
    "prefill": ("seeded", 40),
    "33-tokens": ("seeded", 32),
    "whole-blocks": ("kjv-ar", 40),
    "bf16-scales": ("seeded", 40),
    "trits": ("seeded", 40),
    "one-scale": ("seeded", 40),
    "small-sums": ("seeded", 40),
    "11-layers": ("seeded", 40),
    "small-gates": ("seeded", 40),
    "always": ("seeded", 40),
}


@pytest.mark.parametrize(
    ("f", "key"), [(f, key) for f in (*FAULTS.values(), clamp_127) for key in f.invisible_on if key in BLIND]
)
def test_a_fault_changes_no_bit_where_it_cannot_be_seen(f: Fault, key: str) -> None:
    name, tokens = BLIND[key]
    on = f.shown_by.model if key == "position-0" else name
    run = golden(on, tokens)
    made = f.apply(Mutant(run.checkpoint))
    if made is None:
        assert key == "11-layers"
        return
    assert _differing(run.trace.arrays, FaultyEngine(made, tokens).trace(run.tokens).arrays) == []


def _differing(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> list[str]:
    return [name for name in a if not np.array_equal(a[name], b[name])]


@pytest.mark.parametrize("name", [f.name for f in FAULTS.values() if "logits" in f.invisible_on])
def test_logits_cannot_see_what_a_norm_takes_out_again(name: str) -> None:
    """Exactly so with no eps; with one, up to it and to the ties it breaks."""
    run = golden()
    right = Mutant(replace(run.checkpoint, config=replace(run.checkpoint.config, norm_eps=1e-30)))
    made = FAULTS[name].apply(right)
    assert made is not None
    ours, theirs = (
        forward(run.tokens[:8], s.checkpoint.weights, s.config, arithmetic=s.arithmetic) for s in (right, made)
    )
    off = relative(theirs, ours)
    assert np.median(off) < 1e-5
    engines = (FaultyEngine(s, 8).trace(run.tokens[:8]).arrays for s in (right, made))
    assert _differing(*engines), "it changes something that is not the logits"


def test_clamping_at_127_is_harmless_everywhere() -> None:
    run = golden()
    made = clamp_127.apply(Mutant(run.checkpoint))
    assert made is not None
    right = EngineUnderTest(Shown(made, 40))
    outcomes = [*judge_operations(run, right), *judge_edge_cases(run, right)]
    assert all(isinstance(c, Comparison) and c.outcome == "equal" for c in outcomes)
    assert clamp_127.name not in FAULTS


def test_an_unknown_fault_names_its_neighbours() -> None:
    from tritgold.errors import EngineError

    with pytest.raises(EngineError, match=r"no such fault: found 'rope-missin'. nearest: rope-missing") as caught:
        fault("rope-missin")
    assert caught.value.kind == "unknown-fault"
