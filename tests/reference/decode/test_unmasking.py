"""Which tokens a pass decides: every rule on probabilities that a reader can order by eye."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusal

from tritgold.decode.diffusion_presets import preset
from tritgold.decode.unmasking import Factor, Leftmost, Rule, Steps, Thresholds
from tritgold.options import PRESETS

SURE = np.array([0.3, 0.9, 0.5, 0.7])


@pytest.mark.parametrize(
    ("rule", "step", "decided"),
    [
        (Thresholds((0.5,)), 0, [1, 3]),
        (Thresholds((0.5,), inclusive=True), 0, [1, 2, 3]),
        (Thresholds((0.9,)), 0, [1]),
        (Thresholds((0.0,)), 0, [0, 1, 2, 3]),
        (Thresholds((1.0,)), 7, [1]),
        (Thresholds((0.2, 0.6)), 0, [0, 1, 2, 3]),
        (Thresholds((0.2, 0.6)), 1, [1, 3]),
        (Thresholds((0.2, 0.6)), 9, [1, 3]),
        # the second needs 1 - 1/3, the third 1 - 1/4, the fourth 1 - 1/5
        (Factor(1.0), 0, [1, 3]),
        (Factor(0.8), 0, [1]),  # 1 - 0.8/3 is 0.73
        (Factor(2.0), 0, [1, 2, 3]),  # 0.33, 0.5 and 0.6
        (Factor(3.5), 0, [1, 2, 3]),  # 0.3
        (Factor(3.6), 0, [0, 1, 2, 3]),
        (Factor(2.0, accepts_last=True), 0, [0, 1, 2, 3]),
        (Factor(1.0, accepts_last=True), 0, [1, 3]),
        (Steps(4), 0, [1]),
        (Steps(2), 0, [1, 3]),
        (Steps(3), 0, [1, 3]),
        (Steps(3), 2, [0, 1, 2, 3]),
        (Steps(3), 3, [0, 1, 2, 3]),
        (Leftmost(), 0, [0]),
    ],
)
def test_decided(rule: Rule, step: int, decided: list[int]) -> None:
    assert np.flatnonzero(rule.decided(SURE, step)).tolist() == decided


@pytest.mark.parametrize("rule", [Thresholds((1.0,)), Factor(0.1), Steps(3), Leftmost()])
@pytest.mark.parametrize("last", [False, True])
def test_of_equals_the_first_or_the_last_goes_first(rule: Rule, last: bool) -> None:
    chosen = rule.decided(np.full(3, 0.4), 0, last)
    assert np.flatnonzero(chosen).tolist() == ([2] if last and not isinstance(rule, Leftmost) else [0])


def test_a_factor_that_accepts_the_last_alone() -> None:
    """One masked token is decided either way; of two, where the second fails, both are."""
    assert Factor(1.0, accepts_last=True).decided(np.array([0.1]), 0).tolist() == [True]
    assert Factor(1.0).decided(np.array([0.6, 0.6]), 0).tolist() == [True, False]
    assert Factor(1.0, accepts_last=True).decided(np.array([0.6, 0.6]), 0).tolist() == [True, True]


@pytest.mark.parametrize(
    ("threshold", "values"),
    [(0.9, (0.5, 0.7, 0.9)), (1.0, (0.6, 0.8, 1.0)), (0.7, (0.5, 0.7, 0.7)), (0.5, (0.5, 0.7, 0.5))],
)
def test_thresholds_of_the_adaptive_way(threshold: float, values: tuple[float, ...]) -> None:
    assert PRESETS["adaptive"].thresholds(threshold) == pytest.approx(values, abs=1e-15)


@given(st.integers(1, 40), st.integers(1, 12))
def test_steps_decide_everything_in_so_many_passes(masked: int, steps: int) -> None:
    """As the released program counts them: m // steps each, and one more in the first m % steps."""
    left, shares = masked, []
    while left:
        shares.append(int(Steps(steps).decided(np.zeros(left), len(shares)).sum()))
        left -= shares[-1]
    known = [masked // steps + (step < masked % steps) for step in range(steps)]
    assert shares == [share for share in known if share]


@pytest.mark.parametrize("values", [(), (-0.1,), (float("nan"),), (0.5, -1.0), (1.5,), (True,), (10**400,)])
def test_thresholds_that_are_refused(values: tuple[float, ...]) -> None:
    assert refusal(lambda: Thresholds(values)).kind == "threshold"
    assert refusal(lambda: preset("adaptive", *values[-1:] or (2,))).kind == "threshold"


def test_other_refusals() -> None:
    assert [refusal(lambda f=f: Factor(f)).kind for f in (0, -1.0, float("nan"), True)] == ["threshold"] * 4
    assert [refusal(lambda n=n: Steps(n)).kind for n in (0, -1, 1.5)] == ["steps"] * 3
