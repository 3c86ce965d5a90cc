"""Distances from ties, in both ways of having scales: one a token that multiplies, one a block that divides."""

import numpy as np
import pytest

from tritgold_conformance.comparing.ties import distance_from_tie, other_codes


def test_one_scale_a_token() -> None:
    x, scale, codes = np.array([[1.2, -0.3]], np.float32), np.array([2], np.float32), np.array([[2, -1]], np.int8)
    others = other_codes(x, scale, codes)
    assert others.tolist() == [[3, 0]]
    assert distance_from_tie(x, scale, codes, others)[0] == pytest.approx([0.1, 0.1])


def test_one_scale_a_block() -> None:
    """Q8_K: x = code * scale, the sign of the scale included. The blocks here have two channels."""
    x = np.array([[1.2, -0.3, 1.2, -0.3]], np.float32)
    scale, codes = np.array([[-0.5, 2]], np.float32), np.array([[-2, 1, 1, 0]], np.int8)
    others = other_codes(x, scale, codes)
    assert others.tolist() == [[-3, 0, 0, -1]]
    assert distance_from_tie(x, scale, codes, others)[0] == pytest.approx([0.1, 0.1, 0.1, 0.35])


def test_a_silent_block_is_far_from_any_tie() -> None:
    x, scale, codes = np.zeros((1, 2), np.float32), np.zeros((1, 1), np.float32), np.zeros((1, 2), np.int8)
    assert distance_from_tie(x, scale, codes, other_codes(x, scale, codes)).tolist() == [[0.5, 0.5]]
