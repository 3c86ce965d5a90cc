"""Linear weights as a checkpoint stores them: packed trits, or a float master to be quantised at run time.

Both unpack one matrix when asked and hold no dense copy.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from tritgold.errors import NonFiniteError, PackingError
from tritgold.formats.container import StoredTensor
from tritgold.formats.packing import Packing, packing
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
        """Refuse a payload that is not trits with one finite scale, before any arithmetic.

        Cheap: packed bytes are looked at in place. Only blocks with different scales are unpacked.
        """
        with _located(self.stored):
            self.layout.check(self.stored.data, self.shape)
            scales = self.layout.scales(self.stored.data, self.shape)
            if scales.min() != scales.max():
                self.ternary()
            elif not np.isfinite(scales.flat[0] if self.scale is None else self.scale):
                raise PackingError("the scale is not finite", kind="scale-non-finite", got=scales.flat[0])

    def ternary(self) -> TernaryTensor:
        """The trits [out, in] and their one scale."""
        with _located(self.stored):
            tensor = self.layout.unpack(self.stored.data, self.shape).with_one_scale()
            trits = tensor.trits if self.rows is None else tensor.trits[self.rows]
            return TernaryTensor(trits, tensor.scale if self.scale is None else np.asarray(tensor.scale * self.scale))


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
        raise error.located(file=tensor.file, thing=f"tensor {tensor.name!r}") from None
