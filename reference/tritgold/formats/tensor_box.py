"""TensorBox: a file's tensors, each handed out once, so that none is missing, forgotten or used twice.

Problems are collected and raised together: whoever repairs a converter wants the whole list, not its first line.
"""

from pathlib import Path

import numpy as np

from tritgold.errors import WeightsError
from tritgold.formats.container import FLOAT_BYTES, StoredTensor
from tritgold.formats.names import candidates

# Tensors that carry no weight of the model: RoPE frequencies that old exporters saved.
_IGNORED_SUFFIXES = ("rotary_emb.inv_freq", "rope_freqs.weight")
_SHOWN = 12


class TensorBox:
    """The tensors of an opened container. ``table``: names.HF or names.GGUF."""

    def __init__(self, path: Path, tensors: dict[str, StoredTensor], table: dict[str, tuple[str, ...]]) -> None:
        self._path, self._table = path, table
        self._left = dict(tensors)
        self._problems: list[tuple[str, str]] = []

    def blame(self, kind: str, text: str) -> None:
        """Note a problem; ``finish`` raises it."""
        self._problems.append((kind, text))

    def take(self, name: str, shape: tuple[int, ...] | None = None) -> StoredTensor | None:
        """The tensor behind our ``name``. None, with a problem noted, where it is absent or of another shape."""
        sources = candidates(self._table, name)
        found = [self._left.pop(source) for source in sources if source in self._left]
        if len(found) != 1:
            kind, what = ("duplicate-tensor", "twice") if found else ("missing-tensor", "missing")
            self.blame(kind, f"{what}: {' or '.join(sources)}")
            return None
        if shape is not None and found[0].shape != shape:
            self.blame("tensor-shape", f"{found[0].name}: found shape {list(found[0].shape)}, expected {list(shape)}")
            return None
        return found[0]

    def take_beside(self, tensor: StoredTensor, suffix: str) -> StoredTensor | None:
        """An optional companion, ``<tensor without .weight><suffix>``: a weight's scale. None where there is none."""
        return self._left.pop(tensor.name.removesuffix(".weight") + suffix, None)

    def matrix(self, name: str, shape: tuple[int, ...]) -> StoredTensor | None:
        """A float tensor of exactly this shape."""
        tensor = self.take(name, shape)
        if tensor is not None and tensor.dtype not in FLOAT_BYTES:
            self.blame("weight-dtype", f"{tensor.name}: found {tensor.dtype}, expected {' or '.join(FLOAT_BYTES)}")
            return None
        return tensor

    def gain(self, name: str, width: int) -> np.ndarray:
        """A norm's gain, float32 [width], finite. Where a problem was noted the array is empty; finish() raises."""
        tensor = self.matrix(name, (width,))
        gain = np.empty(0, np.float32) if tensor is None else tensor.floats()
        if tensor is not None and not np.isfinite(gain).all():
            self.blame("weight-non-finite", f"{tensor.name}: holds infinity or NaN")
        return gain

    def head_copy(self, embedding: StoredTensor | None) -> None:
        """Where the head is tied: a head tensor saved all the same must be the embedding, bit for bit."""
        copy = self._left.pop(candidates(self._table, "head")[0], None)
        if copy is None or embedding is None:
            return
        if copy.dtype != embedding.dtype or not np.array_equal(copy.data, embedding.data):
            self.blame("tied-head", f"{copy.name}: differs from the embedding, although the config ties them")

    def finish(self) -> None:
        """Raise WeightsError with every problem, unused tensors included; the kind is that of the first."""
        for name in sorted(self._left):
            if not name.endswith(_IGNORED_SUFFIXES):
                what = "a scale that no weight uses" if "scale" in name else "the graph has no place for it"
                self.blame("unused-tensor", f"unused: {name}: {what}")
        if not self._problems:
            return
        lines = [f"\n  {text}" for _, text in self._problems[:_SHOWN]]
        if len(self._problems) > _SHOWN:
            lines.append(f"\n  and {len(self._problems) - _SHOWN} more")
        count = f"{len(self._problems)} problem{'s' if len(self._problems) > 1 else ''}"
        raise WeightsError(
            f"the tensors are not those of the model, {count}:{''.join(lines)}\n",
            kind=self._problems[0][0],
            file=self._path,
        )
