"""How fast the packings pack and unpack, beside a plain loop, one table read a byte, and gguf.

    PYTHONPATH=docs/_make python -m measure.format_speed [--json FILE]

One matrix of the shape of a 2B model's largest, 2560 x 6912 trits, or of a few rows more or less where a format wants
it; medians of a few runs in processor time, for everything here runs on one thread. A benchmark and no test: how fast
is fast enough nobody can say for every machine.
"""

import argparse
import importlib
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tritgold.errors import PackingError
from tritgold.formats.packings import packing
from tritgold.formats.packings.packing_base import Packing
from tritgold.formats.packings.table_unpacking import codes_by_table
from tritgold_conformance.commands.env import environment

SCHEMA = "tritgold.format-speed/1"
ROWS, COLUMNS = 2560, 6912
SCALE = 0.375  # held exactly by float16 and bfloat16
RUNS = 5
LOOP_ROWS = 16  # of the plain loop, which would take a minute for the whole matrix
LAYOUTS: dict[str, dict[str, int | str]] = {
    "hf": {},
    "i2_s": {},
    "i2_s 64": {"block": 64},
    "i2_s_4rows": {},
    "sglbitnt": {},
    "sequential": {},
    "sequential msb": {"order": "msb"},
    "torchao": {},
    "gpu_int2": {},
    "tl1": {"BM": 256, "BK": 128, "bm": 32},
    "tl2": {"BM": 160, "BK": 96},
    "tq1_0": {},
    "tq2_0": {},
    "q2_0": {},
    "q2_0 128": {"block": 128},
    "q1_0": {},
    "iq1_bn": {},
    "iq2_bn": {},
    "iq2_bn_r4": {},
    "f32": {},
    "f16": {},
    "bf16": {},
}
# What gguf-py calls the types that it has a quantiser for. It takes and gives float32, not trits.
IN_GGUF = {"tq1_0": "TQ1_0", "tq2_0": "TQ2_0", "f16": "F16", "bf16": "BF16"}

EVERY_BYTE = ("tq1_0", "q1_0", "iq1_bn")  # stands for trits: there is nothing to check


@dataclass(frozen=True)
class Row:
    """Median seconds for the matrix. weights, size: of the matrix and of its packed bytes. by: ``shifts`` (the
    packing itself), ``table`` (one table read a byte), ``gguf``, or ``loop``, which is measured on a few rows and
    multiplied. check: looking for codes that are not trits, all that opening a checkpoint does.
    """

    name: str
    by: str
    weights: int
    size: int
    pack: float | None
    unpack: float | None
    check: float | None = None

    def gigabytes(self, seconds: float | None) -> float | None:
        """Packed bytes a second, in 10**9."""
        return None if seconds is None else self.size / seconds / 1e9

    def megaweights(self, seconds: float | None) -> float | None:
        """Weights a second, in 10**6."""
        return None if seconds is None else self.weights / seconds / 1e6


def measured(names: list[str], runs: int = RUNS, rows: int = ROWS) -> list[Row]:
    """A row for each packing named and for whatever else does the same."""
    found: list[Row] = []
    for name in names:
        trits = matrix(rows, zeros=name != "q1_0")
        layout = packing(name.split(" ")[0], **LAYOUTS[name])
        data = layout.pack(trits, SCALE)
        shape = (rows, COLUMNS)
        found.append(_ours(name, layout, trits, data, runs))
        table = _by_table(layout, data, shape, runs)
        if table is not None:
            found.append(Row(name, "table", trits.size, len(data), None, table))
        if name == "i2_s":
            found.append(_loop(trits, data))
        if (row := _gguf(name, trits, len(data), runs)) is not None:
            found.append(row)
    return found


def matrix(rows: int, zeros: bool = True) -> np.ndarray:
    """Trits int8 [rows, COLUMNS], about a third of each, or none 0 where the format has no zero."""
    random = np.random.default_rng(158)
    trits = random.integers(-1, 2, (rows, COLUMNS), np.int8)
    return trits if zeros else np.where(trits == 0, np.int8(1), trits)


def _ours(name: str, layout: Packing, trits: np.ndarray, data: bytes, runs: int) -> Row:
    shape = (trits.shape[0], trits.shape[1])
    pack = _median(lambda: layout.pack(trits, SCALE), runs)
    unpack = _median(lambda: layout.unpack(data, shape), runs)
    check = None if name in EVERY_BYTE else _median(lambda: layout.check(data, shape), runs)
    return Row(name, "shifts", trits.size, len(data), pack, unpack, check)


def _by_table(layout: Packing, data: bytes, shape: tuple[int, int], runs: int) -> float | None:
    try:
        codes_by_table(layout, data, shape)
    except PackingError:
        return None  # a byte of it does not say its trits
    return _median(lambda: codes_by_table(layout, data, shape), runs)


def _gguf(name: str, trits: np.ndarray, size: int, runs: int) -> Row | None:
    """gguf's own quantiser and dequantiser, where gguf is installed and has them."""
    if name not in IN_GGUF:
        return None
    try:
        constants, quants = (importlib.import_module(f"gguf.{part}") for part in ("constants", "quants"))
    except ImportError:
        return None
    kind = getattr(constants.GGMLQuantizationType, IN_GGUF[name])
    values = trits.astype(np.float32) * np.float32(SCALE)
    raw = quants.quantize(values, kind)
    pack = _median(lambda: quants.quantize(values, kind), runs)
    unpack = _median(lambda: quants.dequantize(raw, kind), runs)
    return Row(name, "gguf", trits.size, size, pack, unpack)


def _loop(trits: np.ndarray, data: bytes) -> Row:
    """I2_S a weight at a time in plain Python, over a few rows; the seconds are those of the whole matrix."""
    part = np.ascontiguousarray(trits[:LOOP_ROWS]).reshape(-1).tolist()
    times = trits.size / len(part)
    packed = loop_pack(part)
    assert packed == data[: len(packed)]
    assert loop_unpack(packed, len(part)) == part
    pack = _median(lambda: loop_pack(part), 1) * times
    unpack = _median(lambda: loop_unpack(packed, len(part)), 1) * times
    return Row("i2_s", "loop", trits.size, len(data), pack, unpack)


def loop_pack(trits: list[int]) -> bytes:
    """I2_S without its trailer.

    >>> loop_pack([1, -1] + [0] * 30 + [1] + [0] * 94 + [-1])[:2].hex()
    'a515'
    """
    out = bytearray(len(trits) // 4)
    for i, trit in enumerate(trits):
        block, place = divmod(i, 128)
        out[32 * block + place % 32] |= (trit + 1) << (6 - 2 * (place // 32))
    return bytes(out)


def loop_unpack(data: bytes, count: int) -> list[int]:
    """The inverse of ``loop_pack``.

    >>> loop_unpack(loop_pack([1, 0, -1, 0] * 32), 128) == [1, 0, -1, 0] * 32
    True
    """
    trits = []
    for i in range(count):
        block, place = divmod(i, 128)
        trits.append((data[32 * block + place % 32] >> (6 - 2 * (place // 32)) & 3) - 1)
    return trits


def _median(act: Callable[[], object], runs: int) -> float:
    """Median processor seconds of some calls, after one that is not counted."""
    act()
    seconds = []
    for _ in range(runs):
        begin = time.process_time()
        act()
        seconds.append(time.process_time() - begin)
    return statistics.median(seconds)


def facts(rows: list[Row]) -> dict[str, Any]:
    """The rows and the machine, as data."""
    machine = environment()
    return {
        "schema": SCHEMA,
        "machine": {**machine["machine"], "numpy": machine["packages"]["numpy"]},
        "variables": {key: value for key, value in machine["variables"].items() if value is not None},
        "scale": SCALE,
        "rows": [asdict(row) for row in rows],
    }


def table(rows: list[Row]) -> str:
    """The rows as a table in Markdown."""
    lines = [
        "| packing | by | bits a weight | pack GB/s | M weights/s | unpack GB/s | M weights/s | check GB/s |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        speeds = [row.gigabytes(row.pack), row.megaweights(row.pack)]
        speeds += [row.gigabytes(row.unpack), row.megaweights(row.unpack), row.gigabytes(row.check)]
        shown = " | ".join("" if speed is None else _short(speed) for speed in speeds)
        lines.append(f"| {row.name} | {row.by} | {8 * row.size / row.weights:.3f} | {shown} |")
    return "\n".join(lines)


def _short(speed: float) -> str:
    """Three digits.

    >>> _short(1234.5), _short(0.09876)
    ('1,230', '0.0988')
    """
    return f"{float(f'{speed:.3g}'):,.0f}" if speed >= 100 else f"{speed:.3g}"


def main() -> None:
    """Measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="a file for all figures")
    parser.add_argument("--only", action="append", choices=LAYOUTS, help="a packing; all without it")
    parser.add_argument("--runs", type=int, default=RUNS)
    asked = parser.parse_args()
    rows = measured(asked.only or list(LAYOUTS), asked.runs)
    print(table(rows))
    if asked.json is not None:
        asked.json.write_text(json.dumps(facts(rows), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
