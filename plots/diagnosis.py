"""Which fault was named for which, from docs/data/diagnosis-MODEL.json: docs/images/diagnosis.svg.

A panel a level: rows are the faults that engines had, columns the faults that were named, both by area. A right answer
is on the diagonal and needs no name; a wrong one is numbered and stands below. Colours are not all that tells them
apart: shapes do too.
"""

import textwrap
from collections import Counter
from pathlib import Path

from drawing import COLOURS, DATA, EVERYWHERE, IMAGES, Row, begin, caption, read, save
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

MODELS = ("kjv-ar", "kjv-dlm", "seeded", "llama", "untied")
LEVELS = {"trace": "from traces", "statistics": "from statistics alone", "logits": "from logits alone"}
RIGHT, WRONG, NONE, UNSEEN = COLOURS[0], COLOURS[1], COLOURS[3], COLOURS[7]
KINDS = (
    ("named, or among faults that say the same", RIGHT, "s"),
    ("another fault named: numbered", WRONG, "o"),
    ("called none of the known", NONE, "D"),
    ("the level does not show it", UNSEEN, "|"),
)
LINE = 0.14  # inches of a miss below a panel
Rows = list[Row]


def faults(rows: Rows) -> dict[str, str]:
    """Fault -> area, in the order of the library, those of an area together."""
    found = {row["fault"]: row["area"] for row in rows}
    order = list(dict.fromkeys(found.values()))
    return dict(sorted(found.items(), key=lambda item: order.index(item[1])))


def bands(axes: Axes, areas: list[str]) -> None:
    """Lines between the areas, and their names."""
    starts = [n for n, area in enumerate(areas) if n == 0 or areas[n - 1] != area]
    middles = [(a + b - 1) / 2 for a, b in zip(starts, [*starts[1:], len(areas)], strict=True)]
    for start in starts[1:]:
        axes.axhline(start - 0.5, color="#dddddd", linewidth=0.6, zorder=0)
        axes.axvline(start - 0.5, color="#dddddd", linewidth=0.6, zorder=0)
    names = [areas[start] for start in starts]
    axes.set_yticks(middles, labels=names, fontsize=8)
    axes.set_xticks([*middles, len(areas) + 4, len(areas) + 10], labels=[*names, "none", "not shown"], fontsize=8)
    axes.tick_params(axis="x", rotation=60, length=0)
    axes.tick_params(axis="y", length=0)


def matrix(axes: Axes, rows: Rows, title: str, models: int) -> int:
    """One level; returns how many lines of misses stand below. Marks are as large as the share of the models."""
    of = faults(rows)
    place = {name: n for n, name in enumerate(of)}
    none, unseen = len(of) + 4, len(of) + 10
    counts: Counter[tuple[int, int, str, str]] = Counter()
    wrong: Counter[tuple[str, str]] = Counter()
    for row in rows:
        y = place[row["fault"]]
        if not row["visible"]:
            counts[unseen, y, UNSEEN, "|"] += 1
        elif row["right"]:
            counts[y, y, RIGHT, "s"] += 1
        else:
            named = row["named"][0] if row["named"] else "none of the known"
            counts[place.get(named, none), y, *((WRONG, "o") if row["named"] else (NONE, "D"))] += 1
            wrong[row["fault"], " + ".join(row["named"]) or "none of the known"] += 1
    for (x, y, colour, marker), count in counts.items():
        axes.scatter(x, y, s=6 + 22 * count / models, color=colour, marker=marker, linewidths=1, alpha=0.9)
    lines = []
    for number, ((fault, named), count) in enumerate(wrong.items(), 1):
        x = place.get(named.partition(" + ")[0], none)
        axes.annotate(str(number), (x, place[fault]), (4, 3), textcoords="offset points", fontsize=7, color="black")
        lines.append(f"{number}  {fault} \N{RIGHTWARDS ARROW} {named}" + (f", {count} models" if count > 1 else ""))
    seen = [row for row in rows if row["visible"]]
    right = sum(row["right"] for row in seen)
    axes.set(xlim=(-2, unseen + 2), ylim=(len(of) + 1, -2), ylabel="the fault that the engine has")
    axes.set_title(f"{title}: {right} of {len(seen)}")
    bands(axes, list(of.values()))
    listed = [part for line in lines for part in textwrap.wrap(line, 88, subsequent_indent="    ")]
    axes.set_xlabel("what was named")
    shown = "\n".join(listed or ["no other fault was named"])
    axes.annotate(shown, (0, 0), (-40, -78), "axes fraction", "offset points", va="top", fontsize=7, linespacing=1.4)
    return len(listed)


def main(images: Path = IMAGES) -> None:
    """A panel for each level, over all models."""
    sources = [DATA / f"diagnosis-{name}.json" for name in MODELS]
    rows = [row for source in sources for row in read(source)["matrix"]]
    order = {name: n for n, name in enumerate(faults(rows))}
    rows.sort(key=lambda row: order[row["fault"]])
    figure, panels = begin(len(LEVELS), 5.8, 0.9)
    lines = 0
    for axes, (level, title) in zip(panels, LEVELS.items(), strict=True):
        lines += matrix(axes, [row for row in rows if row["level"] == level], title, len(MODELS))
    figure.set_figheight(figure.get_figheight() + LINE * lines)
    handles = [Line2D([], [], color=c, marker=m, linestyle="", label=label) for label, c, m in KINDS]
    said = "Faults of engines, and what was named; rows and columns are faults by area."
    save(figure, images / "diagnosis.svg", caption(said, EVERYWHERE, sources), handles, 1)


if __name__ == "__main__":
    main()
