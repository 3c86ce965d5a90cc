"""TernaryTensor: the result of every unpacking, and the only form of a ternary weight that the arithmetic uses."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from tritgold.errors import PackingError


@dataclass(frozen=True, eq=False)
class TernaryTensor:
    """A weight matrix of trits and its scale.

    trits: int8 [out, in], each -1, 0 or +1.
    scale: float32, shape () for one per tensor (BitNet), [out, 1] for one per row (TriLM, IQ2_BN), or
        [out, in / block] for one per block of consecutive columns (TQ2_0). The model's rule
        (``ModelConfig.scale_rule``) decides whether it multiplies or divides.

    Anything else (code 3 read as +2, a NaN scale) is refused at construction (PackingError), so that the arithmetic
    need not check again.
    """

    trits: np.ndarray
    scale: np.ndarray

    def __post_init__(self) -> None:
        check_trits(self.trits)
        scale = np.asarray(self.scale)
        if scale.dtype != np.float32:
            raise PackingError("a ternary scale is float32", kind="scale-dtype", got=scale.dtype, expected="float32")
        if scale.ndim not in (0, 2) or (scale.ndim == 2 and not self._fits(scale)):
            raise PackingError(
                "the scale fits neither the tensor nor its blocks",
                kind="scale-shape",
                got=list(scale.shape),
                expected=f"[] or [{self.trits.shape[0]}, blocks]",
            )
        if not np.isfinite(scale).all():
            where = np.argwhere(~np.isfinite(np.atleast_1d(scale)))[0].tolist()
            raise PackingError(
                f"the scale is not finite at {where}",
                kind="scale-non-finite",
                got=scale[~np.isfinite(scale)][0],
            )
        object.__setattr__(self, "scale", scale)

    def _fits(self, scale: np.ndarray) -> bool:
        rows, columns = self.trits.shape
        return scale.shape[0] == rows and scale.shape[1] > 0 and columns % scale.shape[1] == 0

    @property
    def shape(self) -> tuple[int, int]:
        """(out, in)."""
        return self.trits.shape[0], self.trits.shape[1]

    def dense(self) -> np.ndarray:
        """float32 [out, in]: trit x scale. To inspect and compare formats; the golden model never uses it."""
        blocks = (
            self.scale if self.scale.ndim == 0 else np.repeat(self.scale, self.shape[1] // self.scale.shape[1], axis=1)
        )
        return self.trits.astype(np.float32) * blocks

    def with_scales_of_rows(self) -> "TernaryTensor":
        """The same weights with a scale of shape (), or [out, 1] if rows differ: the shapes that the arithmetic takes.

        The scale of an all-zero block is ignored; an all-zero row gets the largest scale of the other rows. Raises
        PackingError ``block-scales`` if the blocks of one row differ.
        """
        try:
            return self.with_one_scale()
        except PackingError:
            rows, blocks = self.scale.shape
        speaking = self.trits.reshape(rows, blocks, -1).any(axis=2)
        first = self.scale[np.arange(rows), speaking.argmax(axis=1)]
        if (speaking & (self.scale != first[:, None])).any():
            row = int(np.argmax((speaking & (self.scale != first[:, None])).any(axis=1)))
            scales = np.unique(self.scale[row][speaking[row]])
            raise PackingError(
                f"the blocks of row {row} have different scales; the arithmetic is defined for one scale a row",
                kind="block-scales",
                got=f"{scales.size} scales from {scales[0]} to {scales[-1]}",
                expected="one scale a row",
                hint="take a model with one scale a row; absmean would change weights that are ternary already",
            )
        heard = speaking.any(axis=1)
        return TernaryTensor(self.trits, np.where(heard, first, first[heard].max())[:, None])

    def with_one_scale(self) -> "TernaryTensor":
        """The same weights with a scale of shape (), for a tensor of a block format with only one scale.

        The scale of an all-zero block is ignored, because encoders write 0 there. Raises PackingError ``block-scales``
        if other blocks differ.
        """
        if self.scale.ndim == 0:
            return self
        if self.scale.min() == self.scale.max():  # no need to look at the trits
            return TernaryTensor(self.trits, self.scale[0, 0])
        rows, blocks = self.scale.shape
        speaking = self.trits.reshape(rows, blocks, -1).any(axis=2)
        scales = np.unique(self.scale[speaking])
        if scales.size > 1:
            raise PackingError(
                "the blocks have different scales; BitNet arithmetic is defined for one scale a tensor",
                kind="block-scales",
                got=f"{scales.size} scales from {scales[0]} to {scales[-1]}",
                expected="one scale",
                hint="take a model with one scale a tensor; absmean would change weights that are ternary already",
            )
        return TernaryTensor(self.trits, np.asarray(scales[0] if scales.size else self.scale[0, 0]))


@runtime_checkable
class DenseMatrix(Protocol):
    """A matrix [rows, columns] stored as f32, f16, bf16 or ggml blocks; rows are read as float32 when needed."""

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""

    def rows(self, index: slice | np.ndarray) -> np.ndarray:
        """float32 [len(index), columns]; widening is exact, blocks follow ggml's formulas."""


@runtime_checkable
class LinearWeight(Protocol):
    """A ternary weight that may be stored packed or as a float master; it is unpacked at each use."""

    @property
    def shape(self) -> tuple[int, int]:
        """(out, in)."""

    @property
    def master(self) -> DenseMatrix | None:
        """The float weight of an online checkpoint, which an engine may quantise itself; else None."""

    def ternary(self) -> TernaryTensor:
        """The trits and their scale, () or [out, 1]; unpacked at each call, so that only one matrix is in memory."""


@dataclass(frozen=True, eq=False)
class TernaryRows:
    """A ternary matrix of which only the rows that are asked for are unpacked.

    scale: float32 [], or [out, 1]. trits: consecutive rows, first to last -> int8 [rows, in].
    """

    scale: np.ndarray
    trits: Callable[[slice], np.ndarray]


@runtime_checkable
class ReadByRows(Protocol):
    """A LinearWeight that may be unpacked a few rows at a time."""

    def by_rows(self) -> TernaryRows | None:
        """The same trits and scale as ``ternary``; None where that needs the whole matrix."""


@dataclass(frozen=True, eq=False)
class InMemoryTernary:
    """A LinearWeight whose trits are in memory, for tests and for models that do not come from a file."""

    tensor: TernaryTensor
    master: DenseMatrix | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(out, in)."""
        return self.tensor.shape

    def ternary(self) -> TernaryTensor:
        """The tensor itself."""
        return self.tensor


def check_trits(trits: np.ndarray) -> None:
    """Refuse (PackingError) anything that is not an int8 matrix of -1, 0, +1; the message names the first bad value.

    Nothing is rounded or clipped: 1.6, NaN or True are mistakes of the caller, and a 2 in a base-3 packing would
    also corrupt its neighbours.
    """
    if not isinstance(trits, np.ndarray) or trits.ndim != 2:
        raise PackingError("trits are a matrix [out, in]", kind="trits-shape", got=getattr(trits, "shape", type(trits)))
    if trits.dtype != np.int8:
        raise PackingError("trits are int8", kind="trits-dtype", got=trits.dtype, expected="int8")
    if trits.size == 0:
        raise PackingError("the matrix is empty", kind="trits-shape", got=list(trits.shape))
    # For integers min and max are enough, and need no temporary of the tensor's size.
    if trits.min() < -1 or trits.max() > 1:
        row, column = np.argwhere((trits < -1) | (trits > 1))[0].tolist()
        raise PackingError(
            f"not a trit at [{row}, {column}]",
            kind="not-a-trit",
            got=int(trits[row, column]),
            expected="-1, 0 or +1",
        )
