"""Every comparator passes what it should and, above all, fails what it should."""

import numpy as np
import pytest

from tritgold_conformance.comparing.compare import FLUSHED, Bound, Exact, TieAwareCodes, Ulp, compare

ONES = np.ones((2, 3), np.float32)
NEXT = np.nextafter(ONES, np.float32(2))
ANY = [Exact(), Ulp(1e9, "w"), Bound(np.array(1e9), "w"), TieAwareCodes(np.full((2, 3), 0.5), 1e9, "w")]


def test_exact_fails_on_one_unit_in_one_place() -> None:
    golden = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert compare("acc", golden, golden.copy(), Exact()).outcome == "equal"
    wrong = golden.copy()
    wrong[1, 2] += 1
    outcome = compare("acc", golden, wrong, Exact())
    assert (outcome.outcome, outcome.worst, outcome.golden, outcome.engine) == ("fails", [1, 2], 5.0, 6.0)
    assert outcome.differing == 1


def test_exact_takes_wider_integers_but_no_floats() -> None:
    golden = np.arange(6, dtype=np.int32)
    assert compare("acc", golden, golden.astype(np.int64), Exact()).passed
    assert "dtype float32" in compare("acc", golden, golden.astype(np.float32), Exact()).what


def test_ulp_counts_units_of_the_golden_value() -> None:
    assert compare("x", ONES, NEXT, Ulp(1, "w")).outcome == "within"
    two = np.nextafter(NEXT, np.float32(2))
    assert compare("x", ONES, two, Ulp(1, "w")).outcome == "fails"
    assert compare("x", ONES, two, Ulp(2, "w")).outcome == "within"


def test_ulp_forgives_a_flushed_subnormal_and_nothing_larger() -> None:
    golden = np.array([FLUSHED / 2], np.float32)
    assert compare("x", golden, np.zeros(1, np.float32), Ulp(1, "w")).passed
    assert not compare("x", np.array([FLUSHED * 4], np.float32), np.zeros(1, np.float32), Ulp(1, "w")).passed


def test_bound_is_per_element() -> None:
    limit = np.array([[0.1, 0.1, 0.0], [0.1, 0.1, 0.1]])
    nudged = ONES + np.float32(0.05)
    assert not compare("x", ONES, nudged, Bound(limit, "w")).passed
    nudged[0, 2] = 1
    assert compare("x", ONES, nudged, Bound(limit, "w")).outcome == "within"


def test_codes_may_differ_by_one_at_a_tie_and_nowhere_else() -> None:
    scaled = np.array([[2.5000001, 3.2, -1.4999999]])
    golden = np.array([[3, 3, -1]], np.int8)
    tolerance = TieAwareCodes(scaled, 1e-6, "w")
    assert compare("c", golden, np.array([[2, 3, -2]], np.int8), tolerance).outcome == "ties"
    assert not compare("c", golden, np.array([[3, 4, -1]], np.int8), tolerance).passed  # 3.2 is not a tie
    assert not compare("c", golden, np.array([[1, 3, -1]], np.int8), tolerance).passed  # off by two
    assert compare("c", golden, golden, tolerance).outcome == "equal"


@pytest.mark.parametrize("tolerance", ANY, ids=lambda t: type(t).__name__)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("side", ["golden", "engine", "both"])
def test_non_finite_fails_on_either_side(tolerance: object, bad: float, side: str) -> None:
    golden, engine = ONES.copy(), ONES.copy()
    if side != "engine":
        golden[1, 1] = bad
    if side != "golden":
        engine[1, 1] = bad
    outcome = compare("x", golden, engine, tolerance)
    assert not outcome.passed
    assert "non-finite" in outcome.what
    assert "[1, 1]" in outcome.what


def test_twenty_thousand_nans_are_counted_not_skipped() -> None:
    golden = np.zeros((8, 2560), np.float32)
    outcome = compare("x", golden, np.full_like(golden, np.nan), Bound(np.array(1.0), "w"))
    assert not outcome.passed
    assert "20480 of 20480" in outcome.what


@pytest.mark.parametrize("tolerance", ANY, ids=lambda t: type(t).__name__)
def test_what_cannot_be_compared_fails(tolerance: object) -> None:
    for engine, says in [
        (None, "nothing was returned"),
        (ONES[:1], "shape [1, 3]"),
        (ONES[..., :2], "shape [2, 2]"),
        (np.array([["a"] * 3] * 2), "not numeric"),
        (np.ones((2, 3), bool), "not numeric"),
        (np.ones((2, 3), np.complex64), "not numeric"),
    ]:
        outcome = compare("x", ONES, engine, tolerance)
        assert not outcome.passed
        assert says in outcome.what
    empty = np.zeros((0, 3), np.float32)
    assert "golden array is empty" in compare("x", empty, empty, tolerance).what


def test_a_scale_twenty_percent_off_fails_the_bound_of_its_own_operation() -> None:
    """llama.cpp's ternary dot test allows 0.15 per element and passes this."""
    golden = np.linspace(-1, 1, 64, dtype=np.float32).reshape(2, 32)
    outcome = compare("out", golden, golden * np.float32(0.8), Ulp(4, "w"))
    assert not outcome.passed
    assert "constant ratio of 0.8" in outcome.what


@pytest.mark.parametrize("far", [-(2**63), 2**63 - 1])
def test_integers_so_far_off_that_their_distance_overflows_are_wrong(far: int) -> None:
    codes = np.zeros((2, 3), np.int8)
    engine = codes.astype(np.int64)
    engine[1, 2] = far
    tolerance = TieAwareCodes(np.full((2, 3), 0.5), 1e-3, "a tie")
    assert not compare("codes", codes, engine, tolerance).passed
    assert not compare("codes", codes, engine, Exact()).passed
