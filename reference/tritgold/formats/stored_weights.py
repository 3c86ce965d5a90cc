"""Linear weights as a checkpoint stores them: packed trits, or a float master to be quantised at run time.

Both unpack a matrix at each call and keep no dense copy; mapped pages are released after reading (``release``).
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tritgold.errors import NonFiniteError, PackingError, TritgoldWarning
from tritgold.formats.container import StoredTensor
from tritgold.formats.packings import packing
from tritgold.formats.packings.packing_base import Packing
from tritgold.formats.packings.scale_oddities import odd_rows, odd_scales
from tritgold.formats.untrusted_text import printable
from tritgold.quantize import absmean_ternary
from tritgold.ternary import DenseMatrix, TernaryRows, TernaryTensor


@dataclass(frozen=True, eq=False)
class PackedWeight:
    """Packed trits in a file.

    shape: (out, in) of the trits. scale: float32 stored outside the payload, multiplied with the payload's own scale;
    None if there is only the payload's. rows: int64 [out], the payload's row for each row of the result, for GGUF
    files that permute q and k. code3_as_zero: codes that are not a trit are read as 0, not refused.
    """

    layout: Packing
    stored: StoredTensor
    shape: tuple[int, int]
    scale: np.float32 | None = None
    rows: np.ndarray | None = None
    code3_as_zero: bool = False
    master: DenseMatrix | None = field(default=None, init=False)
    _checked: list[bool] = field(default_factory=list, init=False)

    def checked(self) -> "PackedWeight":
        """The same, checked now: its pages are mapped already, for it has just been recognised."""
        self.check()
        self._checked.append(True)
        return self

    def check(self) -> None:
        """Refuse a payload that is not trits with finite scales, one per row or tensor; warn of an unusual scale.

        Cheap: packed bytes are checked without a copy. Only a tensor whose scales are not all one positive number is
        unpacked.
        """
        if self._checked:
            return
        with _located(self.stored):
            if not self._lenient:
                self.layout.check(self.stored.data, self.shape)
            odd = self.layout.odd_bytes(self.stored.data, self.shape)
        if odd:
            self._warn(f"{odd} bytes that decode, yet that no encoder writes")
        with np.errstate(over="ignore", invalid="ignore"):
            scales: np.ndarray = self.layout.scales(self.stored.data, self.shape) * self._beside
        if 0 < scales.min() == scales.max() < np.inf:
            self.stored.release()
            return
        tensor = self.ternary()
        for oddity in filter(None, (*odd_scales(tensor), odd_rows(tensor))):
            self._warn(oddity)

    def one_scale(self) -> np.float32 | None:
        """The scale, without unpacking trits; None if the scales differ: then the trits decide which of them matter."""
        with _located(self.stored), np.errstate(over="ignore"):
            scales = self.layout.scales(self.stored.data, self.shape)
            self.stored.release()
            return np.float32(scales.max() * self._beside) if scales.min() == scales.max() else None

    def read_as_zero(self) -> int:
        """The number of codes that are not a trit and are read as 0; 0 without ``code3_as_zero``."""
        return int((self.layout.codes(self.stored.data, self.shape) > 2).sum()) if self._lenient else 0

    @property
    def _lenient(self) -> bool:
        """Only code 3 of a two-bit layout may be read as 0. A float that is not a trit is a master weight."""
        return self.code3_as_zero and self.layout.invalid_kind == "code-3"

    def ternary(self) -> TernaryTensor:
        """The trits [out, in] and their scale, () or [out, 1]."""
        with _located(self.stored):
            tensor = self._unpacked().with_scales_of_rows()
            self.stored.release()
            trits, scale = tensor.trits, tensor.scale
            if self.rows is not None:
                trits, scale = trits[self.rows], scale[self.rows] if scale.ndim else scale
            with np.errstate(over="ignore"):  # TernaryTensor refuses a product beyond float32
                return TernaryTensor(trits, np.asarray(scale * self._beside))

    def by_rows(self) -> TernaryRows | None:
        """As ``ternary``, a few rows at a time; None where scales differ, or no row has bytes of its own."""
        scale = self.one_scale()
        if scale is None or not np.isfinite(scale) or self._codes_of(slice(0, 1)) is None:
            return None
        return TernaryRows(np.asarray(scale), self._trits_of)

    def _trits_of(self, rows: slice) -> np.ndarray:
        order = None if self.rows is None else self.rows[rows]
        if order is not None:
            rows = slice(int(order.min()), int(order.max()) + 1)
        codes = self._codes_of(rows)
        assert codes is not None  # by_rows has asked
        if (invalid := codes > 2).any():
            if not self._lenient:
                with _located(self.stored):
                    self.layout.check(self.stored.data, self.shape)
            codes = np.where(invalid, np.uint8(1), codes)
        trits = codes.view(np.int8) - np.int8(1)
        return trits if order is None else trits[order - rows.start]

    def _codes_of(self, rows: slice) -> np.ndarray | None:
        codes = self.layout.row_codes(self.stored.data, self.shape, rows)
        self.stored.release()
        return codes

    def _unpacked(self) -> TernaryTensor:
        if not self._lenient:
            return self.layout.unpack(self.stored.data, self.shape, warn=False)
        codes = self.layout.codes(self.stored.data, self.shape)
        trits = np.where(codes > 2, np.uint8(1), codes).view(np.int8) - np.int8(1)
        return TernaryTensor(trits, self.layout.scales(self.stored.data, self.shape))

    def _warn(self, oddity: str) -> None:
        place = printable(f"{self.stored.file}: tensor {self.stored.name!r}")
        warnings.warn(f"{place}: {oddity}", TritgoldWarning, stacklevel=3)

    @property
    def _beside(self) -> np.float32:
        return np.float32(1) if self.scale is None else self.scale


@dataclass(eq=False)
class MasterWeight:
    """A float master weight, quantised by absmean at the first use and then kept packed (2 bits per weight).

    rows: as in PackedWeight.
    """

    stored: StoredTensor
    rows: np.ndarray | None = None
    _packed: tuple[bytes, np.ndarray] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(out, in)."""
        return self.stored.shape[0], self.stored.shape[1]

    @property
    def master(self) -> DenseMatrix:
        """The float weight, its rows in the order of the trits."""
        matrix: Any = self.stored if self.rows is None else _Reordered(self.stored, self.rows)
        return matrix

    def check(self) -> None:
        """Quantise; absmean refuses a non-finite master (NonFiniteError)."""
        self.ternary()

    def ternary(self) -> TernaryTensor:
        """The trits [out, in] and their one multiplying scale."""
        layout = packing("hf")
        if self._packed is None:
            with _located(self.stored):
                tensor = absmean_ternary(self.master.rows(slice(None)))
            self.stored.release()
            self._packed = layout.pack(tensor.trits), tensor.scale
        payload, scale = self._packed
        return TernaryTensor(layout.unpack(payload, self.shape).trits, scale)


@dataclass(frozen=True, eq=False)
class _Reordered:
    """A matrix whose row i is row ``order[i]`` of the stored one."""

    stored: StoredTensor
    order: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        return self.stored.shape[0], self.stored.shape[1]

    def rows(self, index: slice | np.ndarray) -> np.ndarray:
        return self.stored.rows(self.order[index])


@contextmanager
def _located(tensor: StoredTensor) -> Iterator[None]:
    """Adds the file and the tensor to an error that leaves the block."""
    try:
        yield
    except (PackingError, NonFiniteError) as error:
        raise error.located(file=tensor.file, thing=printable(f"tensor {tensor.name!r}")) from None
