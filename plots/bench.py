"""The speeds of docs/data/bench-*.json, reports of ``tritgold bench``: docs/images/bench-NAME-KIND.svg.

KIND is speed (tokens a second by context, KV cache, prompt and batch, under the roof of the memory's speed), operations
(a decode step in parts) or ways (forms of a ternary product by tokens). Whatever rows a report has are drawn; a kind
without any is not. ``by-threads`` is drawn of all reports of one shape, software and processor together.
"""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from drawing import (
    COLOURS,
    DATA,
    IMAGES,
    MARKERS,
    Row,
    begin,
    caption,
    decades,
    processor,
    read,
    save,
    threads,
)
from matplotlib.axes import Axes
from matplotlib.figure import Figure

WEIGHTS, ATTENTION, ELSE, OVERHEAD = "products and head", "attention", "everything else", "overhead"
OPERATIONS = {WEIGHTS: COLOURS[0], ATTENTION: COLOURS[1], ELSE: COLOURS[4], OVERHEAD: COLOURS[7]}
ROOF = "the engine's bytes, read at the memory's speed"
# Rows that have tokens a second, by what they are drawn against: the axis and its words.
AGAINST = {
    "decode": ("context", "positions in the cache"),
    "greedy": ("context", "positions in the cache"),
    "kv": ("context", "positions in the cache"),
    "prefill": ("tokens", "tokens of the prompt"),
    "batch": ("sequences", "sequences at once"),
    "block-diffusion": ("passes", "passes a block"),
}
TITLES = {
    "decode": "Decoding",
    "greedy": "Decoding",
    "kv": "Decoding by KV cache",
    "prefill": "Prompts",
    "batch": "Batches",
    "block-diffusion": "Block diffusion",
}
# A line or a bar: what it is called, its points (x, tokens a second) and, where its bytes are known, its roof there.
Series = dict[str, list[tuple[float, float, float | None]]]


def main(images: Path = IMAGES) -> None:
    """Every kind of every report, and the threads of all reports of a shape."""
    together: dict[tuple[str, str], list[Path]] = defaultdict(list)
    for path in sorted(DATA.glob("bench-*.json")):
        report = read(path)
        together[report["shape"], processor(report).rpartition(";")[0]].append(path)
        for kind, draw in KINDS.items():
            figure = draw(report)
            if figure is not None:
                shown = caption(f"{WORDS[kind]} ({report['shape']}).", processor(report), [path])
                save(figure, images / f"{path.stem}-{kind}.svg", shown, handles(figure), 2)
    shapes: list[str] = []
    for (shape, machine), paths in together.items():
        figure = by_threads([read(path) for path in paths])
        if figure is not None:
            shapes.append(shape)
            again = f"-{shapes.count(shape)}" if shapes.count(shape) > 1 else ""  # another processor or other software
            shown = caption(f"{WORDS['threads']} ({shape}).", machine, paths)
            save(figure, images / f"bench-{shape}-by-threads{again}.svg", shown, handles(figure), 2)


def measured(report: Row, *rows: str) -> list[Row]:
    """The rows of these names that have a time. Of a peer, ``greedy`` is its plain decoding once more: left out."""
    found = [r for r in report["results"] if r["row"] in rows and r["timing"] is not None]
    return [r for r in found if not (r["row"] == "greedy" and r["ratio"] is not None)]


def name(row: Row) -> str:
    """Engine and what it does, as the legend has it."""
    case = row["case"]
    of = f"{case['preset']} {case['threshold']}" if "preset" in case else case.get("kv", row["row"])
    return f"{row['engine']} {of}"


def point(row: Row, report: Row, by: str) -> tuple[float, float, float | None]:
    """x, tokens a second, and what reading its bytes at the measured bandwidth would allow."""
    roof = {b["threads"]: b["best"] for b in report["bandwidth"]}
    x = row["threads"] if by == "threads" else row["case"].get(by, 0)
    return (
        x,
        row["per_second"],
        row["units"] * roof[row["threads"]] / row["bytes_moved"] if row["bytes_moved"] else None,
    )


def speed(report: Row) -> Figure | None:
    """Tokens a second by everything but threads: a panel for each subject and number of threads."""
    panels: dict[tuple[str, int, str, str], Series] = defaultdict(lambda: defaultdict(list))
    for row in measured(report, *AGAINST):
        by, label = AGAINST[row["row"]]
        panels[TITLES[row["row"]], row["threads"], by, label][name(row)].append(point(row, report, by))
    if not panels:
        return None
    bars = {key: all(len(points) == 1 for points in series.values()) for key, series in panels.items()}
    heights = [0.7 + 0.24 * len(panels[key]) if bars[key] else 2.7 for key in panels]
    figure, all_axes = begin(len(panels), sum(heights) / len(panels), 0.5)
    all_axes[0].get_gridspec().set_height_ratios(heights)
    names = list(dict.fromkeys(each for series in panels.values() for each in series))
    for axes, (key, series) in zip(all_axes, panels.items(), strict=True):
        title, count, _, label = key
        if bars[key]:
            x = next(iter(series.values()))[0][0]
            at = f", {x:,} {label}" if x else ""
            draw_bars(axes, series, f"{title}, {threads(count)}{at}", names)
        else:
            draw_lines(axes, series, f"{title}, {threads(count)}", label, names)
    return figure


def by_threads(reports: list[Row]) -> Figure | None:
    """The cases that were measured with more than one number of threads, in whatever report; the newest counts."""
    found: dict[tuple[str, int, str], dict[str, dict[int, tuple[float, float, float | None]]]] = {}
    for report in sorted(reports, key=lambda each: each["date"]):
        for row in measured(report, *AGAINST):
            by, label = AGAINST[row["row"]]
            panel = found.setdefault((TITLES[row["row"]], row["case"].get(by, 0), label), {})
            panel.setdefault(name(row), {})[row["threads"]] = point(row, report, "threads")
    several: dict[tuple[str, int, str], Series] = {}
    for key, panel in sorted(found.items()):
        kept = {of: list(points.values()) for of, points in panel.items() if len(points) > 1}
        if kept:
            several[key] = kept
    if not several:
        return None
    figure, all_axes = begin(len(several), 2.3, 0.5)
    names = list(dict.fromkeys(each for series in several.values() for each in series))
    for axes, ((title, x, label), series) in zip(all_axes, several.items(), strict=True):
        draw_lines(axes, series, f"{title}, {x:,} {label}" if x else title, "threads", names)
    return figure


def style(of: str, names: list[str]) -> tuple[str, str]:
    """Colour and marker of a line, the same in each panel; with more lines than colours they begin again."""
    at = names.index(of)
    return COLOURS[at % len(COLOURS)], MARKERS[(at + at // len(COLOURS)) % len(MARKERS)]


def draw_lines(axes: Axes, series: Series, title: str, label: str, names: list[str]) -> None:
    """A line for each engine and row; dashed, its roof."""
    for of, points in series.items():
        colour, marker = style(of, names)
        x, y, roofs = zip(*sorted(points, key=lambda each: each[:2]), strict=True)
        axes.plot(x, y, marker + "-", color=colour, label=of)
        if None not in roofs:
            axes.plot(x, roofs, "_--", color=colour, linewidth=1, alpha=0.7, label=ROOF, zorder=1)
    axes.set(xlabel=label, ylabel="tokens a second", title=title, xscale="log", yscale="log")
    ticks = sorted({x for points in series.values() for x, *_ in points})
    axes.set_xticks(ticks, labels=[f"{x:,}" for x in ticks])
    decades(axes, [y for points in series.values() for _, *ys in points for y in ys if y is not None])
    axes.grid()


def draw_bars(axes: Axes, series: Series, title: str, names: list[str]) -> None:
    """One point a line is a bar; a stroke across it is its roof."""
    for place, (of, ((_, per_second, roof),)) in enumerate(series.items()):
        colour, _ = style(of, names)
        axes.barh(place, per_second, color=colour, height=0.7)
        if roof is not None:
            axes.plot(roof, place, "|", color=colour, markersize=14, markeredgewidth=2, label=ROOF)
        end = max(per_second, roof or 0)
        axes.annotate(f"{per_second:,.4g}", (end, place), (5, 0), textcoords="offset points", va="center", fontsize=8)
    most = max(value for ((_, *values),) in series.values() for value in values if value is not None)
    axes.set_yticks(range(len(series)), labels=list(series))
    axes.set(xlabel="tokens a second", title=title, xlim=(0, most * 1.2), ylim=(len(series) - 0.4, -0.6))
    axes.grid(axis="x")


def handles(figure: Figure) -> list[object]:
    """For the legend: each line once, and what the dashes are."""
    found: dict[str, object] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    roof = found.pop(ROOF, None)
    return [*found.values(), *([roof] if roof is not None else [])]


def operations(report: Row) -> Figure | None:
    """A decode step in parts, a panel for each number of threads: share of the step, and speed of what is read."""
    profiles = report["profiles"]
    if not profiles:
        return None
    longest = max(len(profile["parts"]) for profile in profiles)
    figure, all_axes = begin(len(profiles), 0.2 * longest + 1, 0.5)
    for axes, profile in zip(all_axes, profiles, strict=True):
        parts_of_a_step(axes, profile)
    return figure


def parts_of_a_step(axes: Axes, profile: Row) -> None:
    """A bar for each part, and one for what the parts do not account for."""
    names = [f"{part['name']} ({part['calls']})" for part in profile["parts"]] + ["overhead"]
    seconds = [part["seconds"] for part in profile["parts"]] + [profile["overhead"]]
    kinds = [kind(part) for part in profile["parts"]] + [OVERHEAD]
    bars = axes.barh(names, [1e3 * s for s in seconds], color=[OPERATIONS[each] for each in kinds])
    speeds = [
        f", {p['bytes_moved'] / p['seconds'] / 1e9:.1f} GB/s" if p["bytes_moved"] >= 1e4 else ""
        for p in profile["parts"]
    ]
    labels = [f"{s / profile['step']:.1%}{speed}" for s, speed in zip(seconds, [*speeds, ""], strict=True)]
    axes.bar_label(bars, labels, fontsize=7.5, padding=3)
    low, high = 1e3 * min(0.0, *seconds), 1e3 * max(seconds)
    axes.set_xlim(low - 0.4 * (high - low) * (low < 0), high + 0.45 * (high - low))  # room for what stands beside bars
    axes.axvline(0, color="black", linewidth=0.8)
    axes.invert_yaxis()
    axes.margins(y=0.01)
    axes.tick_params(axis="y", labelsize=8)
    step, total = (f"{1e3 * profile[which]:.3g} ms" for which in ("step", "total"))
    count = threads(profile["threads"])
    axes.set_title(f"A step at context {profile['context']}, {count}: {step}\nsum of the parts: {total}")
    axes.set_xlabel("milliseconds, all calls (their number in brackets) together\nafter the bars: share of the step")
    axes.grid(axis="x")
    for each, colour in OPERATIONS.items():
        axes.barh([0], [0], color=colour, label=each)


def kind(part: Row) -> str:
    """What a part's time goes into."""
    if part["name"].startswith("attention"):
        return ATTENTION
    is_norm = part["name"].endswith("norm")  # reads weights too, and few
    return WEIGHTS if part["bytes_moved"] and not is_norm else ELSE


def ways(report: Row) -> Figure | None:
    """Forms of a product by tokens: a panel for each matrix and number of threads."""
    rows = measured(report, "gemv", "gemm")
    if not rows:
        return None
    panels: dict[tuple[str, int], Series] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        of_panel = panels[row["case"]["matrix"], row["threads"]]
        of_panel[f"{row['engine']} {row['case']['way']}"].append((row["case"]["tokens"], row["gmacs"], None))
    names = list(dict.fromkeys(each for series in panels.values() for each in series))
    figure, all_axes = begin(len(panels), 2.6, 1.0)
    for axes, ((matrix, count), series) in zip(all_axes, panels.items(), strict=True):
        draw_lines(axes, series, f"A matrix of {matrix}, {threads(count)}", "tokens", names)
        axes.set_ylabel("GMAC/s")
    return figure


KINDS: dict[str, Callable[[Row], Figure | None]] = {"speed": speed, "operations": operations, "ways": ways}
WORDS = {
    "speed": "Tokens a second",
    "operations": "One decode step, operation by operation",
    "ways": "Billions of multiply-accumulates a second, by way to multiply",
    "threads": "Tokens a second by threads",
}


if __name__ == "__main__":
    main()
