"""Finds unusual properties of the weights in a file. It reports them for every tensor and refuses nothing."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tritgold.errors import PackingError
from tritgold.formats.packings.packing_base import Packing
from tritgold.formats.packings.scale_oddities import odd_rows
from tritgold.ternary import LinearWeight, TernaryTensor
from tritgold_conformance.inspecting.files import Linear

# Shares of zeros outside of which weights were probably not trained to be ternary: of Gaussian master weights, absmean
# makes 31 % zero, I2_S's quantiser none (sign x max), that of TQ1_0 and TQ2_0 87 % (divides by the largest of 256).
FEWEST_ZEROS, MOST_ZEROS = 0.01, 0.7
_MASTERS = "this for master weights that were not made ternary first"


@dataclass(frozen=True)
class Finding:
    """kind: a short word for programs. what: the same as a text, about one tensor."""

    kind: str
    what: str


@dataclass
class Look:
    """A linear weight and its findings. trits: numbers of -1, 0, +1; None if the bytes cannot be read as trits.
    scales: the smallest and the largest, finite or not; None without a scale.
    """

    linear: Linear
    shape: tuple[int, int] | None
    trits: tuple[int, int, int] | None = None
    scales: tuple[float, float] | None = None
    findings: list[Finding] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For the JSON report: scales that are not finite become null."""
        scales = None if self.scales is None or not np.isfinite(self.scales).all() else self.scales
        return {
            "name": self.linear.name,
            "stored_as": self.linear.stored.name,
            "dtype": self.linear.stored.dtype,
            "shape": self.shape and list(self.shape),
            "trits": self.trits and list(self.trits),
            "scale": scales and scales[0],
            "findings": [{"kind": finding.kind, "what": finding.what} for finding in self.findings],
        }


def look(linear: Linear, layout: Packing | None, shape: tuple[int, int] | None) -> Look:
    """Unpack a matrix and examine it. If the layout is ambiguous, any fitting one is used: counts are equal for all."""
    seen = Look(linear, shape)
    if layout is None or shape is None:
        return seen
    try:
        codes = layout.codes(linear.stored.data, shape)
    except PackingError:
        return seen  # this layout does not allow the length or shape: the group's verdict says so
    seen.trits = minus, zero, plus = _counts(codes, (0, 1, 2))
    if minus + zero + plus < codes.size:
        seen.findings.append(_invalid(layout, codes, shape))
    seen.findings += _of_trits(layout, linear, codes, seen.trits)
    if odd := layout.odd_bytes(linear.stored.data, shape):
        seen.findings.append(Finding("odd-bytes", f"{odd} bytes that can be decoded but that no encoder writes"))
    _scales(seen, layout, codes, shape)
    return seen


def _counts(values: np.ndarray, of: tuple[int, int, int]) -> tuple[int, int, int]:
    minus, zero, plus = (int(np.count_nonzero(values == value)) for value in of)
    return minus, zero, plus


def look_at_opened(linear: Linear, weight: LinearWeight) -> Look:
    """The same for a float weight: its trits are known only from the opened model."""
    tensor = weight.ternary()
    trits, scale = _counts(tensor.trits, (-1, 0, 1)), tensor.scale
    return Look(linear, tensor.shape, trits, (float(scale.min()), float(scale.max())), _density(trits))


def summary(seen: Iterable[Look], files: Iterable[Finding]) -> list[dict[str, Any]]:
    """Findings by kind: number of tensors, the first tensor, and the text for it."""
    found: dict[str, dict[str, Any]] = {}
    for finding in files:
        found.setdefault(finding.kind, {"kind": finding.kind, "tensors": 0, "first": None, "what": finding.what})
    for tensor in seen:
        for finding in tensor.findings:
            first = {"tensors": 0, "first": tensor.linear.stored.name, "what": finding.what}
            found.setdefault(finding.kind, {"kind": finding.kind, **first})["tensors"] += 1
    return list(found.values())


def _invalid(layout: Packing, codes: np.ndarray, shape: tuple[int, int]) -> Finding:
    wrong = codes > 2
    row, column = divmod(int(np.argmax(wrong)), shape[1])
    place = f"[{row}, {column}], byte {layout.byte_of(row, column, shape)}"
    return Finding(layout.invalid_kind, f"{np.count_nonzero(wrong)} x {layout.invalid_code}, first at {place}")


def _of_trits(layout: Packing, linear: Linear, codes: np.ndarray, trits: tuple[int, int, int]) -> list[Finding]:
    same = next((n for n in (0, 1) if trits[n] == codes.size), None)
    if same is not None:
        payload = layout.payload(linear.stored.data, codes.shape)
        first = int(payload.flat[0])
        bytes_ = f", every byte 0x{first:02X}" if (payload == first).all() else ""
        if same == 0:
            cause = ": an empty or failed read" if bytes_.endswith("0x00") else ""
            return [Finding("all-minus-one", f"every weight is -1{bytes_}{cause}")]
        return [Finding("all-zero", f"every weight is 0{bytes_}")]
    found = [] if layout.name == "q1_0" else _density(trits)
    if (rows := np.flatnonzero(~codes.any(axis=1))).size:
        what = f"{rows.size} rows with only -1, the first is row {rows[0]}: zero bytes"
        found.insert(0, Finding("rows-minus-one", what))
    return found


def _density(trits: tuple[int, int, int]) -> list[Finding]:
    zeros = trits[1] / max(sum(trits), 1)
    if zeros < FEWEST_ZEROS:
        return [Finding("no-zeros", f"{zeros:.1%} zeros: I2_S's quantiser gives {_MASTERS}")]
    if MOST_ZEROS < zeros < 1:
        return [Finding("few-non-zeros", f"{1 - zeros:.0%} non-zero: TQ1_0's and TQ2_0's quantisers give {_MASTERS}")]
    return []


def _scales(seen: Look, layout: Packing, codes: np.ndarray, shape: tuple[int, int]) -> None:
    linear, findings = seen.linear, seen.findings
    inside = layout.scales(linear.stored.data, shape)
    if linear.beside is None and not layout.stores_scale:
        findings.append(Finding("scale-missing", "no scale is stored, and none is assumed"))
        return
    with np.errstate(over="ignore", invalid="ignore"):
        scales: np.ndarray = inside if linear.beside is None else inside * linear.beside
    seen.scales = float(scales.min()), float(scales.max())
    if not np.isfinite(scales).all():
        wrong = ~np.isfinite(scales)
        where = f", the first in block {np.argwhere(wrong)[0].tolist()}" if scales.ndim else ""
        what = f"{np.count_nonzero(wrong)} scales are not finite{where}: {scales[wrong].flat[0]}"
        findings.append(Finding("scale-non-finite", what))
        return
    if (scales < 0).any():
        findings.append(Finding("scale-negative", f"{np.count_nonzero(scales < 0)} negative scales: {scales.min()}"))
    blocks = (codes != 1).reshape(shape[0], scales.shape[1], -1).any(axis=2) if scales.ndim else (codes != 1).any()
    if ((scales == 0) & blocks).any():
        findings.append(Finding("scale-zero", "a scale of 0 turns non-zero weights into 0"))
    if scales.ndim and scales.min() != scales.max():
        try:
            tensor = TernaryTensor((codes - np.uint8(1)).view(np.int8), scales).with_scales_of_rows()
            if (odd := odd_rows(tensor)) is not None:
                findings.append(Finding("scale-differs", odd))
        except PackingError as error:
            findings.append(Finding("scale-differs", f"{error.message}: {error.got}"))
