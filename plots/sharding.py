"""A token's time and a device's memory by the number of devices, computed: docs/images/sharding.svg."""

from pathlib import Path

from drawing import COLOURS, DATA, IMAGES, MARKERS, Row, begin, caption, decades, read, save
from matplotlib.axes import Axes

SOURCE = DATA / "sharding.json"


def draw(axes: Axes, models: dict[str, list[Row]], figure: str, unit: float, title: str, label: str) -> None:
    """A line for each model; the dotted line beside it is what a perfect division would give."""
    every = []
    for number, (model, rows) in enumerate(models.items()):
        devices = [row["devices"] for row in rows]
        values = [row[figure] * unit for row in rows]
        colour = COLOURS[number]
        axes.plot(devices, values, f"{MARKERS[number]}-", color=colour, label=model)
        axes.plot(devices, [values[0] / count for count in devices], ":", color=colour, linewidth=0.8)
        every += values
    axes.set_xscale("log", base=2)
    axes.set_xticks(devices, labels=[str(count) for count in devices])
    axes.set_yscale("log")
    decades(axes, every)
    axes.set(xlabel="devices", ylabel=label, title=title)
    axes.grid()


def main(images: Path = IMAGES) -> None:
    """The time of a token and the bytes that a device holds."""
    models = read(SOURCE)["modelled"]
    figure, (first, second) = begin(2, 2.8, 0.5)
    draw(first, models, "seconds", 1e3, "Time of a token", "milliseconds a token")
    draw(second, models, "held", 1e-9, "Memory of a device: weights and the whole KV cache", "GB a device")
    said = (
        "Computed by the formulas of docs/sharding.md: a device reads 50 GB/s and sends 6.25 GB/s, a collective takes "
        "30 us. Dotted: one device's figure divided by the number of devices."
    )
    handles = first.get_legend_handles_labels()[0]
    save(figure, images / "sharding.svg", caption(said, "none, these are computed", [SOURCE]), handles, 4)


if __name__ == "__main__":
    main()
