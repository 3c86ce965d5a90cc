"""The checker that remembers what it has accepted refuses what it has not: by argument, by result, by value."""

from contextlib import nullcontext
from typing import Literal

import numpy as np
import pytest
from beartype import beartype
from jaxtyping import Float32, TypeCheckError
from shape_checks import once_a_shape

Rows = Float32[np.ndarray, "rows width"]


def turned(rows: int, width: int, dtype: type = np.float32) -> np.ndarray:
    return np.zeros((rows, width), dtype)


def test_what_was_accepted_before_changes_nothing_for_what_was_not() -> None:
    calls: list[int] = []

    @once_a_shape(typechecker=beartype)
    def added(x: Rows, y: Rows, how: Literal["right", "turned"] = "right") -> Rows:
        calls.append(len(x))
        return x + y if how == "right" else (x + y).T

    x = turned(2, 3)
    for _ in range(3):
        assert added(x, x).shape == (2, 3)
    assert added(turned(4, 5), turned(4, 5)).shape == (4, 5)
    assert len(calls) == 4
    with pytest.raises(TypeCheckError):
        added(x, turned(2, 4))
    with pytest.raises(TypeCheckError):
        added(x, turned(2, 3, np.float64))
    with pytest.raises(TypeCheckError):
        added(x, [x])
    with pytest.raises(TypeCheckError):
        added(x, x, "other")  # type: ignore[arg-type]
    assert len(calls) == 4, "refused before the call"
    for _ in range(2):  # a refusal is not remembered as accepted
        with pytest.raises(TypeCheckError):
            added(x, x, "turned")
    assert added(turned(2, 2), turned(2, 2), how="turned").shape == (2, 2)


def test_results_of_the_same_arguments_are_looked_at_each_time() -> None:
    answers = [turned(2, 3), turned(2, 3), turned(3, 3), turned(2, 3), [turned(2, 3)], turned(2, 3)]

    @once_a_shape(typechecker=beartype)
    def cut(x: Rows) -> Rows:
        return answers.pop(0)

    for wrong in (False, False, True, False, True, False):
        with pytest.raises(TypeCheckError) if wrong else nullcontext():
            assert cut(turned(2, 3)).shape == (2, 3)


def test_a_container_is_looked_at_each_time() -> None:
    @once_a_shape(typechecker=beartype)
    def first(rows: list[Rows]) -> Rows:
        return rows[0]

    assert first([turned(2, 3)]).shape == (2, 3)
    with pytest.raises(TypeCheckError):
        first([turned(2, 3, np.float64)])
