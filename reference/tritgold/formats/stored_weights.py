"""Linear weights as a checkpoint stores them: packed trits, or a float master to be quantised at run time.

Both unpack one matrix when asked and hold no dense copy.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from tritgold.errors import NonFiniteError, PackingError, TritgoldWarning
from tritgold.formats.container import StoredTensor
from tritgold.formats.packing import packing
from tritgold.formats.packing_base import Packing, odd_scales
from tritgold.formats.untrusted_text import printable
from tritgold.quantize import absmean_ternary
from tritgold.ternary import DenseMatrix, TernaryTensor


@dataclass(frozen=True, eq=False)
class PackedWeight:
    """Packed trits in a file.

    shape: (out, in) of the trits. scale: float32 beside the payload, multiplied with the one inside it; None
    where the payload's own is all there is. rows: where each row of the result lies in the payload, for GGUF
    files that permute q and k.
    """

    layout: Packing
    stored: StoredTensor
    shape: tuple[int, int]
    scale: np.float32 | None = None
    rows: np.ndarray | None = None
    master: DenseMatrix | None = field(default=None, init=False)

    def check(self) -> None:
        """Refuse a payload that is not trits with one finite scale, before any arithmetic; warn of an odd scale.

        Cheap: packed bytes are looked at in place. Only a tensor whose scales are not one positive number is unpacked.
        """
        with _located(self.stored):
            self.layout.check(self.stored.data, self.shape)
        with np.errstate(over="ignore", invalid="ignore"):
            scales: np.ndarray = self.layout.scales(self.stored.data, self.shape) * self._beside
        if 0 < scales.min() == scales.max() < np.inf:
            return
        for oddity in odd_scales(self.ternary()):
            place = printable(f"{self.stored.file}: tensor {self.stored.name!r}")
            warnings.warn(f"{place}: {oddity}", TritgoldWarning, stacklevel=2)

    def ternary(self) -> TernaryTensor:
        """The trits [out, in] and their one scale."""
        with _located(self.stored):
            tensor = self.layout.unpack(self.stored.data, self.shape, warn=False).with_one_scale()
            trits = tensor.trits if self.rows is None else tensor.trits[self.rows]
            with np.errstate(over="ignore"):  # a product beyond float32 is refused by name
                return TernaryTensor(trits, np.asarray(tensor.scale * self._beside))

    @property
    def _beside(self) -> np.float32:
        return np.float32(1) if self.scale is None else self.scale


@dataclass(eq=False)
class MasterWeight:
    """A float master weight, quantised by absmean when first asked and kept packed from then on (2 bits a weight)."""

    master: StoredTensor
    _packed: tuple[bytes, np.ndarray] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(out, in)."""
        return self.master.shape[0], self.master.shape[1]

    def check(self) -> None:
        """Nothing to refuse before quantising: a non-finite master is refused there."""
        self.ternary()

    def ternary(self) -> TernaryTensor:
        """The trits [out, in] and their one multiplying scale."""
        layout = packing("hf")
        if self._packed is None:
            with _located(self.master):
                tensor = absmean_ternary(self.master.floats())
            self._packed = layout.pack(tensor.trits), tensor.scale
        payload, scale = self._packed
        return TernaryTensor(layout.unpack(payload, self.shape).trits, scale)


@contextmanager
def _located(tensor: StoredTensor) -> Iterator[None]:
    """Adds the file and the tensor to an error that leaves the block."""
    try:
        yield
    except (PackingError, NonFiniteError) as error:
        raise error.located(file=tensor.file, thing=printable(f"tensor {tensor.name!r}")) from None
