"""One ternary matrix, int8 codes, and every kernel that multiplies them: whether it is exact, and how fast.

NumPy's kernels are what a first implementation does, and what the packing formats are made for: a loop over rows in
int32; look-up tables over the packed bytes; float32 weights unpacked once and kept; those of ``lut_kernels``. An
engine's own kernels are added to them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tritgold.formats.packings import packing
from tritgold.formats.packings.table_unpacking import code_table
from tritgold.layers.bit_linear import accumulate
from tritgold_conformance.bench.shapes import SEED
from tritgold_conformance.bench.synthetic import trits as drawn
from tritgold_conformance.bench.timing import timed
from tritgold_conformance.engines import lut_kernels as lut


class Kernel(NamedTuple):
    """name, why: of a way to multiply. bytes_moved: of its weights. rows: of the matrix that it runs on; if these are
    not all, its seconds are scaled up. run: codes int8 [tokens, in] -> the products [tokens, rows].
    """

    name: str
    why: str
    bytes_moved: int
    rows: int
    run: Callable[[np.ndarray], Any]


def matrix(out: int, in_: int) -> np.ndarray:
    """Random trits int8 [out, in], the same for the same sizes."""
    return drawn(SEED, 0, -(-out * in_ // 16) * 16)[: out * in_].reshape(out, in_)


def codes_of(tokens: int, in_: int) -> np.ndarray:
    """Random codes int8 [tokens, in], -128 among them."""
    return np.random.default_rng(SEED).integers(-128, 128, (tokens, in_)).astype(np.int8)


def numpy_kernels(weights: np.ndarray) -> list[Kernel]:
    """Kernels in NumPy over trits int8 [out, in]."""
    out, in_ = weights.shape
    rows = min(lut.SAMPLE, out)
    few, kept = weights[:rows].astype(np.int32), weights.astype(np.float32)

    def loop(codes: np.ndarray) -> np.ndarray:
        wide = codes.astype(np.int32)
        return np.stack([(wide * row).sum(axis=1, dtype=np.int32) for row in few], axis=1)

    kernels = [
        Kernel("naive", "a loop over rows, int32", 4 * out * in_, rows, loop),
        Kernel("cached f32", "unpacked once to float32, BLAS", 4 * out * in_, out, lambda c: c.astype("f4") @ kept.T),
    ]
    half = weights.astype(np.float16)
    few_of = weights[:rows]

    def widened(codes: np.ndarray) -> np.ndarray:
        return codes.astype(np.float32) @ half.astype(np.float32).T

    kernels += [
        Kernel(
            "f16, widened",
            "float16, widened for each product",
            2 * out * in_,
            out,
            widened,
        ),
        Kernel("w + 1, rows", "codes 0 to 2, the codes' sum kept", out * in_ // 4, rows, lut.shifted_by_rows(few_of)),
        Kernel("w + 1, columns", "the same, columns outside", out * in_ // 4, rows, lut.shifted_by_columns(few_of)),
    ]
    if in_ % 4 == 0:
        for name, table in (("TL1", lut.tl1(few_of)), ("TL2", lut.tl2(few_of))):
            why = f"its tables of sums, {8 * table.bytes / few_of.size:.2f} bits a weight"
            kernels.append(Kernel(name, why, table.bytes * out // rows, rows, lut.table_product(table)))
        packed = np.frombuffer(packing("sequential").pack(weights[:rows]), np.uint8).reshape(rows, in_ // 4)
        why = "256 sums for each four codes, then one look-up a byte"
        kernels.insert(1, Kernel("look-up table", why, out * in_ // 4, rows, lambda codes: _table(codes, packed)))
    return kernels


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


def wrong(kernel: Kernel, codes: np.ndarray, weights: np.ndarray) -> str:
    """What is wrong with a kernel's products; empty if every one is the golden integer."""
    found = np.asarray(kernel.run(codes))
    expected = accumulate(codes, weights[: kernel.rows])
    if found.shape != expected.shape:
        return f"products {list(found.shape)}, expected {list(expected.shape)}"
    differ = int((found != expected).sum())  # float32 holds these integers exactly, NaN is never equal
    return f"{differ} of {expected.size} products differ from the golden ones" if differ else ""


def seconds_of(kernel: Kernel, codes: np.ndarray, out: int) -> float:
    """Seconds of one product, scaled up to all ``out`` rows."""
    return timed(lambda: kernel.run(codes))[0] * (out / kernel.rows)
