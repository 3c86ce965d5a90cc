"""How far two arrays are from each other, as one number: what candidates are ranked by."""

import numpy as np

NOTHING = 1e-8  # stands for equal where a mean of logarithms is taken: below the rounding of float32


def distance(ours: np.ndarray, theirs: object, token_axis: int = 0) -> float:
    """Root mean square, over the tokens, of |ours - theirs| / |theirs| of each token.

    0 where the two are equal. Infinite for another shape, for no numbers, and where one is not finite and the other
    is; places where both are infinite with one sign, or both NaN, count as equal. A token of zeros counts as 1.
    """
    a, b = np.asarray(ours), np.asarray(theirs)
    if a.shape != b.shape or not a.size or (b.dtype.kind not in "iuf" and b.dtype.name != "bfloat16"):
        return float("inf")
    if np.array_equal(a, b):
        return 0.0
    r = relative(a, b, token_axis)
    return float(np.sqrt(np.mean(np.minimum(r, 1e6) ** 2))) if np.isfinite(r).all() else float("inf")


def relative(ours: np.ndarray, theirs: np.ndarray, token_axis: int = 0) -> np.ndarray:
    """|ours - theirs| / |theirs| of each token, float64 [tokens]; shapes must agree. See ``distance``.

    >>> relative(np.array([[3.0, 4.0], [1.0, 0.0]]), np.array([[3.0, 4.0], [0.5, 0.0]])).tolist()
    [0.0, 1.0]
    """
    a, b = (_rows(np.asarray(x, np.float64), token_axis) for x in (ours, theirs))
    bad = ~np.isfinite(a) | ~np.isfinite(b)
    same = bad & ((a == b) | (np.isnan(a) & np.isnan(b)))
    a, b = np.where(bad, 0.0, a), np.where(bad, 0.0, b)
    difference, size = (np.sqrt((x * x).sum(axis=1)) for x in (a - b, b))
    r = np.divide(difference, size, out=np.where(difference > 0, 1.0, 0.0), where=size > 0)
    return np.where((bad & ~same).any(axis=1), np.inf, r)


def geometric(r: np.ndarray) -> float:
    """The geometric mean of distances [n], each at least NOTHING; infinite where one is.

    A broken tie spoils the positions after it and no other: a geometric mean is led by those that agree.

    >>> round(geometric(np.array([0.0, 1e-2])), 12)
    1e-05
    """
    if not r.size or not np.isfinite(r).all():
        return float("inf")
    return float(10 ** np.mean(np.log10(np.maximum(r, NOTHING))))


def _rows(x: np.ndarray, token_axis: int) -> np.ndarray:
    moved = np.moveaxis(x, token_axis, 0)
    return moved.reshape(len(moved), -1)
