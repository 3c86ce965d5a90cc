"""What kind of difference it is: the shape of a failure often names the bug before any look at the code.

The tests are ordered from specific to general, and each demands that it explain the whole array, so a class is
stated only where it holds throughout.
"""

import numpy as np

_CLOSE = 1e-3  # relative: a class must fit the numbers far better than the failure differs


def classify(golden: np.ndarray, engine: np.ndarray, failed: np.ndarray) -> str:
    """The class of a failing difference, in words. Arrays are finite and of one shape; axis 0 is usually tokens.

    failed: bool, where the tolerance is exceeded.
    """
    g, e = golden.astype(np.float64), engine.astype(np.float64)
    how_many = _count(failed)
    for pattern in (_wrapped, _constant_ratio, _offset_per_token, _token_shift, _permuted_channels, _off_by_one):
        found = pattern(g, e)
        if found:
            return f"{how_many}: {found}"
    if not e.any():
        return f"{how_many}: the engine's values are all zero"
    if failed.ndim > 1 and failed.shape[0] > 1 and not failed[0].any():
        return f"{how_many}: equal at position 0, different from {int(np.argmax(_rows(failed)))} on"
    return how_many


def _count(failed: np.ndarray) -> str:
    total = int(failed.sum())
    return f"all {failed.size} differ" if total == failed.size else f"{total} of {failed.size} differ"


def _rows(failed: np.ndarray) -> np.ndarray:
    return failed.reshape(failed.shape[0], -1).any(axis=1)


def _wrapped(g: np.ndarray, e: np.ndarray) -> str:
    """Integers that left the range of a narrower type and came back on its other side.

    >>> _wrapped(np.array([877824.0, 5.0]), np.array([25856.0, 5.0]))
    'off by multiples of 65,536: sums wrapped in int16'
    """
    off = e - g
    if not off.any() or not np.array_equal(g, np.rint(g)):
        return ""
    for bits in (16, 8):
        if not (off % 2**bits).any() and np.abs(off).max() >= 2**bits:
            return f"off by multiples of {2**bits:,}: sums wrapped in int{bits}"
    return ""


def _constant_ratio(g: np.ndarray, e: np.ndarray) -> str:
    power = float((g * g).sum())
    if power == 0 or g.size < 2:
        return ""
    ratio = float((g * e).sum()) / power
    left = float(np.abs(e - ratio * g).max())
    if ratio == 0 or left > _CLOSE * abs(ratio) * float(np.abs(g).max()) or abs(ratio - 1) < 10 * _CLOSE:
        return ""
    return "sign flipped" if abs(ratio + 1) < _CLOSE else f"a constant ratio of {ratio:.6g}"


def _offset_per_token(g: np.ndarray, e: np.ndarray) -> str:
    if g.ndim != 2 or g.shape[1] < 3:
        return ""
    offset = e - g
    spread = float(np.abs(offset - offset.mean(axis=1, keepdims=True)).max())
    if spread > _CLOSE * float(np.abs(offset).max()):
        return ""
    return "differing tokens are shifted by one constant over all channels (offset correction missing or doubled?)"


def _token_shift(g: np.ndarray, e: np.ndarray) -> str:
    if g.ndim < 2 or g.shape[0] < 3:
        return ""
    scale = _CLOSE * float(np.abs(g).max())
    for shift, says in ((1, "of the token before"), (-1, "of the token after")):
        inner = slice(1, None) if shift == 1 else slice(None, -1)
        if np.abs(np.roll(g, shift, axis=0)[inner] - e[inner]).max() <= scale:
            return f"each token has the values {says}"
    return ""


def _permuted_channels(g: np.ndarray, e: np.ndarray) -> str:
    if g.ndim != 2 or g.shape[1] < 2:
        return ""
    scale = _CLOSE * float(np.abs(g).max())
    if np.abs(np.sort(g, axis=1) - np.sort(e, axis=1)).max() > scale:
        return ""
    # Equal multisets by token. One permutation for all tokens: sorted as whole columns, they are the same columns.
    ours, theirs = np.lexsort(g[::-1]), np.lexsort(e[::-1])
    if np.abs(g[:, ours] - e[:, theirs]).max() > scale:
        return ""
    moved = int((ours != theirs).sum())
    return f"channels permuted ({moved} of {g.shape[1]} moved): row order of the weight?" if moved else ""


def _off_by_one(g: np.ndarray, e: np.ndarray) -> str:
    difference = np.abs(e - g)
    if not np.array_equal(g, np.rint(g)) or difference.max() != 1:
        return ""
    # A direction that all of them have names the rounding: half to even goes both ways.
    for holds, says in (
        (np.abs(e) <= np.abs(g), ", always towards zero (truncation?)"),
        (np.abs(e) >= np.abs(g), ", always away from zero (halves rounded away?)"),
        (e >= g, ", always upwards (halves rounded up?)"),
        (e <= g, ", always downwards (floor?)"),
    ):
        if holds.all():
            return f"off by one{says}"
    return "off by one, both ways"
