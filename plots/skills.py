"""What each thing costs, in answers: docs/images/skills-*.svg, from docs/data/skills-*.json.

Every share of right answers stands with its 95 % interval (Wilson); a dotted line is the unchanged model.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from drawing import COLOURS, DATA, EVERYWHERE, IMAGES, MARKERS, Row, begin, caption, read, save
from kv_error import styles
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

PARTS = ("engines", "thresholds", "presets", "caches", "sparsity", "policies", "faults")
SOURCES = {part: DATA / f"skills-{part}.json" for part in PARTS}
EFFECTS = {
    "destroys": (COLOURS[1], "more than half of the right answers lost"),
    "costs": (COLOURS[4], "some lost, more than gained"),
    "hides": (COLOURS[5], "no more lost than gained"),
}
SMALL = 7.5
NOTHING_LOST = ("none", "zero_skipping")  # the dense model itself
SETTINGS = 3  # a rule with more of them is a line
APART = 1.035  # between schemes of nearly the same bits, which would hide one another


def rows_of(part: str) -> list[Row]:
    """The rows of a report that were scored."""
    return [row for row in read(SOURCES[part])["rows"] if "accuracy" in row]


def told(said: str, *parts: str) -> str:
    """The caption: which models, and of which bytes."""
    return caption(f"{said} Bars: 95 % intervals.", EVERYWHERE, [SOURCES[part] for part in parts])


def points(axes: Axes, x: Sequence[float], rows: Sequence[Row], style: str, colour: str, label: str = "") -> None:
    """Accuracy over x, with intervals."""
    y = [row["accuracy"] for row in rows]
    reach = [[a - row["interval"][0] for a, row in zip(y, rows, strict=True)]]
    reach.append([row["interval"][1] - a for a, row in zip(y, rows, strict=True)])
    axes.errorbar(x, y, np.abs(reach), fmt=style, color=colour, label=label, elinewidth=0.7, alpha=0.85)


def level(axes: Axes, values: Sequence[str], rows: Sequence[Row], style: str, colour: str, shift: float = 0.0) -> None:
    """A dot for each row, downwards, with its interval; the rows' names are the ticks."""
    for place, row in enumerate(rows):
        low, high = row["interval"]
        axes.plot([low, high], [place + shift] * 2, color=colour, linewidth=0.8)
        axes.plot(row["accuracy"], place + shift, style, color=colour, markersize=4.5, clip_on=False)
    axes.set_yticks(range(len(values)), labels=list(values), fontsize=SMALL)
    axes.set(xlim=(-0.02, 1.02), ylim=(len(values) - 0.4, -0.6))
    axes.grid(True, axis="x")
    axes.tick_params(axis="y", length=0)


def least(rows: Sequence[Row]) -> float:
    """Where an axis of shares begins: a little below the lowest interval."""
    return max(-0.02, min(row["interval"][0] for row in rows) - 0.03)


def models(images: Path) -> None:
    """Both models by task, and engines."""
    rows = [row for row in rows_of("engines") if row["engine"] == "reference"]
    names = list(dict.fromkeys(row["model"] for row in rows))
    figure, (above, below) = begin(2, 2.6, 0.7)
    above.get_gridspec().set_height_ratios((4, 1))
    handles = []
    for number, name in enumerate(names):
        found = [row for row in rows if row["model"] == name]
        shift = 0.3 * (number - (len(names) - 1) / 2)
        level(above, [row["task"] for row in found], found, MARKERS[number], COLOURS[number], shift)
        handles.append(Line2D([], [], color=COLOURS[number], marker=MARKERS[number], linestyle="", label=name))
    above.set(title="By task, the golden model", xlabel="share of right answers")
    totals = [row for row in rows_of("engines") if row["task"] == "all" and row["model"] == names[0]]
    level(below, [row["engine"] for row in totals], totals, MARKERS[0], COLOURS[0])
    below.set(title=f"By engine, {names[0]}, all tasks", xlabel="share of right answers")
    said = f"How often {' and '.join(names)} are right, one token after the other."
    save(figure, images / "skills-models.svg", told(said, "engines"), handles)


def diffusion(images: Path) -> None:
    """Accuracy and passes over thresholds, and the presets at their own."""
    rows, presets = rows_of("thresholds"), rows_of("presets")
    names = [row["preset"] for row in presets]
    style = {
        name: (COLOURS[n % len(COLOURS)], MARKERS[(n + n // len(COLOURS)) % len(MARKERS)])
        for n, name in enumerate(names)
    }
    figure, (first, second, third) = begin(3, 2.5, 1.0)
    for number, way in enumerate(dict.fromkeys(row["way"] for row in rows)):
        found = [row for row in rows if row["way"] == way]
        at, (colour, marker) = [row["threshold"] for row in found], style[way]
        points(first, [x + 0.004 * number for x in at], found, f"{marker}-", colour)
        second.plot(at, [row["passes_per_token"] for row in found], f"{marker}-", color=colour)
    first.set(xlabel="threshold, probability", ylabel="share of right answers", title="Right, by threshold")
    second.set(xlabel="threshold, probability", ylabel="passes a token", title="Passes, by threshold")
    second.set_ylim(bottom=0)
    for row in presets:
        colour, marker = style[row["preset"]]
        points(third, [row["passes_per_token"]], [row], marker, colour, row["preset"])
    third.set(xlabel="passes a token", ylabel="share of right answers", title="Presets, by passes", xscale="log")
    ticks = (0.1, 0.2, 0.5, 1, 2)
    third.set_xticks(ticks, labels=[f"{tick:g}" for tick in ticks])
    third.minorticks_off()
    for axes in (first, third):
        axes.set_ylim(-0.03, 1.03)
    for axes in (first, second, third):
        axes.grid()
    handles = third.get_legend_handles_labels()[0]
    said = "Block diffusion of skills-dlm. In the lowest panel, left of another at the same height is better."
    save(figure, images / "skills-diffusion.svg", told(said, "thresholds", "presets"), handles)


def caches(images: Path) -> None:
    """Accuracy by bits a value."""
    first, *rows = rows_of("caches")
    style = styles([row["scheme"] for row in rows])
    figure, (axes,) = begin(1, 3.4, 1.5)
    axes.axhline(first["accuracy"], color="black", linestyle=":", linewidth=0.9, label=f"{first['scheme']}, exact")
    by_name = {row["scheme"]: row for row in rows}
    placed = dict(zip(*apart(sorted(style, key=lambda name: by_name[name]["bits"]), by_name), strict=True))
    for name, (colour, marker) in style.items():
        points(axes, [placed[name]], [by_name[name]], marker, colour, name)
    axes.set(xlabel="bits a value, scales included", ylabel="share of right answers", xscale="log")
    ticks = (2, 3, 4, 5, 6, 8, 12, 16)
    axes.set_xticks(ticks, labels=[str(n) for n in ticks])
    axes.set(xlim=(1.9, 19), ylim=(least(rows), 1.02), title="Right, by size of the KV cache")
    axes.minorticks_off()
    axes.grid()
    said = (
        f"skills-ar with each KV scheme, {first['of']} questions. Schemes of nearly the same bits stand side by side."
    )
    handles = axes.get_legend_handles_labels()[0]
    save(figure, images / "skills-caches.svg", told(said, "caches"), handles)


def apart(names: Sequence[str], rows: dict[str, Row]) -> tuple[Sequence[str], list[float]]:
    """Names in order of bits, and where each stands: at its bits, or a little after the one before it."""
    places: list[float] = []
    for name in names:
        places.append(max(rows[name]["bits"], places[-1] * APART if places else 0.0))
    return names, places


def rules(images: Path) -> None:
    """Sparsity rules by their zeros, and policies."""
    figure, panels = begin(3, 2.6, 1.4)
    panels[0].get_gridspec().set_height_ratios((1, 1, 1.25))
    first, *rest = rows_of("sparsity")
    rest = [row for row in rest if row["rule"] not in NOTHING_LOST]
    families = list(dict.fromkeys(row["rule"].partition(":")[0] for row in rest))
    for axes, kind in zip(panels, ("activations", "attention"), strict=False):
        axes.axhline(first["accuracy"], color="black", linestyle=":", linewidth=0.9)
        for name in families:
            found = [row for row in rest if row["kind"] == kind and row["rule"].partition(":")[0] == name]
            at = families.index(name)
            marker = MARKERS[(at + at // len(COLOURS)) % len(MARKERS)]
            if found:
                found.sort(key=lambda row: row["sparsity"])
                look = marker + ("-" if len(found) > SETTINGS else "")
                points(axes, [row["sparsity"] for row in found], found, look, COLOURS[at % len(COLOURS)], name)
        axes.set(xlabel="measured share of zeros", ylabel="share of right answers", title=f"Sparsity of {kind}")
        axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
        axes.grid()
    policies = rows_of("policies")
    level(panels[2], [row["policy"] for row in policies], policies, "o", COLOURS[0])
    panels[2].axvline(policies[0]["accuracy"], color="black", linestyle=":", linewidth=0.9)
    panels[2].set_xlim(least(policies), 1.005)
    panels[2].set(title="Arithmetic modes and precision policies", xlabel="share of right answers")
    handles = [handle for axes in panels[:2] for handle in axes.get_legend_handles_labels()[0]]
    said = f"skills-ar, {first['of']} questions. A rule has a symbol for each of its settings."
    save(figure, images / "skills-rules.svg", told(said, "sparsity", "policies"), handles)


def faults(images: Path) -> None:
    """How many faults of each area destroy, cost and hide; and each that destroys or costs."""
    golden, *rows = rows_of("faults")
    areas = list(dict.fromkeys(row["area"] for row in rows))
    shown = [(area, row) for area in areas for row in ordered(rows, area) if row["effect"] != "hides"]
    figure, (above, below) = begin(2, (2.2 + 0.148 * (len(shown) + len(areas))) / 2, 0.8)
    above.get_gridspec().set_height_ratios((1.5, 0.148 * (len(shown) + len(areas))))
    for place, area in enumerate(areas):
        start = 0
        for effect, (colour, _) in EFFECTS.items():
            count = sum(row["area"] == area and row["effect"] == effect for row in rows)
            above.barh(place, count, left=start, color=colour, height=0.7)
            if count:
                above.text(start + count / 2, place, str(count), ha="center", va="center", fontsize=SMALL)
            start += count
    above.set_yticks(range(len(areas)), labels=areas, fontsize=SMALL)
    above.set(ylim=(len(areas) - 0.4, -0.6), xlabel="faults", title="What faults do to answers, by area")
    strips(below, shown, areas, golden["right"])
    for axes in (above, below):
        axes.tick_params(axis="y", length=0)
        axes.spines[["top", "right"]].set_visible(False)
    handles = [Patch(color=colour, label=f"{effect}: {words}") for effect, (colour, words) in EFFECTS.items()]
    said = f"skills-ar with each fault, {golden['of']} questions, {golden['right']} of them right without a fault."
    told_of = caption(said, EVERYWHERE, [SOURCES["faults"]])
    save(figure, images / "skills-faults.svg", told_of, handles, 1)


def ordered(rows: Sequence[Row], area: str) -> list[Row]:
    """The faults of an area, those that lose most first."""
    return sorted((row for row in rows if row["area"] == area), key=lambda row: (-row["lost"], row["fault"]))


def strips(axes: Axes, shown: Sequence[tuple[str, Row]], areas: Sequence[str], most: int) -> None:
    """A bar for each fault under the name of its area."""
    labels, place = list[tuple[int, str, str]](), 0
    for area in areas:
        labels.append((place, area, "bold"))
        for row in (row for of, row in shown if of == area):
            place += 1
            axes.barh(place, row["lost"] / most, color=EFFECTS[row["effect"]][0], height=0.75)
            labels.append((place, row["fault"], "normal"))
        place += 1
    ticks = axes.set_yticks([at for at, _, _ in labels], labels=[name for _, name, _ in labels], fontsize=6.5)
    for tick, (_, _, weight) in zip(ticks, labels, strict=True):
        tick.label1.set_weight(weight)
    axes.set(xlim=(0, 1), ylim=(place - 0.4, -0.6), xlabel="share of the right answers that is lost")
    axes.set_title("Those that destroy or cost")
    axes.grid(axis="x")
    axes.set_axisbelow(True)


def main(images: Path = IMAGES) -> None:
    """All five."""
    for draw in (models, diffusion, caches, rules, faults):
        draw(images)


if __name__ == "__main__":
    main()
