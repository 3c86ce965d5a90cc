"""What activations are like in the trained models, layer by layer: docs/images/activations.svg.

From golden.json of each model, which the golden model wrote: root mean square, largest value, share of zeros.
"""

from pathlib import Path

from drawing import COLOURS, EVERYWHERE, IMAGES, MARKERS, ROOT, Row, begin, caption, read, save
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MultipleLocator

GOLDEN = ROOT / "reference/tritgold/golden"
# What of a layer is drawn, in execution order; trace names without "layers.N.".
SHOWN = ("q_rope", "attn_mix", "attn_residual", "ffn_act", "ffn_residual")
CODES = ("attn_in.codes", "o_in.codes", "ffn_in.codes", "down_in.codes")
DASHES = ("-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 3)))


def lines(axes: Axes, models: dict[str, Row], names: tuple[str, ...], of: str) -> None:
    """A line for each activation and model. ``of``: rms, zeros, or peak, the largest magnitude over the rms."""
    for dashes, statistics in zip(DASHES, models.values(), strict=True):
        layers = sorted({int(name.split(".")[1]) for name in statistics if name.startswith("layers.")})
        for number, name in enumerate(names):
            rows = [statistics[f"layers.{layer}.{name}"] for layer in layers]
            values = [max(-r["min"], r["max"]) / r["rms"] if of == "peak" else r[of] for r in rows]
            style = {"marker": MARKERS[number], "linestyle": dashes, "color": COLOURS[number], "markersize": 4}
            axes.plot(layers, values, label=name, **style)
    axes.set_xlabel("layer")
    axes.xaxis.set_major_locator(MultipleLocator(1))
    axes.grid()


def main(images: Path = IMAGES) -> None:
    """Root mean square, outliers, zeros."""
    sources = sorted(GOLDEN.glob("*/golden.json"))
    models = {path.parent.name: read(path)["activation_statistics"] for path in sources}
    figure, (size, peak, zeros) = begin(3, 3.1, 0.6)
    lines(size, models, SHOWN, "rms")
    size.set(title="Size of activations", ylabel="root mean square, units of the model")
    lines(peak, models, SHOWN, "peak")
    peak.set(title="Outliers", ylabel="largest magnitude / root mean square", yscale="log")
    ticks = (5, 10, 20, 50, 100)
    peak.set_yticks(ticks, labels=[str(tick) for tick in ticks])
    peak.minorticks_off()
    lines(zeros, models, CODES, "zeros")
    zeros.set(title="Zeros among the int8 codes before each product", ylabel="share of codes", ylim=(0, 1))
    for axes, names in ((size, SHOWN), (peak, SHOWN), (zeros, CODES)):
        axes.legend(axes.get_lines()[: len(names)], names, ncols=2, fontsize=7.5)
    handles = [Line2D([], [], color="black", linestyle=d, label=m) for d, m in zip(DASHES, models, strict=True)]
    said = "Activations of the embedded models on their golden text; names are those of traces."
    shown = caption(said, EVERYWHERE, sources)
    save(figure, images / "activations.svg", shown, handles, 3)


if __name__ == "__main__":
    main()
