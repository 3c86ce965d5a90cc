"""The error of KV-cache schemes against bits a value, from docs/data/kv-error.json: docs/images/kv-error.svg."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

ROOT = Path(__file__).parents[1]
DATA, IMAGE = ROOT / "docs/data/kv-error.json", ROOT / "docs/images/kv-error.svg"
CONTEXT = 512  # of the panels by bits
# Colour by family, and in the family a marker each, which the legend names.
FAMILIES = {
    "C0": ("f16", "bf16", "fp8_e4m3", "fp8_e5m2"),
    "C1": ("q8_0", "q5_0", "q4_1", "q4_0", "hadamard-inner-q4_0"),
    "C3": ("int8", "fake_fp8", "fake_fp8-overwrite-False"),
    "C2": ("kivi4", "kivi2"),
    "C4": ("affine", "hadamard", "a4_8"),
    "C5": ("turboquant", "turboquant-bits-3", "turboquant-bits-2"),
}
MARKERS = "osD^v"
NAMES = {
    "hadamard-inner-q4_0": "q4_0, rotated",
    "fake_fp8-overwrite-False": "fake_fp8, scales kept",
    "affine": "affine, 4 bits",
    "hadamard": "affine, rotated",
    "turboquant": "turboquant, 4 bits",
    "turboquant-bits-3": "turboquant, 3 bits",
    "turboquant-bits-2": "turboquant, 2 bits",
}


def schemes() -> Iterator[tuple[str, str, str]]:
    """Name, colour and marker of each."""
    for colour, names in FAMILIES.items():
        for name, marker in zip(names, MARKERS, strict=False):
            yield name, colour, marker


def by_bits(axes: Axes, rows: list[dict[str, Any]], figure: str, title: str, label: str) -> None:
    """A point for each scheme."""
    found = {row["scheme"]: row for row in rows}
    for name, colour, marker in schemes():
        row = found[name]
        axes.plot(row["bits"], row[figure], marker, color=colour, label=NAMES.get(name, name), alpha=0.85)
    axes.set(xlabel="bits a value", ylabel=label, title=title, yscale="log", xscale="log", xlim=(1.8, 19))
    axes.set_xticks([2, 3, 4, 5, 6, 8, 16], labels=["2", "3", "4", "5", "6", "8", "16"])
    axes.minorticks_off()
    axes.grid(alpha=0.3)


def by_context(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """A line for each scheme; an error of 0 (KIVI, as long as its window holds everything) is none."""
    for name, colour, marker in schemes():
        points = [(row["context"], row["relative"]) for row in rows if row["scheme"] == name and row["relative"]]
        axes.plot(*zip(*points, strict=True), marker + "-", color=colour, markersize=4, linewidth=0.8, alpha=0.85)
    contexts = sorted({row["context"] for row in rows})
    axes.set(xlabel="tokens of context", ylabel="relative error", title="by context", xscale="log", yscale="log")
    axes.set_xticks(contexts, labels=[f"{n:,}" for n in contexts])
    axes.minorticks_off()
    axes.grid(alpha=0.3)


def main() -> None:
    """Attention on Gaussian keys, plain and with an outlier channel, by context, and kjv-ar."""
    measured = json.loads(DATA.read_text(encoding="utf-8"))
    mpl.rcParams["svg.hashsalt"] = "tritgold"  # the same picture has the same bytes
    plain = [row for row in measured["attention"] if row["outlier"] == 1]
    loud = [row for row in measured["attention"] if row["outlier"] != 1]
    figure, ((first, second), (third, fourth)) = plt.subplots(2, 2, figsize=(12, 8), constrained_layout=True)
    at = f"{CONTEXT} tokens"
    chosen = [[row for row in rows if row["context"] == CONTEXT] for rows in (plain, loud)]
    by_bits(first, chosen[0], "relative", f"attention, {at}", "relative error")
    by_bits(
        second, chosen[1], "relative", f"the same, one channel of the keys x {loud[0]['outlier']:g}", "relative error"
    )
    by_context(third, plain)
    by_bits(fourth, measured["model"], "divergence", "kjv-ar: divergence from the exact cache", "nats a token")
    figure.legend(*first.get_legend_handles_labels(), loc="outside right center", fontsize=9)
    IMAGE.parent.mkdir(exist_ok=True)
    figure.savefig(IMAGE, metadata={"Date": None})


if __name__ == "__main__":
    main()
