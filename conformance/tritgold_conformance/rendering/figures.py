"""Charts of a report: activation statistics, logits, tokens per second; empty or None without data."""

import math

from tritgold.trace_names import TraceName
from tritgold_conformance.comparing.logits import LOGIT_NOISE
from tritgold_conformance.rendering.charts import Figure, Series, bars, legend_mark, lines
from tritgold_conformance.rendering.error_maps import layer_of
from tritgold_conformance.rendering.escaping import number
from tritgold_conformance.rendering.wording import speeds
from tritgold_conformance.results.report import Report

_STATISTICS = ("attn_mix", "attn_residual", "ffn_act", "ffn_residual")
_WORDS = {
    "rms": "Root mean square", "std": "Standard deviation", "max": "Largest value", "min": "Smallest value",
    "mean": "Mean", "zeros": "Share of zeros",
}  # fmt: skip
_MOMENTS = ("rms", "std", "max", "min", "mean")  # the first that the engine gives is drawn
_PATHS = {"prefill": ("golden", "circle"), "continued": ("engine", "cross"), "steps": ("third", "triangle")}
# The legend of all charts of statistics.
SIDES = ((legend_mark("circle", "golden"), "golden"), (legend_mark("cross", "engine"), "engine"))
_SMALLEST_KL, _SMALLEST_ERROR = 1e-16, 1e-9


def statistics_charts(report: Report) -> list[Figure]:
    """Root mean squares and zeros by layer, of both sides: of _STATISTICS, or of other arrays that the engine gives."""
    numbered = {name: layer for name in report.statistics if (layer := layer_of(name)).isdecimal() and len(layer) < 7}
    layers = sorted({int(layer) for layer in numbered.values()})
    kinds = list(dict.fromkeys(TraceName.of(name).inner for name in numbered))
    shown = [what for what in _STATISTICS if what in kinds] or kinds[: len(_STATISTICS)]
    charts = [next((c for m in _MOMENTS if (c := _pair(report, layers, what, m))), None) for what in shown]
    return [chart for chart in [*charts, _pair(report, layers, "ffn_act", "zeros")] if chart]


def _pair(report: Report, layers: list[int], what: str, moment: str) -> Figure | None:
    """A chart of one moment of one kind of array; None if the engine gives it for no layer."""
    found = {layer: report.statistics.get(f"layers.{layer}.{what}", {}) for layer in layers}
    xs = [layer for layer, pair in found.items() if {"golden", "engine"} <= pair.keys()]
    golden, engine = ([getattr(found[x][side], moment) for x in xs] for side in ("golden", "engine"))
    absent = [x for x, value in zip(xs, engine, strict=True) if value is None]
    # The share of zeros is known even if values are not finite: a missing one was not given by the engine.
    lost = [x for x in absent if moment != "zeros" and found[x]["engine"].finite < 1]
    if not lost and len(absent) == len(xs):
        return None
    series = [Series("golden", golden, "golden", "circle"), Series("engine", engine, "engine", "cross", lost)]
    positive = [v for v in (*golden, *engine) if v is not None and v > 0]
    spread = bool(positive) and moment in ("rms", "std") and max(positive) > 30 * min(positive)
    floor = max(10.0 ** math.floor(math.log10(min(positive))), 1e-30) if spread else None
    title = f"{_WORDS[moment]} of {what}"
    both = [(g, e) for g, e in zip(golden, engine, strict=True) if g is not None and e is not None]
    far = max((abs(e - g) / max(abs(g), 1e-30) for g, e in both), default=None)
    says = "Not finite."
    if far is not None:
        percent = f"{far * 100:,.0f}" if 0.1 <= far < 1e6 else number(far * 100, 2)
        says = f"Engine and golden are at most {percent}% apart." if far else "Equal."
    if lost:
        says += " ✗: the engine's is not finite."
    return Figure(lines(series, xs, "layer", title, says, (330, 190), floor), title, says)


def logits_charts(report: Report) -> list[Figure]:
    """KL divergence and error of the logits at each position, for each path."""
    series_kl, series_error = [], []
    xs = list(range(max((len(v.positions) for v in report.logits), default=0)))
    said = []
    for verdict in report.logits:
        kind, shape = _PATHS.get(verdict.path, ("golden", "square"))
        failing = [i for i, p in enumerate(verdict.positions) if not p.passed]
        rest = [None] * (len(xs) - len(verdict.positions))
        kl = [max(p.kl, 0.0) for p in verdict.positions]
        series_kl.append(Series(verdict.path, [*kl, *rest], kind, shape, failing))
        error = [p.explained for p in verdict.positions]
        series_error.append(Series(verdict.path, [*error, *rest], kind, shape, failing))
        counts = f"{len(failing)} of {len(verdict.positions)} positions fail" if verdict.positions else verdict.problem
        said.append(f"{verdict.path}: {counts}")
    if not xs:
        return []
    legend = [(legend_mark(s.shape, s.kind), s.label) for s in series_kl]
    title = "KL divergence of the next token, golden from engine, by position"
    says = f"In nats. {'; '.join(said)}."
    first = Figure(lines(series_kl, xs, "position", title, says, floor=_SMALLEST_KL), title, says, legend)
    spread = next((v.allowed for v in report.logits if v.allowed is not None), None)
    limit = LOGIT_NOISE if spread is None else None
    title = "Error of the logits by position"
    says = "The largest difference over the position's largest logit, broken ties followed. "
    says += f"Dashed: {number(LOGIT_NOISE)} is allowed." if limit else f"Held to the golden spread, {number(spread)}."
    second = lines(series_error, xs, "position", title, says, floor=_SMALLEST_ERROR, limit=limit)
    return [first, Figure(second, title, says, legend)]


def speed_chart(report: Report) -> Figure | None:
    """Tokens per second of both sides, timed in one process."""
    rows = []
    for side, (name, speed) in zip(("engine", "golden"), speeds(report), strict=False):
        for what in ("prefill", "decode"):
            rate = getattr(speed, what)
            if rate is not None:
                rows.append((f"{what}, {name}", rate, side))
    if not rows:
        return None
    title = "Tokens a second"
    says = f"Prefill of {speeds(report)[0][1].tokens} tokens and single steps, medians, both timed in one process."
    return Figure(bars(sorted(rows, key=lambda row: row[0].startswith("decode")), title, says), title, says)
