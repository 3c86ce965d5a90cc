"""TernaryTensor: what it refuses at construction, so that arithmetic need not look again."""

from typing import Any

import numpy as np
import pytest
from refusals import refusal

from tritgold.errors import PackingError
from tritgold.ternary import DenseMatrix, InMemoryTernary, LinearWeight, TernaryTensor

TRITS = np.array([[1, 0, -1, 1], [0, 0, 1, -1]], np.int8)
ONE = np.asarray(np.float32(0.5))


def scales(*rows: list[float]) -> np.ndarray:
    return np.array(rows, np.float32)


def test_one_scale_or_one_a_block() -> None:
    assert TernaryTensor(TRITS, ONE).dense().tolist() == [[0.5, 0, -0.5, 0.5], [0, 0, 0.5, -0.5]]
    blocks = TernaryTensor(TRITS, scales([1, 2], [3, 4]))
    assert blocks.dense().tolist() == [[1, 0, -2, 2], [0, 0, 4, -4]]
    assert blocks.shape == (2, 4)
    assert blocks.dense().dtype == np.float32
    assert TernaryTensor(TRITS, np.float32(0.5)).scale.shape == ()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("scale", "kind"),
    [
        (np.asarray(0.5), "scale-dtype"),
        (np.asarray(1), "scale-dtype"),
        (np.asarray(np.float16(0.5)), "scale-dtype"),
        (scales([1, 2, 3], [1, 2, 3]), "scale-shape"),
        (scales([1]), "scale-shape"),
        (scales([], []), "scale-shape"),
        (np.ones(1, np.float32), "scale-shape"),
        (np.ones((2, 1, 1), np.float32), "scale-shape"),
        (np.asarray(np.float32(np.nan)), "scale-non-finite"),
        (np.asarray(np.float32(np.inf)), "scale-non-finite"),
        (scales([1, 1], [1, -np.inf]), "scale-non-finite"),
    ],
)
def test_scales_that_are_refused(scale: np.ndarray, kind: str) -> None:
    error = refusal(lambda: TernaryTensor(TRITS, scale))
    assert isinstance(error, PackingError)
    assert error.kind == kind


def test_the_block_of_a_bad_scale_is_named() -> None:
    assert "not finite at [1, 0]" in str(refusal(lambda: TernaryTensor(TRITS, scales([1, 1], [np.nan, 1]))))


@pytest.mark.parametrize("bad", [2, -2, 127, -128])
def test_the_first_value_that_is_no_trit_is_named(bad: int) -> None:
    trits = TRITS.copy()
    trits[1, 2] = bad
    error = refusal(lambda: TernaryTensor(trits, ONE))
    assert f"not a trit at [1, 2]: found {bad}, expected -1, 0 or +1" in str(error)


@pytest.mark.parametrize("bad", [TRITS.astype(bool), TRITS.astype(np.float32), TRITS[0], TRITS[None], [[1]], None])
def test_what_is_no_int8_matrix_is_refused(bad: Any) -> None:
    assert refusal(lambda: TernaryTensor(bad, ONE)).kind in ("trits-dtype", "trits-shape")


def test_with_one_scale() -> None:
    assert TernaryTensor(TRITS, ONE).with_one_scale().scale == 0.5
    same = TernaryTensor(TRITS, scales([2, 2], [2, 2])).with_one_scale()
    assert (same.scale.shape, float(same.scale)) == ((), 2.0)
    # Row 1's first block is all zeros, and its scale is not asked.
    assert TernaryTensor(TRITS, scales([2, 2], [7, 2])).with_one_scale().scale == 2
    error = refusal(TernaryTensor(TRITS, scales([2, 2], [2, 7])).with_one_scale)
    assert error.kind == "block-scales"
    assert "absmean would change" in str(error)  # never advised: it gives another model
    negative = refusal(TernaryTensor(TRITS, scales([2, 2], [2, -2])).with_one_scale)
    assert negative.kind == "block-scales"


def test_a_tensor_cannot_be_changed_into_one_with_another_scale() -> None:
    with pytest.raises(AttributeError):
        TernaryTensor(TRITS, ONE).scale = ONE  # type: ignore[misc]


def test_an_in_memory_weight_is_a_linear_weight() -> None:
    weight = InMemoryTernary(TernaryTensor(TRITS, ONE))
    assert isinstance(weight, LinearWeight)
    assert not isinstance(weight, DenseMatrix)
    assert (weight.shape, weight.master) == ((2, 4), None)
    assert weight.ternary() is weight.tensor


def test_scales_of_rows() -> None:
    trits = np.array([[1, 0, 0, -1], [0, 0, 1, 0], [0, 0, 0, 0]], np.int8)
    tensor = TernaryTensor(trits, np.array([[2, 2], [9, 3], [7, 8]], np.float32)).with_scales_of_rows()
    assert tensor.scale.tolist() == [[2], [3], [3]]  # silent blocks are not asked; a silent row has the largest
    assert tensor.trits is trits
    one = TernaryTensor(trits, np.array([[2, 2], [9, 2], [7, 8]], np.float32)).with_scales_of_rows()
    assert one.scale.shape == ()
    assert one.scale == 2


def test_two_scales_in_a_row_are_refused_by_their_row() -> None:
    trits = np.array([[1, 0, 0, -1], [1, 1, 1, 0]], np.int8)
    error = refusal(lambda: TernaryTensor(trits, np.array([[2, 2], [3, 4]], np.float32)).with_scales_of_rows())
    assert error.kind == "block-scales"
    assert "row 1" in str(error)
    assert "2 scales from 3.0 to 4.0" in str(error)
