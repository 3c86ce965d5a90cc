"""Heat maps of a report: the error by operation and layer, and by layer and position."""

import math
from collections.abc import Callable, Sequence

from markupsafe import Markup

from tritgold.trace_names import TraceName
from tritgold_conformance.comparing.compare import Comparison
from tritgold_conformance.comparing.free_running import NOISE
from tritgold_conformance.rendering.charts import Cell, Figure, Row, heat_map
from tritgold_conformance.rendering.escaping import number
from tritgold_conformance.results.cases import Case, cases
from tritgold_conformance.results.report import FreeRun, Report

OF_ALLOWED = {
    "k0": "equal", "k1": "up to 0.1", "k2": "up to 0.5", "k3": "up to 1", "k4": "fails, up to 10 times",
    "k5": "fails, up to 1,000 times", "k6": "fails, beyond, or integers differ", "k7": "cannot be compared",
    "kn": "not assessed",
}  # fmt: skip
OF_TOKEN = {
    "k0": "equal", "k1": "up to 1e-7", "k2": "up to 1e-6", "k3": f"up to {number(NOISE)}, float noise",
    "k4": "up to 1e-3", "k5": "up to 0.1", "k6": "more", "k7": "not finite, or another shape", "kn": "not shown",
}  # fmt: skip
_MARKS = {"k4": "✗", "k5": "✗", "k6": "✗", "k7": "!", "kn": "·"}


def operations_map(report: Report) -> Figure | None:
    """Each operation on golden inputs, by layer: its error divided by the allowed error."""
    of = {case.name: case for case in cases(report) if case.level == "operations" and case.name}
    compared = {c.name: c for c in report.operations}
    if not compared.keys() & of.keys():
        return None

    def cell(name: str) -> Cell | None:
        return None if name not in of else _of_operation(of[name], compared.get(name))

    rows, layers = _by_layer(list(of), cell)
    title = "Error of each operation on golden inputs, by layer"
    failing = sum(case.failing for case in of.values())
    says = f"{len(of)} outputs, {failing} fail. The worst element's error over what is allowed for it."
    return Figure(heat_map(rows, layers, "layer", title, says), title, says, _swatches(OF_ALLOWED))


def _of_operation(case: Case, c: Comparison | None) -> Cell:
    if c is None:
        return Cell("kn", "·", f"{case.name}: not assessed")
    off = "" if c.excess is None else f", {number(c.excess)} of what is allowed"
    tip = f"{c.name}: {c.outcome}{off}{': ' + c.what if c.what else ''}"
    if c.passed:
        share = c.excess or 0.0
        kind = "k0" if not c.differing else "k1" if share <= 0.1 else "k2" if share <= 0.5 else "k3"
        return Cell(kind, "", tip)
    if not c.worst:
        return Cell("k7", "!", tip)
    kind = "k6" if c.excess is None or c.excess > 1000 else "k5" if c.excess > 10 else "k4"
    return Cell(kind, "≈" if case.status == "known failures" else "✗", tip)


def layer_map(report: Report) -> Figure | None:
    """The engine's own activations: the worst error of each output, by layer."""
    errors = {} if report.free_run is None else _judged(report.free_run)
    if report.free_run is None or not errors:
        return None

    def cell(name: str) -> Cell | None:
        return _of_error(name, errors[name]) if name in errors else None

    rows, layers = _by_layer(list(errors), cell)
    title = "Error of the engine's own activations, by layer"
    says = f"The largest difference over the token's largest golden value. {_divergence(report.free_run)}"
    return Figure(heat_map(rows, layers, "layer", title, says), title, says, _swatches(OF_TOKEN))


def position_map(report: Report) -> Figure | None:
    """The engine's own activations, by position: the worst output of each layer."""
    run = report.free_run
    errors = {} if run is None else _judged(run)
    if run is None or not errors:
        return None
    groups: dict[str, list[str]] = {}
    for name in errors:
        groups.setdefault(layer_of(name) or name, []).append(name)
    positions = run.errors.positions
    rows = [
        Row(group if group in errors else f"layer {group}", _columns(errors, names, run))
        for group, names in groups.items()
    ]
    title = "Error of the engine's own activations, by position"
    several = ", each column the worst of several positions" if len(positions) > 1 and positions[1] > 1 else ""
    says = f"The worst output of each layer{several}. {_divergence(run)}"
    chart = heat_map(rows, [str(p) for p in positions], "position", title, says)
    return Figure(chart, title, says, _swatches(OF_TOKEN))


def _divergence(run: FreeRun) -> str:
    if run.divergence is None:
        return "All that was judged agrees up to float noise."
    return f"First divergence: {run.divergence.name}; what follows may be wrong because of it."


def _judged(run: FreeRun) -> dict[str, list[float | None]]:
    """Errors to show. Without a divergence only compared outputs: an error in others may come from a broken tie."""
    shown = run.errors.outputs
    kept = shown if run.divergence is not None else [name for name in run.compared if name in shown]
    columns = len(run.errors.positions)
    return {name: shown[name] for name in kept if len(shown[name]) == columns > 0}


def _of_error(name: str, errors: Sequence[float | None]) -> Cell:
    finite = [e for e in errors if e is not None]
    if len(finite) < len(errors):
        return Cell("k7", "!", f"{name}: {OF_TOKEN['k7']}")
    worst = max(finite)
    bins = (("k0", 0.0), ("k1", 1e-7), ("k2", 1e-6), ("k3", NOISE), ("k4", 1e-3), ("k5", 0.1))
    kind = next((k for k, most in bins if worst <= most), "k6")
    return Cell(kind, _MARKS.get(kind, ""), f"{name}: {number(worst)}")


def _columns(errors: dict[str, list[float | None]], names: list[str], run: FreeRun) -> list[Cell]:
    return [_of_column(errors, names, column, run) for column in range(len(run.errors.positions))]


def _of_column(errors: dict[str, list[float | None]], names: list[str], column: int, run: FreeRun) -> Cell:
    def badness(name: str) -> float:
        error = errors[name][column]
        return math.inf if error is None else error

    worst = max(names, key=badness)
    return _of_error(f"position {run.errors.positions[column]}, {worst}", [errors[worst][column]])


def layer_of(name: str) -> str:
    """The layer in a trace name; empty if it has none."""
    layer = TraceName.of(name).layer
    return "" if layer is None else str(layer)


def _by_layer(names: list[str], cell: Callable[[str], Cell | None]) -> tuple[list[Row], list[str]]:
    """Rows in execution order, with outputs outside the layers as one cell across all columns; and the layers."""
    layers = list(dict.fromkeys(layer for name in names if (layer := layer_of(name))))
    layers.sort(key=lambda layer: (len(layer), layer))
    rows: dict[str, Row] = {}
    for name in names:
        what = TraceName.of(name).in_every_layer
        if what not in rows:
            across = [cell(name)] if what == name else [cell(f"layers.{layer}.{what}") for layer in layers]
            rows[what] = Row(what, across)
    return list(rows.values()), layers or [""]


def _swatches(kinds: dict[str, str]) -> list[tuple[Markup, str]]:
    swatch = Markup('<span class="swatch {}" aria-hidden="true">{}</span>')
    return [(swatch.format(kind, _MARKS.get(kind, "")), says) for kind, says in kinds.items()]
