"""A class is stated where it holds throughout, and not where it nearly does."""

import numpy as np
import pytest

from tritgold_conformance.comparing.classify import classify

GOLDEN = np.random.default_rng(0).standard_normal((5, 32))
RISING = np.arange(160.0).reshape(5, 32)


def says(engine: np.ndarray, golden: np.ndarray = GOLDEN) -> str:
    return classify(golden, engine, np.abs(engine - golden) > 1e-9)


def partly(value: np.ndarray) -> np.ndarray:
    """The change applied to all but the last token: the class no longer holds throughout."""
    engine = GOLDEN.copy()
    engine[:-1] = value[:-1]
    return engine


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        (GOLDEN * 2.42, "a constant ratio of 2.42"),
        (-GOLDEN, "sign flipped"),
        (GOLDEN[:, ::-1], "channels permuted (32 of 32 moved)"),
        (GOLDEN + np.arange(1, 6)[:, None], "tokens are shifted by one constant"),
        (np.roll(GOLDEN, 1, axis=0), "the values of the token before"),
        (np.zeros_like(GOLDEN), "all zero"),
    ],
)
def test_classes(engine: np.ndarray, expected: str) -> None:
    assert expected in says(engine)
    if expected not in ("all zero", "tokens are shifted by one constant"):  # these two are about the rows that differ
        assert expected.split(" (")[0] not in says(partly(engine))


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ([1.0, -1.0, 5.0], "off by one, always towards zero"),
        ([3.0, -3.0, 5.0], "off by one, always away from zero"),
        ([3.0, -1.0, 5.0], "off by one, always upwards"),
        ([1.0, -3.0, 5.0], "off by one, always downwards"),
        ([3.0, -3.0, 4.0], "off by one, both ways"),
    ],
)
def test_off_by_one_and_its_direction(engine: list[float], expected: str) -> None:
    assert expected in says(np.array([engine]), np.array([[2.0, -2.0, 5.0]]))


def test_off_by_two_is_not_off_by_one() -> None:
    assert "off by one" not in says(np.array([[4.0, -2.0, 5.0]]), np.array([[2.0, -2.0, 5.0]]))


def test_only_later_positions() -> None:
    engine = GOLDEN.copy()
    engine[2:] += np.random.default_rng(1).standard_normal((3, 32))
    assert "equal at position 0, different from 2 on" in says(engine)


def test_counts_only_where_no_class_holds() -> None:
    engine = GOLDEN + np.random.default_rng(2).standard_normal(GOLDEN.shape)
    assert says(engine) == "all 160 differ"
    engine = GOLDEN.copy()
    engine[0, 3] += 1
    assert says(engine) == "1 of 160 differ"
