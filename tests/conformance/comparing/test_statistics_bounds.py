"""The statistics level over many right engines, none of which is accused; wrong ones are."""

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from library import model, mutant

from tritgold_conformance.comparing import statistics_bounds
from tritgold_conformance.comparing.activation_statistics import MOMENTS
from tritgold_conformance.comparing.compare import Comparison
from tritgold_conformance.comparing.statistics_bounds import judge_statistics, statistics_allowed
from tritgold_conformance.diagnosis.per_run import predicted_statistics
from tritgold_conformance.faults.fault import Mutant
from tritgold_conformance.faults.noise import KINDS
from tritgold_conformance.faults.quick import quick
from tritgold_conformance.golden.run import GoldenRun, judging_tokens

TOKENS, SEEDS = 24, 50  # each seed another input, which has its own codes near a tie


@functools.cache
def golden(seed: int) -> GoldenRun:
    checkpoint = model("seeded")
    return GoldenRun.of(checkpoint, judging_tokens(TOKENS, checkpoint.config.vocab, seed))


@functools.cache
def allowed(seed: int, runs: int) -> np.ndarray:
    """The same for every engine: so many passes of the golden model, once."""
    return statistics_allowed(golden(seed), golden(seed).trace.arrays, runs)


def failing(seed: int, given: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> list[Comparison]:
    """Comparisons that fail, of an engine that gives the statistics of every activation."""
    monkeypatch.setattr(statistics_bounds, "statistics_allowed", lambda _, __, runs: allowed(seed, runs))
    named = {name: dict(zip(MOMENTS, map(float, of), strict=True)) for name, of in given.items()}
    judged = list(judge_statistics(golden(seed), named))
    assert len(judged) == len(golden(seed).trace.arrays)
    return [c for c in judged if not c.passed]


def test_float_noise_is_never_accused(monkeypatch: pytest.MonkeyPatch) -> None:
    """50 inputs x 5 arithmetics in float32; in some of them ties break, or this would say little."""
    base, accused, broken = quick(model("seeded")), [], 0
    for seed in range(SEEDS):
        before = predicted_statistics(base, golden(seed).tokens)
        for kind, noise in KINDS.items():
            given = predicted_statistics(noise(base, seed), golden(seed).tokens)
            broken += any(n.endswith(".codes") and not np.array_equal(given[n], before[n]) for n in given)
            accused += [(seed, kind, c.name, c.what) for c in failing(seed, given, monkeypatch)]
    assert not accused  # by six runs alone input 20 is, of two ties that they broke together: then more are made
    assert broken >= 5


def test_more_runs_are_made_of_what_fails_closely_and_of_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def counted(_: GoldenRun, names: Iterable[str], runs: int) -> np.ndarray:
        made.append(runs)
        return np.full(len(list(names)), 1e-3 if runs > statistics_bounds.RUNS else 2e-4)

    monkeypatch.setattr(statistics_bounds, "statistics_allowed", counted)
    run = golden(0)
    rms = float(np.sqrt((run.trace["layers.0.ffn_act"].astype(np.float64) ** 2).mean()))
    for off, runs, passes in [(1e-4, [6], True), (5e-4, [6, 22], True), (1.5e-3, [6, 22], False), (1e-1, [6], False)]:
        made.clear()
        (found,) = [
            c for c in judge_statistics(run, {"layers.0.ffn_act": {"rms": rms * (1 + off)}}) if not isinstance(c, str)
        ]
        assert (made, found.passed) == (runs, passes), off


@pytest.mark.parametrize("fault", ["silu", "scale-divided", "truncated"])
def test_wrong_ones_fail(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: Mutant = mutant(fault)
    given: dict[str, Any] = predicted_statistics(made, golden(0).tokens)
    assert failing(0, given, monkeypatch)


def test_zeros_that_a_float_sum_misses_count_for_nothing() -> None:
    """As transformers shows them: 1e-8 where the integers sum to 0, of the linear, of the gate and after its norm."""
    arrays = golden(1).trace.arrays
    few = statistics_bounds.counted(golden(1))
    missed = [name for name in arrays if name.endswith((".gate.out", ".up.out", ".ffn_act", ".ffn_sub_norm"))]
    assert len(missed) == 4 * golden(1).checkpoint.config.layers
    for name in missed:
        layer = name.split(".")[1]
        sums = [arrays[f"layers.{layer}.{linear}.acc"] for linear in ("gate", "up")]
        own = [a for a, linear in zip(sums, ("gate", "up"), strict=True) if f".{linear}." in name] or sums
        lost = sum(np.count_nonzero(a == 0) for a in own)
        assert few[name] >= lost / arrays[name].size
    assert any((arrays[f"layers.{n}.gate.acc"] == 0).any() for n in range(golden(1).checkpoint.config.layers))
    assert few["layers.0.attn_norm"] == statistics_bounds.COUNTED / arrays["layers.0.attn_norm"].size
