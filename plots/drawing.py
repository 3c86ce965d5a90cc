"""What the figures have in common: size, colours, the caption, and bytes that are the same every time.

A figure is one column of panels, WIDTH inches: at that size its text can be read on a telephone as well. Every caption
names the machine and the digest of each report that was drawn.
"""

import hashlib
import json
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import Collection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text

ROOT = Path(__file__).parents[1]
DATA, IMAGES = ROOT / "docs/data", ROOT / "docs/images"
WIDTH = 5.2
# Okabe and Ito: told apart by the colour-blind; and a marker each, for those who print in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999", "#F0E442")
MARKERS = "os^Dv<>PX"
EVERYWHERE = "golden arithmetic, the same bits on every machine"

Row = dict[str, Any]


def begin(panels: int, height: float, extra: float = 0.0, width: float = WIDTH) -> tuple[Figure, list[Axes]]:
    """Panels below each other, each ``height`` inches, and ``extra`` for legends."""
    mpl.rcParams.update(
        {
            "svg.hashsalt": "tritgold",  # the same picture has the same bytes
            "font.size": 9,
            "axes.titlesize": 10,
            "axes.labelsize": 9,
            "legend.fontsize": 8,
            "lines.markersize": 5,
            "lines.linewidth": 1.2,
            "grid.alpha": 0.3,
        }
    )
    size = (width, panels * height + extra + 0.6)
    figure, axes = plt.subplots(panels, 1, figsize=size, layout="constrained", squeeze=False)
    return figure, list(axes[:, 0])


def digest(path: Path) -> str:
    """The first digits of a report's SHA-256: which bytes were drawn."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def read(path: Path) -> Any:
    """A report."""
    return json.loads(path.read_text(encoding="utf-8"))


def processor(report: Row) -> str:
    """What a benchmark ran on, in words."""
    machine = report["machine"]
    jax = machine["packages"].get("jax", "none")
    flags = machine["variables"].get("XLA_FLAGS")
    with_ = f"Python {machine['python']}, JAX {jax}" + (f", XLA_FLAGS={flags}" if flags else "")
    return f"{machine['processor']}, {machine['cores']} cores; {with_}; {report['date'][:10]}"


def caption(said: str, machine: str, sources: Iterable[Path]) -> str:
    """One sentence of the figure, then the machine, then the reports with their digests."""
    paths = list(sources)
    named = [path.name for path in paths]
    if len(set(named)) < len(named):
        named = [f"{path.parent.name}/{path.name}" for path in paths]
    reports = ", ".join(f"{name} {digest(path)}" for name, path in zip(named, paths, strict=True))
    return f"{said} Machine: {machine}. Report: {reports}."


def save(figure: Figure, path: Path, said: str, handles: Sequence[Artist] = (), columns: int = 3) -> None:
    """Write the figure with its caption, and above that a legend of these handles."""
    width = round(17.5 * figure.get_figwidth())
    figure.supxlabel("\n".join(textwrap.wrap(said, width, break_on_hyphens=False)), fontsize=7.5, x=0.01, ha="left")
    if handles:
        figure.legend(handles=handles, loc="outside upper center", ncols=columns, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None, "Description": f"drawn {drawn(figure)}"})
    plt.close(figure)


def drawn(figure: Figure) -> str:
    """A digest of points, bars, lines and words of a figure; another matplotlib draws other bytes of the same."""
    parts: list[str] = []
    for artist in figure.findobj(lambda each: isinstance(each, Line2D | Rectangle | Collection | Text)):
        if isinstance(artist, Text):
            parts.append(artist.get_text())
        elif isinstance(artist, Line2D):
            parts.append(_numbers(artist.get_xydata()))
        elif isinstance(artist, Rectangle):
            parts.append(_numbers([*artist.get_xy(), artist.get_width(), artist.get_height()]))
        elif isinstance(artist, Collection):
            parts.append(_numbers(artist.get_offsets()))
    return hashlib.sha256("\n".join(sorted(set(parts))).encode()).hexdigest()[:12]


def _numbers(values: Any) -> str:
    return " ".join(f"{v:.6g}" for v in np.asarray(np.ma.filled(values, np.nan), np.float64).ravel())


def threads(count: int) -> str:
    """One or several."""
    return "1 thread" if count == 1 else f"{count} threads"


def decades(axes: Axes, values: Iterable[float]) -> None:
    """Numbers in words on a logarithmic y axis, as many as there is room for."""
    low, high = min(values := list(values)) / 1.25, max(values) * 1.25
    ticks: list[float] = []
    for digits in ((1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        ticks = [digit * 10.0**power for power in range(-6, 12) for digit in digits]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= 7:
            break
    axes.set_ylim(low, high)
    axes.set_yticks(ticks, labels=[f"{tick:,.6g}" for tick in ticks])
    axes.minorticks_off()
