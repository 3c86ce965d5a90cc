"""Compares with the same model in another format: which layout agrees with it, or which misreading explains it."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tritgold.checkpoint import Checkpoint
from tritgold.config import ScaleRule
from tritgold.errors import PackingError, WeightsError
from tritgold.formats.misreadings import name_misreading, name_scale_fault
from tritgold.formats.packings.packing_base import Packing
from tritgold.ternary import LinearWeight, TernaryTensor
from tritgold_conformance.inspecting.files import Linear
from tritgold_conformance.inspecting.layouts import Group


class TwinComparison:
    """Compares linear weights by name, one matrix at a time.

    twin: opened, with a certain layout. rule: how the file's scales are applied; None if it does not state this,
    which counts as multiplying.

    differences: one for each tensor that differs: name, share of equal trits, row and column of the first difference,
    and the known misreading that explains it. scales: faults with their number and first tensor.
    """

    def __init__(self, twin: Checkpoint, rule: ScaleRule | None) -> None:
        self.twin, self.rule = twin, rule
        self.truth: dict[str, LinearWeight] = dict(twin.weights.linears())
        self.compared: list[str] = []
        self.differences: list[dict[str, Any]] = []
        self._faults: dict[str, dict[str, Any]] = {}

    def group(self, group: Group) -> None:
        """Compare every hypothesis of a group with the twin, which decides if exactly one agrees in every trit."""
        equal: Counter[str] = Counter()
        total: Counter[str] = Counter()
        common = [linear for linear in group.linears if linear.name in self.truth]
        for linear in common:
            truth = self.truth[linear.name].ternary().trits
            for label, trits in _readings(group, linear, truth.shape):
                equal[label] += int(np.count_nonzero(trits == truth))
                total[label] += truth.size
        group.agreement = {label: equal[label] / total[label] for label in total}
        whole = sum(int(np.prod(self.truth[linear.name].shape)) for linear in common)
        right = [label for label in total if equal[label] == whole]
        if len(right) == 1 and right[0] != group.layout:
            if group.layout is not None:
                group.contradicted = f"the {group.by} says {group.layout}, and the twin contradicts it"
            group.layout, group.by = right[0], "twin"
        best = group.layout or max(group.agreement, key=lambda label: group.agreement[label], default=None)
        for linear in common:
            self._compare(linear, *self._reading(group, linear, best), best)

    def opened(self, linear: Linear, weight: LinearWeight) -> None:
        """Compare a float weight of an opened model; its trits are those that the model computes with."""
        if linear.name in self.truth:
            tensor = weight.ternary()
            self._compare(linear, tensor.trits, tensor.scale)

    def as_dict(self, here: set[str]) -> dict[str, Any]:
        """For the JSON report. here: names of all linears of the file. Raises WeightsError if none are in common."""
        if not self.truth.keys() & here:
            raise WeightsError(
                "has no linear weight that the model has, too",
                kind="twin-names",
                file=self.twin.path,
                got=", ".join(list(self.truth)[:3]) + " ...",
                expected=", ".join(sorted(here)[:3]) + " ..." if here else "weights",
            )
        missing = {"here": sorted(self.truth.keys() - here), "there": sorted(here - self.truth.keys())}
        faults = list(self._faults.values())
        return {
            "path": str(self.twin.path),
            "compared": len(self.compared),
            "equal": bool(self.compared) and not (self.differences or faults or missing["here"] or missing["there"]),
            "differences": self.differences,
            "scales": faults,
            "missing": missing,
        }

    def _reading(self, group: Group, linear: Linear, label: str | None) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Trits and stored scale under a hypothesis; None if the tensor cannot be read that way."""
        shape = self.truth[linear.name].shape
        readings = iter(()) if label is None else _readings(group, linear, shape, label)
        trits = next((trits for _, trits in readings), None)
        return trits, None if trits is None else _scales(group.packing(label), linear, trits.shape)

    def _compare(
        self, linear: Linear, trits: np.ndarray | None, scale: np.ndarray | None, label: str | None = None
    ) -> None:
        self.compared.append(linear.name)
        truth, difference = self.truth[linear.name].ternary(), dict[str, Any]()
        if trits is None:
            here = " x ".join(map(str, linear.stored.shape))
            what = f"cannot be the twin's {truth.shape[0]} x {truth.shape[1]} weights: {linear.stored.dtype} {here}"
            difference = {"agreement": None, "first": None, "looks_like": what}
        elif not np.array_equal(trits, truth.trits):
            wrong = trits != truth.trits
            row, column = divmod(int(np.argmax(wrong)), truth.shape[1])
            head_dim = self.twin.config.head_dim if linear.name.endswith((".q", ".k")) else None
            looks_like = name_misreading(trits, truth.trits, head_dim, label)
            agreement = 1 - np.count_nonzero(wrong) / wrong.size
            difference = {"agreement": agreement, "first": [row, column], "looks_like": looks_like}
        if difference:
            self.differences.append({"name": linear.name, "stored_as": linear.stored.name, **difference})
        if scale is not None:
            self._compare_scale(linear, scale, truth)

    def _compare_scale(self, linear: Linear, scale: np.ndarray, truth: TernaryTensor) -> None:
        pairs = np.broadcast_arrays(scale, truth.scale)
        apart = np.flatnonzero(pairs[0] != pairs[1])
        here, there = (float(each.reshape(-1)[apart[0] if apart.size else 0]) for each in pairs)
        found, expected = _multiplying(here, self.rule), _multiplying(there, self.twin.config.scale_rule)
        if found is None or expected is None or not truth.trits.any():
            return
        if (fault := name_scale_fault(found, expected)) is not None:
            first = {"first": linear.stored.name, "found": found, "twin": expected}
            self._faults.setdefault(fault, {"fault": fault, "tensors": 0, **first})["tensors"] += 1


def require_certain(found: list[Group], path: object) -> None:
    """Refuse a twin with an uncertain layout: it would confirm the layout with which it was read."""
    for group in found:
        if group.layout is None:
            raise WeightsError(
                "cannot decide: its own layout is not certain",
                kind="twin-ambiguous",
                file=path,
                got=f"{group.dtype}, {' or '.join(group.fitting) or 'no layout that fits'}",
                expected="another format: Hugging Face, TQ1_0, TQ2_0, F16, SGLBITNT, or a file that tritgold wrote",
            )


def shapes_of(twin: Checkpoint | None) -> Mapping[str, tuple[int, int]]:
    """The shape of every linear of a twin by name; empty without one."""
    return {} if twin is None else {name: weight.shape for name, weight in twin.weights.linears()}


def _readings(
    group: Group, linear: Linear, shape: tuple[int, int], only: str | None = None
) -> Iterator[tuple[str, np.ndarray]]:
    """Trits int8 under every hypothesis with this shape, or under one; invalid codes equal no trit."""
    for hypothesis in group.by_tensor[linear.name]:
        if hypothesis.layout is None or hypothesis.shape != shape or only not in (None, hypothesis.label):
            continue
        try:
            trits = hypothesis.layout.codes(linear.stored.data, shape).view(np.int8) - np.int8(1)
        except PackingError:
            continue  # the length does not fit
        yield hypothesis.label, trits if linear.rows is None else trits[linear.rows]


def _scales(layout: Packing | None, linear: Linear, shape: tuple[int, ...]) -> np.ndarray | None:
    """The scale as stored, [] or [out, 1]; None if there is none, or a row has several."""
    if layout is None or (linear.beside is None and not layout.stores_scale):
        return None
    try:
        tensor = layout.unpack(linear.stored.data, (shape[0], shape[1]), warn=False)
        inside = tensor.with_scales_of_rows().scale
    except PackingError:
        return None  # health reports the problem
    if linear.rows is not None and inside.ndim:
        inside = inside[linear.rows]
    scale = inside if linear.beside is None else inside * np.float64(linear.beside)
    return scale if np.isfinite(scale).all() else None


def _multiplying(scale: float, rule: ScaleRule | None) -> float | None:
    """The scale as a factor; None for a scale of 0 that divides."""
    if rule != "divide":
        return scale
    return 1 / scale if scale else None
