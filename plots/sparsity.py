"""Cosine against measured sparsity, from docs/data/sparsity-cosine.json: docs/images/sparsity.svg.

A rule whose report has several rows with one parameter is a line; the others are points.
"""

from collections import Counter
from pathlib import Path
from statistics import NormalDist

from drawing import COLOURS, DATA, EVERYWHERE, IMAGES, MARKERS, Row, begin, caption, read, save
from matplotlib.axes import Axes

SOURCE = DATA / "sparsity-cosine.json"
SWEEP = 3  # rows of a rule that make a line
NOTHING_LOST = ("none", "zero_skipping")  # the dense model itself


def label(rule: str, counts: Counter[str]) -> str:
    """The line or the point that a row belongs to."""
    family = rule.partition(":")[0]
    return family if counts[family] >= SWEEP and not rule.startswith("q_sparse") else rule


def draw(axes: Axes, rows: list[Row], names: list[str], title: str) -> None:
    """Sweeps as lines, other rules as points; each looks the same in every panel."""
    counts = Counter(row["rule"].partition(":")[0] for row in rows)
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row["rule"] not in NOTHING_LOST:
            found.setdefault(label(row["rule"], counts), []).append((row["sparsity"], row["cosine"]))
    for name, points in found.items():
        at = names.index(name) if name in names else names.append(name) or len(names) - 1
        style = MARKERS[(at + at // len(COLOURS)) % len(MARKERS)] + ("-" if len(points) > 1 else "")
        axes.plot(*zip(*sorted(points), strict=True), style, color=COLOURS[at % len(COLOURS)], label=name)
    axes.set(xlabel="measured sparsity, share of zeros", title=title, xlim=(-0.03, 1.03), ylim=(0.6, 1.02))
    axes.set_ylabel("cosine with the dense result")
    axes.grid()


def closed_form(axes: Axes) -> None:
    """cos = sqrt(1 - P + 2 t phi(t)), P = P(|x| < t), for standard normal x."""
    normal = NormalDist()
    edges = [n / 50 for n in range(101)]
    shares = [2 * normal.cdf(t) - 1 for t in edges]
    cosines = [(1 - p + 2 * t * normal.pdf(t)) ** 0.5 for p, t in zip(shares, edges, strict=True)]
    axes.plot(shares, cosines, color="grey", linewidth=4, alpha=0.4, label="closed form of top_k")


def main(images: Path = IMAGES) -> None:
    """Gaussian activations, Gaussian attention, the logits of kjv-ar."""
    measured = read(SOURCE)
    figure, panels = begin(3, 2.6, 1.3)
    closed_form(panels[0])
    names: list[str] = []
    parts = {
        "activations": "Gaussian activations",
        "attention": "Gaussian attention, 512 keys",
        "model": "Logits of kjv-ar",
    }
    for axes, (part, title) in zip(panels, parts.items(), strict=True):
        draw(axes, measured[part], names, title)
    handles = {h.get_label(): h for axes in panels for h in axes.get_legend_handles_labels()[0]}
    said = "What zeroing activations or attention costs; up and to the right is better."
    shown = caption(said, EVERYWHERE, [SOURCE])
    save(figure, images / "sparsity.svg", shown, list(handles.values()), 2)


if __name__ == "__main__":
    main()
