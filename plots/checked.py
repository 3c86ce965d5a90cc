"""What the judge says of a broken engine: docs/images/checked.svg, the picture of the front page.

From docs/data/check-kv-heads-tiled.json, a report of ``tritgold check --report`` on docs/examples/engine.c with one
mistake (``make broken-engine``). Left, each operation given golden inputs; right, the engine's own run, in which
everything after the mistake is wrong too; below, how far the golden model is from the engine with each known fault.
"""

from pathlib import Path

from drawing import COLOURS, DATA, IMAGES, Row, begin, caption, read, save
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

SOURCE = DATA / "check-kv-heads-tiled.json"
RIGHT, WRONG, NAMED = COLOURS[5], COLOURS[1], COLOURS[0]
GAP = 2.8  # layers between the two maps
BEST = 6  # candidates that are shown
TINY = 1e-4  # an error of a run that is no more than float32 noise, of the token's largest value


def place(name: str) -> tuple[str, int] | None:
    """Output and layer of a trace name; None for what is not part of a layer."""
    parts = name.split(".", 2)
    return (parts[2], int(parts[1])) if parts[0] == "layers" and "[" not in name else None


def maps(axes: Axes, report: Row) -> None:
    """Outputs downwards in execution order, layers to the right, twice."""
    alone = {o["name"]: o["outcome"] in ("equal", "within") for o in report["operations"] if place(o["name"])}
    errors = report["free_run"]["errors"]["outputs"]
    running = {n: None not in e and max(e) <= TINY for n, e in errors.items() if place(n)}
    outputs = list(dict.fromkeys(place(name)[0] for name in alone))
    layers = 1 + max(place(name)[1] for name in alone)
    for first, found in ((0.0, alone), (layers + GAP, running)):
        for name, right in found.items():
            output, layer = place(name)
            colour, marker, size = (RIGHT, "s", 18) if right else (WRONG, "X", 42)
            axes.scatter(first + layer, outputs.index(output), s=size, color=colour, marker=marker, linewidths=0)
    places = [*range(layers), *(layers + GAP + n for n in range(layers))]
    axes.set_xticks(places, labels=[str(n) for n in range(layers)] * 2, fontsize=8)
    axes.set_yticks(range(len(outputs)), labels=outputs, fontsize=8)
    axes.set(xlim=(-0.7, places[-1] + 0.7), ylim=(len(outputs) - 0.4, -0.6), xlabel="layer")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for first, title in ((0.0, "each operation, right inputs"), (layers + GAP, "the engine's own run")):
        axes.text(first + (layers - 1) / 2, -1.1, title, ha="center", fontsize=8.5, weight="bold")
    output, layer = place(report["first_divergence"]["name"])
    axes.annotate(
        "first\ndivergence",
        (layer - 0.2, outputs.index(output)),
        (layers - 0.5 + GAP / 2, outputs.index(output) - 3.5),
        arrowprops={"arrowstyle": "->", "color": "black", "connectionstyle": "arc3,rad=0.15"},
        fontsize=8,
        ha="center",
    )


def candidates(axes: Axes, diagnosis: Row) -> None:
    """The nearest known faults; the one that explains the engine has no distance."""
    best = diagnosis["ranking"][:BEST]
    for row, each in enumerate(best):
        colour = NAMED if each["explains"] else COLOURS[7]
        axes.plot([0, each["distance"]], [row, row], color=colour, linewidth=2)
        axes.plot(each["distance"], row, "o", color=colour, markersize=7, clip_on=False)
        shown = f"{each['distance']:.2f}" + (": it is this" if each["explains"] else "")
        axes.annotate(shown, (each["distance"], row), (8, 0), textcoords="offset points", va="center", fontsize=8)
    labels = axes.set_yticks(range(len(best)), labels=[each["fault"] for each in best], fontsize=8)
    for label, each in zip(labels, best, strict=True):
        label.label1.set_weight("bold" if each["explains"] else "normal")
    most = max(each["distance"] for each in best)
    axes.set(xlim=(0, most * 1.2), ylim=(len(best) - 0.5, -0.6))
    axes.set_xlabel("distance: golden model with this fault to engine")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title("Known faults, the nearest first")


def main(images: Path = IMAGES) -> None:
    """Two maps and the candidates."""
    report = read(SOURCE)
    figure, (above, below) = begin(2, 3.6, 0.3)
    above.get_gridspec().set_height_ratios((5.4, 1.5))
    maps(above, report)
    candidates(below, report["diagnosis"])
    (fault,) = report["diagnosis"]["faults"]
    said = f"{report['engine']['name']} with one mistake. {fault['fault']}: {fault['summary']}"
    machine = ", ".join(f"{k} {v}" if k != "machine" else v for k, v in report["machine"].items())
    kinds = ((RIGHT, "s", "as the golden model"), (WRONG, "X", "wrong"))
    handles = [Line2D([], [], color=c, marker=m, linestyle="", label=label) for c, m, label in kinds]
    save(figure, images / "checked.svg", caption(said, machine, [SOURCE]), handles, 2)


if __name__ == "__main__":
    main()
