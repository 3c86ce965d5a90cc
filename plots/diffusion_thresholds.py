"""Block diffusion on kjv-dlm by threshold, from its report in docs/data: docs/images/diffusion-thresholds.svg."""

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

ROOT = Path(__file__).parents[1]
DATA, IMAGE = ROOT / "docs/data/diffusion-thresholds.json", ROOT / "docs/images/diffusion-thresholds.svg"
WAYS = {
    "fast-dllm-v2": ("C0", "o-"),
    "fast-dllm-v2-dual": ("C0", "s--"),
    "small-block": ("C1", "o-"),
    "iterative": ("C2", "o-"),
    "adaptive": ("C2", "s--"),
    "iterative, no limit": ("C3", "o-"),
    "adaptive, no limit": ("C3", "s--"),
    "llada": ("C4", "o-"),
    "dream": ("C5", "o-"),
    "greedy": ("C7", "--"),
}


def draw(axes: Axes, report: dict[str, Any], figure: str, title: str) -> None:
    """A line for each way; greedy, which has no threshold, is level."""
    for way, (colour, style) in WAYS.items():
        points = [(row["threshold"], row[figure]) for row in report["rows"] if row["way"] == way]
        if way == "greedy":
            axes.axhline(points[0][1], color=colour, linestyle=style, linewidth=1, label=way)
        else:
            axes.plot(
                *zip(*points, strict=True), style, color=colour, label=way, markersize=3.5, linewidth=1, alpha=0.85
            )
    axes.set(xlabel="threshold", title=title)
    axes.grid(alpha=0.3)


def main() -> None:
    """Tokens a forward, forwards a block, agreement with one token a pass, and what kjv-ar thinks of the text."""
    report = json.loads(DATA.read_text(encoding="utf-8"))
    mpl.rcParams["svg.hashsalt"] = "tritgold"  # the same picture has the same bytes
    figure, ((first, second), (third, fourth)) = plt.subplots(2, 2, figsize=(12, 8), constrained_layout=True)
    draw(first, report, "tokens_per_forward", "tokens a forward")
    first.set_yscale("log")
    first.set_yticks([0.5, 1, 2, 5, 10, 20, 32], labels=["0.5", "1", "2", "5", "10", "20", "32"])
    first.minorticks_off()
    draw(second, report, "forwards_per_block", "forwards a block, that which keeps it included")
    draw(third, report, "same", "share of tokens as with one token a pass")
    third.set_ylim(-0.03, 1.03)
    draw(fourth, report, "nats", "how unlikely kjv-ar finds the text, nats a token")
    fourth.set_ylim(1.8, 7.6)
    figure.legend(*first.get_legend_handles_labels(), loc="outside right center", fontsize=9)
    IMAGE.parent.mkdir(exist_ok=True)
    figure.savefig(IMAGE, metadata={"Date": None})


if __name__ == "__main__":
    main()
