"""The speeds of docs/data/bench-*.json, reports of ``tritgold bench``: docs/images/bench-NAME-KIND.svg.

KIND is speed (tokens a second by context, KV cache, prompt, batch and threads, under the roof of the memory's speed),
operations (a decode step in parts) or ways (forms of a ternary product by tokens). Whatever rows a report has are
drawn; a panel without any says so, and a kind without any is not drawn.
"""

import hashlib
import itertools
import json
import textwrap
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

ROOT = Path(__file__).parents[1]
DATA, IMAGES = ROOT / "docs/data", ROOT / "docs/images"
# Okabe and Ito: told apart by the colour-blind; and a marker each, for those who print in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999", "#F0E442")
MARKERS = "os^Dv<>PX"
WEIGHTS, ATTENTION, ELSE, OVERHEAD = "products and head", "attention", "everything else", "overhead"
OPERATIONS = {WEIGHTS: COLOURS[0], ATTENTION: COLOURS[1], ELSE: COLOURS[4], OVERHEAD: COLOURS[7]}

Row = dict[str, Any]
Series = dict[str, list[tuple[float, float]]]


def main() -> None:
    """Every kind of every report."""
    mpl.rcParams["svg.hashsalt"] = "tritgold"  # the same picture has the same bytes
    IMAGES.mkdir(parents=True, exist_ok=True)
    for path in sorted(DATA.glob("bench-*.json")):
        text = path.read_bytes()
        report = json.loads(text)
        said = caption(report, hashlib.sha256(text).hexdigest()[:12])
        for kind, draw in KINDS.items():
            figure = draw(report)
            if figure is not None:
                figure.supxlabel(said, fontsize=8, x=0.01, ha="left")
                figure.savefig(IMAGES / f"{path.stem}-{kind}.svg", metadata={"Date": None})
                plt.close(figure)


def caption(report: Row, digest: str) -> str:
    """Machine, versions, date, and which bytes were drawn."""
    machine = report["machine"]
    jax = machine["packages"].get("jax", "none")
    said = (
        f"{report['shape']}: {machine['processor']}, {machine['cores']} cores; Python {machine['python']}, JAX {jax}, "
        f"{report['date'][:10]}; report {digest}. {report['command']}"
    )
    return "\n".join(textwrap.wrap(said, 150, break_on_hyphens=False))


def measured(report: Row, *rows: str) -> list[Row]:
    """The rows of these names that have a time."""
    return [r for r in report["results"] if r["row"] in rows and r["timing"] is not None]


def speed(report: Row) -> Figure | None:
    """Tokens a second by everything that they depend on."""
    rows = measured(report, "decode", "greedy", "kv", "prefill", "batch")
    if not rows:
        return None
    most = max(r["threads"] for r in rows)
    roof = {b["threads"]: b["best"] for b in report["bandwidth"]}
    figure, axes = plt.subplots(2, 3, figsize=(13, 9), layout="constrained")
    at_most = [r for r in rows if r["threads"] == most]
    here = f", {_threads(most)}"
    by_context, by_kv = (_of(at_most, *names) for names in (("decode", "greedy"), ("kv",)))
    _panel(axes[0, 0], "context", f"decoding by context{here}", "positions in the KV cache", by_context, roof)
    _panel(axes[0, 1], "context", f"the same by KV cache{here}", "positions in the KV cache", by_kv, roof)
    _panel(axes[0, 2], "tokens", f"prompts{here}", "tokens of the prompt", _of(at_most, "prefill"), roof)
    _panel(axes[1, 0], "sequences", f"batches{here}", "sequences", _of(at_most, "batch"), roof)
    context = min((r["case"]["context"] for r in by_context), default=0)
    shortest = [r for r in _of(rows, "decode", "greedy") if r["case"].get("context") == context]
    _panel(axes[1, 1], "threads", f"decoding behind {context} positions by threads", "threads", shortest, roof)
    longest = max((r["case"]["tokens"] for r in _of(rows, "prefill")), default=0)
    prompts = [r for r in _of(rows, "prefill") if r["case"]["tokens"] == longest]
    _panel(axes[1, 2], "threads", f"prompts of {longest} tokens by threads", "threads", prompts, roof)
    return figure


def _of(rows: list[Row], *names: str) -> list[Row]:
    """Of a peer, ``greedy`` is its plain decoding once more: left out."""
    return [r for r in rows if r["row"] in names and not (r["row"] == "greedy" and r["ratio"] is not None)]


def _panel(axes: Axes, by: str, title: str, label: str, rows: list[Row], roof: dict[int, float]) -> None:
    """A line for each engine and row; dashed, what reading its bytes at the measured bandwidth would allow."""
    found: Series = defaultdict(list)
    roofs: Series = defaultdict(list)
    for r in rows:
        x = r["threads"] if by == "threads" else r["case"][by]
        name = f"{r['engine']} {r['case'].get('kv', r['row'])}"
        found[name].append((x, r["per_second"]))
        if r["moved"]:
            roofs[name].append((x, r["units"] * roof[r["threads"]] / r["moved"]))
    _lines(axes, found, roofs, title, label, "tokens a second")


def _style(name: str, names: list[str]) -> tuple[str, str]:
    """Colour and marker of a line; with more lines than colours they begin again, with other markers."""
    at = names.index(name)
    return COLOURS[at % len(COLOURS)], MARKERS[(at + at // len(COLOURS)) % len(MARKERS)]


def _lines(
    axes: Axes, found: Series, roofs: Series, title: str, label: str, unit: str, names: list[str] | None = None
) -> None:
    """names: of all lines of the figure, where a line looks the same in each panel; then the figure has the legend."""
    axes.set_title(title, fontsize=10)
    if not found:
        axes.text(0.5, 0.5, "not measured in this report", ha="center", va="center", transform=axes.transAxes)
        axes.set_axis_off()
        return
    for name, points in found.items():
        colour, marker = _style(name, names or list(found))
        axes.plot(*zip(*sorted(points), strict=True), marker + "-", color=colour, label=name, markersize=5)
        if name in roofs:
            roofed = list(zip(*sorted(roofs[name]), strict=True))
            axes.plot(*roofed, "_--", color=colour, linewidth=1, alpha=0.7, label=f"{name}: roof", zorder=1)
    ticks = sorted({x for points in found.values() for x, _ in points})
    axes.set(xlabel=label, ylabel=unit, xscale="log", yscale="log")
    axes.set_xticks(ticks, labels=[f"{x:,}" for x in ticks])
    axes.minorticks_off()
    _decades(axes, [y for points in [*found.values(), *roofs.values()] for _, y in points])
    axes.grid(alpha=0.3)
    if names is None:
        axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(0, -0.16), ncols=2)  # over no line


def _decades(axes: Axes, values: list[float]) -> None:
    """Numbers in words on a logarithmic axis, as many as there is room for."""
    low, high = min(values) / 1.25, max(values) * 1.25
    ticks: list[float] = []
    for digits in ((1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1,)):
        ticks = [digit * 10.0**power for power in range(-6, 12) for digit in digits]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= 8:
            break
    axes.set_ylim(low, high)
    axes.set_yticks(ticks, labels=[f"{tick:,.6g}" for tick in ticks])


def operations(report: Row) -> Figure | None:
    """A decode step in parts, a panel for each number of threads: share of the step, and speed of what is read."""
    profiles = report["profiles"]
    if not profiles:
        return None
    longest = max(len(profile["parts"]) for profile in profiles)
    size = (6.5 * len(profiles), 0.25 * longest + 2)
    figure, all_axes = plt.subplots(1, len(profiles), figsize=size, layout="constrained", squeeze=False)
    for axes, profile in zip(all_axes[0], profiles, strict=True):
        _bars(axes, profile)
    handles = [Patch(color=colour, label=name) for name, colour in OPERATIONS.items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), fontsize=8)
    return figure


def _bars(axes: Axes, profile: Row) -> None:
    names = [f"{part['name']} ({part['calls']})" for part in profile["parts"]] + ["overhead"]
    seconds = [part["seconds"] for part in profile["parts"]] + [profile["overhead"]]
    colours = [_colour(part) for part in profile["parts"]] + [OPERATIONS[OVERHEAD]]
    bars = axes.barh(names, [1e3 * s for s in seconds], color=colours)
    speeds = [f", {p['moved'] / p['seconds'] / 1e9:.1f} GB/s" if p["moved"] >= 1e4 else "" for p in profile["parts"]]
    labels = [f"{s / profile['step']:.1%}{speed}" for s, speed in zip(seconds, [*speeds, ""], strict=True)]
    axes.bar_label(bars, labels, fontsize=7, padding=3)
    low, high = 1e3 * min(0.0, *seconds), 1e3 * max(seconds)
    axes.set_xlim(low - 0.12 * (high - low) * (low < 0), high + 0.25 * (high - low))  # room for what stands beside bars
    axes.axvline(0, color="black", linewidth=0.8)
    axes.invert_yaxis()
    axes.margins(y=0.01)
    axes.tick_params(axis="y", labelsize=7)
    title = (
        f"a step behind {profile['context']} positions, {_threads(profile['threads'])}: {1e3 * profile['step']:.2f} ms"
        f"\nsum of the parts {1e3 * profile['total']:.2f} ms; in brackets calls, behind the bars shares of the step"
    )
    axes.set_title(title, fontsize=9)
    axes.set_xlabel("milliseconds, all calls together")
    axes.grid(alpha=0.3, axis="x")


def _colour(part: Row) -> str:
    if part["name"].startswith("attention"):
        return OPERATIONS[ATTENTION]
    is_norm = part["name"].endswith("norm")  # reads weights too, and few
    return OPERATIONS[WEIGHTS if part["moved"] and not is_norm else ELSE]


def ways(report: Row) -> Figure | None:
    """Forms of a product by tokens: a panel for each matrix and number of threads."""
    rows = measured(report, "gemv", "gemm")
    if not rows:
        return None
    panels: dict[tuple[str, int], Series] = defaultdict(lambda: defaultdict(list))
    for r in rows:
        of_panel = panels[r["case"]["matrix"], r["threads"]]
        of_panel[f"{r['engine']} {r['case']['way']}"].append((r["case"]["tokens"], r["gmacs"]))
    names = list(dict.fromkeys(name for found in panels.values() for name in found))
    across = min(2, len(panels))
    down = -(-len(panels) // across)
    figure, all_axes = plt.subplots(
        down, across, figsize=(6.5 * across, 4.2 * down + 0.6), layout="constrained", squeeze=False
    )
    for axes, ((matrix, threads), found) in itertools.zip_longest(
        all_axes.flat, panels.items(), fillvalue=(("", 0), {})
    ):
        if not found:
            axes.set_axis_off()
            continue
        _lines(axes, found, {}, f"{matrix}, {_threads(threads)}", "tokens", "GMAC/s", names)
    handles = {}
    for axes in all_axes.flat:
        handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend([handles[name] for name in names], names, loc="outside right center", fontsize=8)
    return figure


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


KINDS: dict[str, Callable[[Row], Figure | None]] = {"speed": speed, "operations": operations, "ways": ways}


if __name__ == "__main__":
    main()
