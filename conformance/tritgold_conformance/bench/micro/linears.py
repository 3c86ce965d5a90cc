"""Unpacking, joined matrices, and products in which half of the activations are left out."""

from typing import Any

import numpy as np

from tritgold.config import ModelConfig
from tritgold.formats.packings import packing
from tritgold.formats.packings.table_unpacking import code_table
from tritgold.layers.bit_linear import accumulate
from tritgold.quantize import absmax_int8
from tritgold.sparsity.rules import sparsity_rule
from tritgold_conformance.bench.matrices import codes_of, matrix
from tritgold_conformance.bench.micro.way import Way, equal, of_xla
from tritgold_conformance.bench.shapes import SEED

GROUPS = {"qkv": ("q", "k", "v"), "gate-up": ("gate", "up")}
FEW = 4  # most tokens whose columns NumPy gathers; the time is scaled up to all
PACKED = ("hf", "i2_s", "tq1_0", "tq2_0", "iq2_bn")
Case = dict[str, Any]


def unpack(case: Case, xla: Any) -> list[Way]:
    """Packed bytes -> trits int8 [out, in]."""
    out, in_ = map(int, case["matrix"].split("x"))
    trits = matrix(out, in_)
    right, moved = equal(trits), trits.size // 4
    ways = []
    if in_ % 4 == 0:
        packed = np.frombuffer(packing("sequential").pack(trits), np.uint8).reshape(out, in_ // 4)
        meaning = code_table().astype(np.int8) - 1  # [256, 4]
        shifts = np.arange(0, 8, 2, dtype=np.uint8)

        def shifted() -> np.ndarray:
            return ((packed[:, :, None] >> shifts & 3).astype(np.int8) - 1).reshape(out, in_)

        def looked_up() -> np.ndarray:
            return meaning[packed].reshape(out, in_)

        ways = [
            Way("shifts", "four shifts and masks a byte", shifted, right, moved=moved),
            Way(
                "table",
                "256 x 4 values, a look-up a byte",
                looked_up,
                right,
                moved=moved,
            ),
        ]
    for name in PACKED:
        layout = packing(name)
        if _refuses(layout, trits):
            continue
        data = layout.pack(trits, np.float32(1))

        def read(layout: Any = layout, data: bytes = data) -> np.ndarray:
            return layout.unpack(data, (out, in_)).trits

        ways.append(Way(f"format {name}", "as the checkpoint reader does", read, right, moved=len(data)))
    return ways + (of_xla(xla.unpack(trits), right) if xla is not None else [])


def _refuses(layout: Any, trits: np.ndarray) -> bool:
    try:
        layout.packed_size(trits.shape)
    except Exception:
        return True
    return False


def fused(config: ModelConfig, case: Case, xla: Any) -> list[Way]:
    """q, k and v, or gate and up, one by one or as one matrix."""
    sizes = [config.linear_shape(name) for name in GROUPS[case["group"]]]
    trits = [matrix(out, in_) for out, in_ in sizes]
    joined, codes = np.concatenate(trits), codes_of(case["tokens"], sizes[0][1])
    right = equal(accumulate(codes, joined))
    floats, whole, x = [t.astype(np.float32) for t in trits], joined.astype(np.float32), codes.astype(np.float32)
    ways = [
        Way("one by one", "float32, BLAS", lambda: np.concatenate([x @ f.T for f in floats], axis=1), right),
        Way("joined", "float32, BLAS, one matrix", lambda: x @ whole.T, right),
    ]
    return ways + (of_xla(xla.fused(trits, codes), right) if xla is not None else [])


def sparse_linear(config: ModelConfig, case: Case, xla: Any) -> list[Way]:
    """The down projection of all activations, and of those that a sparsity rule keeps."""
    out, in_ = config.linear_shape("down")
    trits = matrix(out, in_)
    x = np.random.default_rng(SEED).standard_normal((case["tokens"], in_)).astype(np.float32)
    rule: Any = sparsity_rule("top_k", keep=float(case["keep"]))
    dense_codes, (kept_codes, _) = absmax_int8(x)[0], rule.quantize(x, "down_in", absmax_int8)
    some = equal(accumulate(kept_codes[:FEW], trits))
    dense, kept = equal(accumulate(dense_codes, trits)), equal(accumulate(kept_codes, trits))
    floats, few = trits.astype(np.float32), min(FEW, len(x))
    count = int(np.count_nonzero(rule.mask(x)[0]))

    def codes_left() -> np.ndarray:
        return rule.quantize(x, "down_in", absmax_int8)[0]

    def gathered() -> np.ndarray:
        found = []
        for row in codes_left()[:few]:
            at = np.flatnonzero(row)
            found.append(row[at].astype(np.float32) @ floats[:, at].T)
        return np.stack(found)

    why = f"{count} of {in_} a token"
    ways = [
        Way("dense", "all activations", lambda: absmax_int8(x)[0].astype(np.float32) @ floats.T, dense),
        Way("top-k, masked", f"{why}, zeros multiplied", lambda: codes_left().astype(np.float32) @ floats.T, kept),
        Way("top-k, gathered", f"{why}, their columns alone", gathered, some, units=few / len(x)),
    ]
    if xla is not None:
        whole, *sparse = xla.sparse_linear(trits, dense_codes, kept_codes)
        ways += of_xla([whole], dense) + of_xla(sparse, kept)
    return ways
