"""Charts as inline SVG, written by hand: no library, no script, no download. Colours are classes of the page's style.

Every value has a shape or a sign in addition to its colour; every chart has a title and a description for screen
readers. Values that are not finite are never drawn as numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from tritgold_conformance.rendering.escaping import escaped, name, number

_MOST = 1e300  # largest absolute value of a scale
_POINTS = 200  # of a series; with more points only the line is drawn


@dataclass(frozen=True)
class Figure:
    """A chart with its caption. legend: pairs of a sign and its meaning."""

    svg: Markup
    title: str
    says: str
    legend: Sequence[tuple[Markup, str]] = ()


@dataclass(frozen=True)
class Cell:
    """One field of a heat map. kind: a class of the style, ``k0`` ... ; mark: a sign in it; tip: its numbers."""

    kind: str
    mark: str = ""
    tip: str = ""


@dataclass(frozen=True)
class Row:
    """A row of a heat map: one cell for all columns, or one for each column; None for no cell."""

    label: str
    cells: Sequence[Cell | None]


@dataclass(frozen=True)
class Series:
    """A line. values: one for each x, None for a gap. shape: ``circle``, ``cross``, ``square`` or ``triangle``."""

    label: str
    values: Sequence[float | None]
    kind: str
    shape: str
    marked: Sequence[int] = field(default_factory=tuple)


def svg(width: float, height: float, title: str, description: str, inside: str) -> Markup:
    """The SVG element with title and label. inside: trusted markup."""
    label = escaped(f"{title}. {description}")
    return Markup(
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}"'
        f' height="{height:.0f}" role="img" aria-label="{label}"><title>{escaped(title)}</title>{inside}</svg>'
    )


def heat_map(rows: Sequence[Row], columns: Sequence[str], axis: str, title: str, description: str) -> Markup:
    """Rows from top to bottom, columns from left to right; axis: the label of the columns."""
    left = 14 + 6.3 * max((len(name(row.label)) for row in rows), default=0)
    wide = max(13.0, min(34.0, 560 / max(len(columns), 1)))
    high = 19.0
    parts = []
    for r, row in enumerate(rows):
        y = r * high
        parts.append(f'<text class="l" x="{left - 6:.1f}" y="{y + 13:.1f}">{escaped(name(row.label))}</text>')
        span = wide * len(columns) if len(row.cells) == 1 and len(columns) > 1 else wide
        for c, cell in enumerate(row.cells):
            if cell is not None:
                parts.append(_cell(cell, left + c * wide, y, span - 1, high - 1))
    bottom = len(rows) * high
    every = max(1, math.ceil(28 / wide))
    for c in range(0, len(columns), every):
        parts += [_label(columns[c], left + (c + 0.5) * wide, bottom + 13)]
    parts.append(_label(axis, left + len(columns) * wide / 2, bottom + 29))
    return svg(left + max(len(columns) * wide, 60) + 10, bottom + 36, title, description, "".join(parts))


def _label(text: object, x: float, y: float) -> str:
    """The text of a label below an axis, centred at x."""
    return f'<text class="m" x="{x:.1f}" y="{y:.1f}">{escaped(text)}</text>'


def _cell(cell: Cell, x: float, y: float, wide: float, high: float) -> str:
    tip = f"<title>{escaped(cell.tip)}</title>" if cell.tip else ""
    mark = ""
    if cell.mark:
        mark = f'<text class="m s" x="{x + wide / 2:.1f}" y="{y + high / 2 + 4:.1f}">{escaped(cell.mark)}</text>'
    box = f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}">{tip}</rect>'
    return f'<g class="{cell.kind}">{box}{mark}</g>'


def lines(
    series: Sequence[Series],
    xs: Sequence[int],
    axis: str,
    title: str,
    description: str,
    size: tuple[float, float] = (620, 240),
    floor: float | None = None,
    limit: float | None = None,
) -> Markup:
    """Values over whole numbers. floor: use a logarithmic scale that begins there; smaller values are drawn at floor.

    limit: a dashed line. Without a floor the scale is linear and includes zero.
    """
    width, height = size
    scale = _Scale.of([v for s in series for v in s.values] + [limit], floor, height - 42)
    left, right = 58.0, width - 12
    lowest, span = min(xs, default=0), max(max(xs, default=0) - min(xs, default=0), 1)

    def x(value: float) -> float:
        return (left + right) / 2 if len(xs) == 1 else left + 10 + (value - lowest) / span * (right - left - 20)

    parts = []
    for tick, label in scale.ticks():
        y = scale.y(tick)
        parts.append(f'<path class="grid" d="M{left:.1f} {y:.1f}H{right:.1f}"/>')
        parts.append(f'<text class="l" x="{left - 5:.1f}" y="{y + 4:.1f}">{label}</text>')
    parts += [_label(value, x(value), height - 20) for value in _some(xs, (right - left) / 34)]
    parts.append(_label(axis, (left + right) / 2, height - 4))
    if limit is not None:
        parts.append(f'<path class="limit" d="M{left:.1f} {scale.y(limit):.1f}H{right:.1f}"/>')
    for one in series:
        at = {i: v for i, v in zip(xs, one.values, strict=True) if v is not None and math.isfinite(v)}
        path = "".join(_to(i, at, x(i), scale) for i in xs)
        parts.append(f'<g class="{one.kind}"><path class="line" d="{path}"/>')
        parts += [_point(one.shape, x(i), scale.y(v)) for i, v in at.items()] if len(at) <= _POINTS else []
        parts.append("</g>")
        parts += [_failing(x(i), scale.y(at[i]) if i in at else scale.top, scale.top) for i in one.marked]
    return svg(width, height, title, description, "".join(parts))


def _to(i: int, at: dict[int, float], x: float, scale: "_Scale") -> str:
    """A line to this point of a path from the previous point, or a move if there is no previous point."""
    return f"{'L' if i - 1 in at else 'M'}{x:.1f} {scale.y(at[i]):.1f}" if i in at else ""


def bars(rows: Sequence[tuple[str, float, str]], title: str, description: str) -> Markup:
    """Horizontal bars: (label, value, class); the value is written after each bar."""
    most = max((value for _, value, _ in rows), default=0.0) or 1.0
    left = 14 + 6.3 * max((len(name(label)) for label, _, _ in rows), default=0)
    parts = []
    for r, (label, value, kind) in enumerate(rows):
        y, long = r * 26.0, max(value / most * 280, 1.0)
        parts.append(f'<text class="l" x="{left - 6:.1f}" y="{y + 16:.1f}">{escaped(name(label))}</text>')
        parts.append(f'<g class="{kind}"><rect x="{left:.1f}" y="{y + 3:.1f}" width="{long:.1f}" height="18"/></g>')
        parts.append(f'<text x="{left + long + 6:.1f}" y="{y + 16:.1f}">{value:,.1f}</text>')
    return svg(left + 380, 26 * len(rows) + 4, title, description, "".join(parts))


def legend_mark(shape: str, kind: str) -> Markup:
    """The sign of a series, for a legend; hidden from screen readers, which read the label after it."""
    return Markup(
        f'<svg class="key" viewBox="0 0 22 12" width="22" height="12" aria-hidden="true"><g class="{kind}">'
        f'<path class="line" d="M0 6H22"/>{_point(shape, 11, 6)}</g></svg>'
    )


def _point(shape: str, x: float, y: float) -> str:
    if shape == "cross":
        return f'<path class="p" d="M{x - 3.5:.1f} {y - 3.5:.1f}l7 7m0-7l-7 7"/>'
    if shape == "square":
        return f'<rect class="p" x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6"/>'
    if shape == "triangle":
        return f'<path class="p" d="M{x:.1f} {y - 4:.1f}l4 7h-8z"/>'
    return f'<circle class="p" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'


def _failing(x: float, y: float, top: float) -> str:
    return f'<text class="m bad" x="{x:.1f}" y="{max(y - 9, top) + 3:.1f}">✗</text>'


def _some(xs: Sequence[int], room: float) -> list[int]:
    """Every n-th value, so that the labels have room."""
    return list(xs[:: max(1, math.ceil(len(xs) / max(room, 1)))])


@dataclass(frozen=True)
class _Scale:
    """From values to pixels, downwards. floor: of a logarithmic scale; None for a linear one."""

    low: float
    high: float
    floor: float | None
    bottom: float
    top: float = 14.0

    @classmethod
    def of(cls, values: Sequence[float | None], floor: float | None, bottom: float) -> "_Scale":
        finite = [max(-_MOST, min(v, _MOST)) for v in values if v is not None and math.isfinite(v)]
        if floor is None:
            low, high = min([0.0, *finite]), max([0.0, *finite])
            step = _nice((high - low) / 4 or 0.25)
            return cls(math.floor(low / step) * step, math.ceil(high / step) * step or step, None, bottom)
        high = math.ceil(math.log10(max([*finite, floor])))
        return cls(math.log10(floor), max(high, math.log10(floor) + 4), floor, bottom)

    def y(self, value: float) -> float:
        """The pixel of a finite value."""
        at = value if self.floor is None else math.log10(max(value, self.floor))
        return self.bottom - (at - self.low) / (self.high - self.low) * (self.bottom - self.top)

    def ticks(self) -> list[tuple[float, str]]:
        """At most nine values with their labels."""
        if self.floor is None:
            step = _nice((self.high - self.low) / 4)
            first = math.ceil(self.low / step)
            count = math.floor(self.high / step) - first + 1
            return [((first + i) * step, number((first + i) * step)) for i in range(min(count, 9))]
        low, high = round(self.low), round(self.high)
        every = max(1, math.ceil((high - low) / 6))
        return [(10.0**e, f"{'≤' if e == low else ''}1e{e}") for e in range(low, high + 1, every)]


def _nice(step: float) -> float:
    """The smallest of 1, 2 or 5 times a power of ten that is not less than the step."""
    step = max(step, 1 / _MOST)
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= step * 0.999)
