"""The error of KV-cache schemes against bits a value, from docs/data/kv-error.json: docs/images/kv-error.svg.

Which schemes there are is the report's affair; those whose names begin alike are a family, with a colour.
"""

from pathlib import Path

from drawing import COLOURS, DATA, EVERYWHERE, IMAGES, MARKERS, Row, begin, caption, read, save
from matplotlib.axes import Axes

SOURCE = DATA / "kv-error.json"
EXACT = "f32"  # what the others are compared with: an error of 0 has no place on a logarithmic axis
OTHER = "the rest"
FAMILY = {
    "plain floats": ("f16", "bf16", "fp8"),
    "ggml's blocks": ("q8", "q5", "q4", "hadamard-inner-q4"),
    "int8": ("int8", "fake"),
    "KIVI": ("kivi",),
    "affine": ("affine", "hadamard", "a4"),
    "TurboQuant": ("turboquant",),
    OTHER: ("split",),
}
Styles = dict[str, tuple[str, str]]


def styles(names: list[str]) -> Styles:
    """Colour by family, and in the family a marker each."""
    found: dict[str, list[str]] = {family: [] for family in FAMILY}
    for name in names:
        fits = [(len(start), family) for family, starts in FAMILY.items() for start in starts if name.startswith(start)]
        found[max(fits, default=(0, OTHER))[1]].append(name)
    return {
        name: (COLOURS[number], MARKERS[place])
        for number, members in enumerate(found.values())
        for place, name in enumerate(members)
    }


def by_bits(axes: Axes, rows: list[Row], style: Styles, figure: str, title: str, label: str) -> None:
    """A point for each scheme."""
    found = {row["scheme"]: row for row in rows}
    for name, (colour, marker) in style.items():
        axes.plot(found[name]["bits"], found[name][figure], marker, color=colour, label=name, alpha=0.85)
    axes.set(xlabel="bits a value, scales included", ylabel=label, title=title, yscale="log", xscale="log")
    axes.set(xlim=(1.8, 19))
    ticks = (2, 3, 4, 5, 6, 8, 16)
    axes.set_xticks(ticks, labels=[str(n) for n in ticks])
    axes.minorticks_off()
    axes.grid()


def by_context(axes: Axes, rows: list[Row], style: Styles) -> None:
    """A line for each scheme; an error of 0 (KIVI, as long as its window holds everything) is none."""
    for name, (colour, marker) in style.items():
        points = [(row["context"], row["relative"]) for row in rows if row["scheme"] == name and row["relative"]]
        axes.plot(*zip(*points, strict=True), marker + "-", color=colour, markersize=4, linewidth=0.8, alpha=0.85)
    contexts = sorted({row["context"] for row in rows})
    axes.set(xlabel="tokens of context", ylabel="relative error", title="Attention by context", xscale="log")
    axes.set(yscale="log")
    axes.set_xticks(contexts, labels=[f"{n:,}" for n in contexts])
    axes.minorticks_off()
    axes.grid()


def main(images: Path = IMAGES) -> None:
    """Attention on Gaussian keys, plain and with an outlier channel, by context, and kjv-ar."""
    measured = read(SOURCE)
    style = styles([row["scheme"] for row in measured["model"] if row["scheme"] != EXACT])
    plain = [row for row in measured["attention"] if row["outlier"] == 1]
    loud = [row for row in measured["attention"] if row["outlier"] != 1]
    figure, (first, second, third, fourth) = begin(4, 2.7, 1.4)
    contexts = sorted({row["context"] for row in plain})
    middle = contexts[len(contexts) // 2]
    at = [[row for row in rows if row["context"] == middle] for rows in (plain, loud)]
    by_bits(first, at[0], style, "relative", f"Attention, {middle} tokens of context", "relative error")
    title = f"The same, one channel of the keys x {loud[0]['outlier']:g}"
    by_bits(second, at[1], style, "relative", title, "relative error")
    by_context(third, plain, style)
    title = "kjv-ar: divergence from the exact cache"
    by_bits(fourth, measured["model"], style, "divergence", title, "nats a token")
    said = "Error of KV-cache schemes; left of another at the same height is better."
    handles = first.get_legend_handles_labels()[0]
    save(figure, images / "kv-error.svg", caption(said, EVERYWHERE, [SOURCE]), handles)


if __name__ == "__main__":
    main()
