"""One ternary matrix, int8 codes, and every way to multiply them: what is exact, and how long it takes.

NumPy's ways are what a first implementation does, and what the packing formats are made for: a loop over rows in
int32; look-up tables over the packed bytes; float32 weights unpacked once and kept. The engine's own come on top.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tritgold.formats.packings import packing
from tritgold.formats.packings.table_unpacking import code_table
from tritgold.layers.bit_linear import accumulate
from tritgold_conformance.bench.shapes import SEED
from tritgold_conformance.bench.synthetic import trits as drawn

SAMPLE = 256  # rows of the slow ways, which would take minutes for all of them


class Way(NamedTuple):
    """name, why: of a way to multiply. moved: bytes of its weights. rows: of the matrix that it is run on; where these
    are fewer than all, its seconds are multiplied. run: codes int8 [tokens, in] -> the products [tokens, rows].
    """

    name: str
    why: str
    moved: int
    rows: int
    run: Callable[[np.ndarray], Any]


def matrix(out: int, in_: int) -> np.ndarray:
    """Random trits int8 [out, in], the same for the same sizes."""
    return drawn(SEED, 0, -(-out * in_ // 16) * 16)[: out * in_].reshape(out, in_)


def codes_of(tokens: int, in_: int) -> np.ndarray:
    """Random codes int8 [tokens, in], -128 among them."""
    return np.random.default_rng(SEED).integers(-128, 128, (tokens, in_)).astype(np.int8)


def numpy_ways(weights: np.ndarray) -> list[Way]:
    """Ways in NumPy over trits int8 [out, in]."""
    out, in_ = weights.shape
    rows = min(SAMPLE, out)
    few = weights[:rows].astype(np.int32)
    kept = weights.astype(np.float32)
    ways = [
        Way("naive", "a loop over rows, int32", 4 * out * in_, rows, lambda codes: _loop(codes, few)),
        Way("cached f32", "unpacked once to float32, BLAS", 4 * out * in_, out, lambda codes: _blas(codes, kept)),
    ]
    if in_ % 4 == 0:
        packed = np.frombuffer(packing("sequential").pack(weights[:rows]), np.uint8).reshape(rows, in_ // 4)
        why = "256 sums for each four codes, then one look-up a byte"
        ways.insert(1, Way("look-up table", why, out * in_ // 4, rows, lambda codes: _table(codes, packed)))
    return ways


def _loop(codes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    wide = codes.astype(np.int32)
    return np.stack([(wide * row).sum(axis=1, dtype=np.int32) for row in weights], axis=1)


def _table(codes: np.ndarray, packed: np.ndarray) -> np.ndarray:
    """packed: uint8 [rows, in / 4], four columns a byte, the first in its lowest bits; code = trit + 1."""
    runs = packed.shape[1]
    meaning = code_table().astype(np.int32) - 1  # [256, 4]
    at = np.arange(runs, dtype=np.intp) * 256 + packed
    found = []
    for token in codes:
        sums = token.reshape(runs, 4).astype(np.int32) @ meaning.T
        found.append(np.take(sums.reshape(-1), at).sum(axis=1, dtype=np.int32))
    return np.stack(found)


def _blas(codes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return codes.astype(np.float32) @ weights.T


def wrong(way: Way, codes: np.ndarray, weights: np.ndarray) -> str:
    """What is wrong with a way's products; empty where every one is the golden integer."""
    found = np.asarray(way.run(codes))
    expected = accumulate(codes, weights[: way.rows])
    if found.shape != expected.shape:
        return f"products {list(found.shape)}, expected {list(expected.shape)}"
    differ = int((found != expected).sum())  # float32 holds these integers exactly, NaN is never equal
    return f"{differ} of {expected.size} products differ from the golden ones" if differ else ""


def seconds_of(way: Way, codes: np.ndarray, out: int) -> float:
    """Of one product, as if it had all ``out`` rows."""
    begin = time.perf_counter()
    way.run(codes)
    return (time.perf_counter() - begin) * (out / way.rows)
