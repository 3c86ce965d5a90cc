"""What the measurements have in common: rounding, cosines, and one JSON object on stdout."""

import json
from typing import Any

import numpy as np

from tritgold.portable_math import pairwise_sum

DIGITS = 6


def rounded(value: float) -> float:
    """To DIGITS significant digits.

    >>> rounded(0.123456789)
    0.123457
    """
    return float(f"{value:.{DIGITS}g}")


def cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of the rows of two real arrays [..., n]: float64 [...], sums in fixed order; 0 where a row has no direction.

    >>> cosine(np.array([[3.0, 4.0], [1.0, 0.0]]), np.array([[3.0, 4.0], [1.0, 1.0]])).round(4).tolist()
    [1.0, 0.7071]
    """
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    norms = np.sqrt(pairwise_sum(a * a) * pairwise_sum(b * b))
    return np.where(norms > 0, pairwise_sum(a * b) / np.where(norms > 0, norms, 1.0), 0.0)


def mean(values: np.ndarray) -> float:
    """In fixed order, rounded."""
    flat = np.asarray(values, np.float64).reshape(-1)
    return rounded(float(pairwise_sum(flat)) / flat.size)


def lines(report: dict[str, Any]) -> str:
    """The report as JSON with a line for every row, so that a change can be read in a diff."""
    parts = []
    for key, value in report.items():
        if isinstance(value, list):
            rows = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in value)
            parts.append(f" {json.dumps(key)}: [\n{rows}\n ]")
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
    return "{\n" + ",\n".join(parts) + "\n}"


def show(report: dict[str, Any]) -> None:
    """The report on stdout."""
    print(lines(report))
