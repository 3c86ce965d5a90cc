"""One linear of all layers, packed into the parts of this process's devices; only a piece of a matrix is unpacked."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from tritgold.errors import EngineError, NonFiniteError, WeightsError
from tritgold.ternary import LinearWeight, ReadByRows, TernaryRows
from tritgold_xla.place import Part, Place, aligned
from tritgold_xla.ternary_matmul import planes
from tritgold_xla.ternary_matmul.absmean import absmean
from tritgold_xla.ternary_matmul.bit_linear import PackedLinear
from tritgold_xla.ternary_matmul.planes import Planes

_PIECE = 1 << 22  # trits that are unpacked at a time, where the file allows it


def stacked_linear(
    name: str, weights: list[LinearWeight], shape: tuple[int, int], place: Place, packed: Callable[[], None]
) -> PackedLinear:
    """The planes [layers, 2, words, out] and scales of one linear: [layers], or [layers, out] if rows have scales.

    weights: of all layers. shape: (out, in) of each. packed: called after each matrix. A matrix that can be read by
    rows is unpacked in pieces, and of one that is cut along its rows only the rows of this process. Raises WeightsError
    for a matrix of another shape, EngineError ``subnormal-scale`` for a scale that XLA-CPU would take for zero.
    """
    parts = place.parts(name, shape)
    stacks, step, one = [_Stack.of(len(weights), part) for part in parts], _step(parts[0].shape[0], shape[1]), True
    for layer, weight in enumerate(weights):
        at = f"layers.{layer}.{name}"
        if tuple(weight.shape) != shape:
            found, wanted = list(weight.shape), list(shape)
            raise WeightsError("does not fit the configuration", kind="shape", thing=at, got=found, expected=wanted)
        matrix = _rows_of(at, weight)
        _require_normal(at, matrix.scale)
        one = one and matrix.scale.ndim == 0
        for rows in _pieces(parts, step):
            trits = matrix.trits(rows)
            for stack in stacks:
                stack.fill(layer, rows, trits, step)
        for stack in stacks:
            stack.set_scale(layer, matrix.scale)
        packed()
    bits, negatives = [stack.bits for stack in stacks], [stack.negatives for stack in stacks]
    made = Planes(place.put(name, bits, out=3, in_=2), place.put(name, negatives, out=1, in_=1))
    if one:
        return PackedLinear(made, place.copied(name, stacks[0].scales[:, 0]))
    return PackedLinear(made, place.put(name, [stack.scales for stack in stacks], out=1, in_=None))


def _require_normal(at: str, scale: np.ndarray) -> None:
    small = scale[(scale != 0) & (np.abs(scale) < np.finfo(np.float32).tiny)]
    if small.size:
        raise EngineError(
            "has a subnormal weight scale, which XLA-CPU takes for zero",
            kind="subnormal-scale",
            thing=at,
            got=f"{float(small.flat[0]):g}",
            expected=f"0, or at least {np.finfo(np.float32).tiny:g} in magnitude",
            hint="the reference engine computes it: --backend reference, --engine reference",
        )


class _Stack(NamedTuple):
    """One device's part of a linear of all layers, while it is filled."""

    part: Part
    bits: np.ndarray
    negatives: np.ndarray
    scales: np.ndarray

    @classmethod
    def of(cls, layers: int, part: Part) -> "_Stack":
        out, in_ = part.shape
        bits = aligned((layers, 2, planes.words(in_), out), np.dtype(np.uint32))
        negatives = aligned((layers, out), np.dtype(np.int32))
        padding = part.rows.stop - part.rows.start
        bits[..., padding:], negatives[:, padding:] = 0, 0
        return cls(part, bits, negatives, np.ones((layers, out), np.float32))

    def fill(self, layer: int, rows: slice, trits: np.ndarray, step: int) -> None:
        """Pack a piece if it is of this part. step: rows of every piece but the last: one program packs them all."""
        count, first = len(trits), rows.start - self.part.rows.start
        if not self.part.rows.start <= rows.start < self.part.rows.stop:
            return
        own = trits[:, self.part.columns]
        if own.shape != (step, self.part.shape[1]):
            padded = np.zeros((step, self.part.shape[1]), np.int8)
            padded[:count, : own.shape[1]] = own
            own = padded
        bits, negatives = map(np.asarray, planes.packed(own))
        self.bits[layer, ..., first : first + count] = bits[..., :count]
        self.negatives[layer, first : first + count] = negatives[:count]

    def set_scale(self, layer: int, scale: np.ndarray) -> None:
        if scale.ndim == 0:
            self.scales[layer] = scale
        else:
            rows = scale.reshape(-1)[self.part.rows]
            self.scales[layer, : rows.size] = rows


def _pieces(parts: list[Part], step: int) -> Iterator[slice]:
    """The rows of all parts, each once, ``step`` at a time."""
    for start, stop in sorted({(part.rows.start, part.rows.stop) for part in parts}):
        for row in range(start, stop, step):
            yield slice(row, min(row + step, stop))


def _step(rows: int, columns: int) -> int:
    """So many rows that all pieces of so many rows are about equal, and none has more than _PIECE trits."""
    count = -(-rows // max(1, _PIECE // columns))
    return -(-rows // count)


def _rows_of(at: str, weight: LinearWeight) -> TernaryRows:
    """The trits and their scale, [] or [out, 1]. Master weights are quantised by this engine's own quantiser."""
    if weight.master is not None:
        try:
            return absmean(weight.master)
        except NonFiniteError as error:
            raise error.located(thing=at) from None
    by_rows = weight.by_rows() if isinstance(weight, ReadByRows) else None
    if by_rows is not None:
        return by_rows
    tensor = weight.ternary().with_scales_of_rows()
    return TernaryRows(tensor.scale, lambda rows: tensor.trits[rows])
