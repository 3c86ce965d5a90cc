"""Block diffusion by threshold, from docs/data/diffusion-thresholds.json: docs/images/diffusion-thresholds.svg."""

from pathlib import Path

from drawing import COLOURS, DATA, EVERYWHERE, IMAGES, MARKERS, Row, begin, caption, read, save
from matplotlib.axes import Axes

SOURCE = DATA / "diffusion-thresholds.json"


def draw(axes: Axes, report: Row, figure: str, title: str, label: str) -> None:
    """A line for each way; one that has no threshold is level."""
    for number, way in enumerate(dict.fromkeys(row["way"] for row in report["rows"])):
        points = [(row["threshold"], row[figure]) for row in report["rows"] if row["way"] == way]
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[(number + number // len(COLOURS)) % len(MARKERS)]
        if points[0][0] is None:
            axes.axhline(points[0][1], color=colour, linestyle=":", label=way)
        else:
            style = f"{marker}{'--' if number % 2 else '-'}"
            axes.plot(*zip(*points, strict=True), style, color=colour, label=way, markersize=4, alpha=0.85)
    axes.set(xlabel="threshold, probability", ylabel=label, title=title)
    axes.grid()


def main(images: Path = IMAGES) -> None:
    """Tokens a forward, forwards a block, agreement with one token a pass, and what kjv-ar thinks of the text."""
    report = read(SOURCE)
    figure, (first, second, third, fourth) = begin(4, 2.6, 0.9)
    draw(first, report, "tokens_per_forward", "Speed: tokens a forward pass", "tokens a forward")
    first.set_yscale("log")
    ticks = (0.5, 1, 2, 5, 10, 20, 32)
    first.set_yticks(ticks, labels=[f"{tick:g}" for tick in ticks])
    first.minorticks_off()
    draw(second, report, "forwards_per_block", "Passes a block, the one that keeps it included", "forwards a block")
    draw(third, report, "same", "Tokens as with one token a pass", "share of tokens")
    third.set_ylim(-0.03, 1.03)
    draw(fourth, report, "nats", "Quality: how unlikely kjv-ar finds the text (less is better)", "nats a token")
    said = f"Block diffusion of {report['model']}, {report['openings']} openings of {report['tokens']} tokens."
    handles = first.get_legend_handles_labels()[0]
    save(figure, images / "diffusion-thresholds.svg", caption(said, EVERYWHERE, [SOURCE]), handles, 2)


if __name__ == "__main__":
    main()
