"""Cosine against measured sparsity, from docs/data/sparsity-cosine.json: docs/images/sparsity.svg."""

import json
from pathlib import Path
from statistics import NormalDist
from typing import Any

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

ROOT = Path(__file__).parents[1]
DATA, IMAGE = ROOT / "docs/data/sparsity-cosine.json", ROOT / "docs/images/sparsity.svg"
SWEEPS = {"top_k": ("C0", "o"), "threshold": ("C1", "s")}
OTHERS = {
    "adaptive": ("C2", "D"),
    "entropy": ("C2", "^"),
    "q_sparse": ("C3", "o"),
    "q_sparse:keep=0.5,group=32": ("C3", "s"),
    "q_sparse:rescale=false": ("C3", "D"),
    "a4_8": ("C4", "o"),
}
ATTENTION = {
    "attention_top_k:k=128": ("C5", "o"),
    "attention_top_k:k=64": ("C5", "s"),
    "attention_threshold:threshold=0.01": ("C6", "D"),
    "attention_window": ("C7", "^"),
    "attention_dynamic": ("C8", "v"),
}


def draw(axes: Axes, rows: list[dict[str, Any]], title: str) -> None:
    """Sweeps as lines, other rules as points."""
    for name, (colour, marker) in SWEEPS.items():
        points = sorted((r["sparsity"], r["cosine"]) for r in rows if r["rule"].startswith(f"{name}:"))
        if points:
            axes.plot(*zip(*points, strict=True), marker + "-", color=colour, label=name, markersize=4, linewidth=1)
    for name, (colour, marker) in (OTHERS | ATTENTION).items():
        for row in rows:
            if row["rule"] == name:
                axes.plot(row["sparsity"], row["cosine"], marker, color=colour, label=name)
    axes.set(xlabel="measured sparsity", title=title, xlim=(-0.03, 1.03), ylim=(0.6, 1.02))
    axes.grid(alpha=0.3)


def closed_form(axes: Axes) -> None:
    """cos = sqrt(1 - P + 2 t phi(t)), P = P(|x| < t), for standard normal x."""
    normal = NormalDist()
    edges = [n / 50 for n in range(101)]
    shares = [2 * normal.cdf(t) - 1 for t in edges]
    cosines = [(1 - p + 2 * t * normal.pdf(t)) ** 0.5 for p, t in zip(shares, edges, strict=True)]
    axes.plot(shares, cosines, color="grey", linewidth=3, alpha=0.4, label="closed form")


def main() -> None:
    """Gaussian activations, Gaussian attention, the logits of kjv-ar."""
    measured = json.loads(DATA.read_text(encoding="utf-8"))
    mpl.rcParams["svg.hashsalt"] = "tritgold"  # the same picture has the same bytes
    figure, (first, second, third) = plt.subplots(1, 3, figsize=(13, 4.2), constrained_layout=True)
    closed_form(first)
    draw(first, measured["activations"], "Gaussian activations")
    draw(second, measured["attention"], "Gaussian attention, 512 keys")
    draw(third, measured["model"], "logits of kjv-ar")
    first.set_ylabel("cosine with the dense result")
    found = {
        label: line
        for axes in (first, second, third)
        for line, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(found.values(), found.keys(), loc="outside right center", fontsize=8)
    IMAGE.parent.mkdir(exist_ok=True)
    figure.savefig(IMAGE, metadata={"Date": None})


if __name__ == "__main__":
    main()
