"""L0: packed bytes of every format -> trits and scales, with rows that do not fit any tile if the format allows it."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tritgold.formats.packings import packing
from tritgold.formats.packings.packing_base import Packing
from tritgold_conformance.case_vectors.draft import COLUMNS, Draft, Group, scale_of, trits

Shape = tuple[int, int]
ROWS_OF_HF = (1, 5, 7, 8, 9, 6, 3, 2, 4, 10, 13)  # of these only 4 and 8 fill bytes


def _any_columns(rows: int) -> list[Shape]:
    return [(rows, n) for n in COLUMNS]


# Folder -> packing, its options, shapes, and scales: none, one float32, one with few bits (short), or one per block.
LAYOUTS: dict[str, tuple[str, dict[str, Any], list[Shape], str]] = {
    "hf": ("hf", {}, list(zip(ROWS_OF_HF, COLUMNS, strict=True)), "none"),
    "i2_s": ("i2_s", {}, [(4, 160) if n == 160 else (128, n) for n in COLUMNS], "one"),
    "i2_s-64": ("i2_s", {"block": 64}, [(2, 160) if n == 160 else (64, n) for n in COLUMNS], "one"),
    "i2_s_4rows": ("i2_s_4rows", {}, [*_any_columns(4), (12, 33)], "one"),
    "sglbitnt": ("sglbitnt", {}, [(1, 128), (3, 384)], "none"),
    "sequential-lsb": ("sequential", {"order": "lsb"}, [(3, 4), (2, 160), (1, 256)], "none"),
    "sequential-msb": ("sequential", {"order": "msb"}, [(3, 4), (2, 160), (1, 256)], "none"),
    "torchao": ("torchao", {}, [(3, 4), (2, 160), (1, 256)], "none"),
    "gpu_int2": ("gpu_int2", {}, [(16, 32), (48, 96)], "none"),
    "tl1": ("tl1", {"BM": 128, "BK": 64, "bm": 32}, [(128, 64), (256, 128)], "one"),
    "tl1-bm64": ("tl1", {"BM": 64, "BK": 16, "bm": 64}, [(64, 48)], "one"),
    "tl2": ("tl2", {"BM": 128, "BK": 96}, [(128, 256), (128, 320)], "one"),
    "tl2-bm32": ("tl2", {"BM": 32, "BK": 96}, [(32, 352)], "one"),
    "tq1_0": ("tq1_0", {}, [(1, 256), (3, 512)], "blocks"),
    "tq2_0": ("tq2_0", {}, [(1, 256), (3, 512)], "blocks"),
    "q2_0-64": ("q2_0", {"block": 64}, [(1, 64), (3, 192)], "blocks"),
    "q2_0-128": ("q2_0", {"block": 128}, [(1, 128), (3, 256)], "blocks"),
    "q1_0": ("q1_0", {}, [(1, 128), (3, 256)], "blocks"),
    "f32": ("f32", {}, _any_columns(2), "one"),
    "f16": ("f16", {}, _any_columns(2), "short"),
    "bf16": ("bf16", {}, _any_columns(2), "short"),
    "iq1_bn": ("iq1_bn", {}, [(1, 64), (3, 192)], "blocks"),
    "iq2_bn": ("iq2_bn", {}, [(1, 64), (3, 192)], "blocks"),
    "iq2_bn_r4": ("iq2_bn_r4", {}, [(4, 64), (8, 192)], "blocks"),
}
_MARKED = {0: 1, 1: -1, 32: 1, 127: -1}  # columns of an I2_S block: another order finds the non-zeros elsewhere


def groups() -> Iterator[Group]:
    """A group for each layout."""
    for number, (folder, (name, options, shapes, _)) in enumerate(LAYOUTS.items()):
        said = "".join(f", {key} {value}" for key, value in options.items())
        drafts = [*_random(folder, number, shapes), *_constant(folder, shapes[0])]
        if name in ("i2_s", "sglbitnt"):
            drafts.append(_marked(folder))
        if name == "tq2_0":
            drafts.append(_planes())
        yield Group(f"files/{folder}", "files", f"Packed bytes of {name}{said}: trits, and the scale.", drafts)


def layout_of(parameters: Any) -> Packing:
    """The packing that a case's parameters name."""
    return packing(parameters["format"], **parameters["options"])


def unpack(folder: str, label: str, why: str, data: bytes, shape: Shape, **more: Any) -> Draft:
    """A case: packed bytes of a matrix of this shape."""
    name, options, _, _ = LAYOUTS[folder]
    parameters = {"format": name, "options": options, "shape": list(shape)}
    return Draft(label, "unpack", why, parameters, {"data": np.frombuffer(data, np.uint8)}, **more)


def _random(folder: str, number: int, shapes: list[Shape]) -> Iterator[Draft]:
    for at, shape in enumerate(shapes):
        seed = 1000 * (number + 1) + at
        data = packed(folder, _held(folder, trits(seed, shape)), seed)
        why = "random trits: no permutation of them looks right"
        yield unpack(folder, f"random-{shape[0]}x{shape[1]}", why, data, shape, seed=seed)


def _constant(folder: str, shape: Shape) -> Iterator[Draft]:
    for label, value in (("all-minus", -1), ("all-zero", 0), ("all-plus", 1)):
        data = packed(folder, np.full(shape, value, np.int8), 500)
        why = f"every trit {value}: the byte of the padding is not the byte of zeros"
        yield unpack(folder, label, why, data, shape)


def _marked(folder: str) -> Draft:
    row = np.zeros((1, 128), np.int8)
    for column, trit in _MARKED.items():
        row[0, column] = trit
    if folder == "i2_s-64":
        row = np.concatenate([row, np.zeros((1, 128), np.int8)])
    why = "one block with four non-zeros at 0, 1, 32 and 127: where they come out tells the order that was read"
    return unpack(folder, "four-non-zeros", why, packed(folder, row, 501), (len(row), 128))


def _planes() -> Draft:
    """Its bytes 0, 1, 32 and 63 are 5a, 54, 54 and 95, all others of the payload 55."""
    row = np.zeros((1, 256), np.int8)
    row[0, [0, 1, 32, 128, 255]] = [1, -1, 1, -1, 1]
    why = "non-zeros at 0, 1, 32, 128 and 255: four planes of bits, 32 weights apart, in halves of 128"
    return unpack("tq2_0", "planes", why, packed("tq2_0", row, 502), (1, 256))


def _held(folder: str, matrix: np.ndarray) -> np.ndarray:
    """Q1_0 cannot store zeros among other values."""
    return np.where(matrix == 0, np.int8(1), matrix) if folder == "q1_0" else matrix


def packed(folder: str, matrix: np.ndarray, number: int) -> bytes:
    """The packed bytes of the matrix; scales depend on ``number``."""
    name, options, _, how = LAYOUTS[folder]
    layout = packing(name, **options)
    if how == "none":
        return layout.pack(matrix)
    if how == "one":
        return layout.pack(matrix, scale_of(number))
    if how == "short":
        return layout.pack(matrix, np.float32(0.375 + number % 13 / 8))
    blocks = layout.scales(layout.pack(matrix), matrix.shape).shape
    numbers = number + np.arange(np.prod(blocks)).reshape(blocks)
    scales = np.vectorize(scale_of)(numbers).astype(np.float16).astype(np.float32)
    return layout.pack(matrix, scales)
