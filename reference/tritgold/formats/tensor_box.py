"""TensorBox: a file's tensors, each taken once, so that none is missing, unused or used twice.

Problems are collected and raised together: to repair a converter one needs the whole list, not its first line.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tritgold.errors import WeightsError
from tritgold.formats.container import FLOAT_BYTES, StoredTensor
from tritgold.formats.dense_blocks import DENSE_BLOCKS
from tritgold.formats.names import Names, candidates
from tritgold.formats.untrusted_text import printable

# RoPE frequencies that old exporters saved and that transformers passes over. Llama 3.1 files in GGUF hold their
# RoPE scaling in ROPE_FACTORS and nowhere else; of architectures that have none, only factors of 1 may be passed over.
_IGNORED_SUFFIX, ROPE_FACTORS = "rotary_emb.inv_freq", "rope_freqs.weight"
_SHOWN = 12
_EXPONENTS = {"F32": ("<u4", 0x7F800000), "F16": ("<u2", 0x7C00), "BF16": ("<u2", 0x7F80)}
_PIECE = 1 << 22
_ROWS = 256


class TensorBox:
    """The tensors of an opened container. ``table``: names.HF or names.GGUF."""

    def __init__(self, path: Path, tensors: dict[str, StoredTensor], table: Names) -> None:
        self._path, self._table = path, table
        self._left = dict(tensors)
        self._problems: list[tuple[str, str]] = []
        self._missing: list[str] = []

    def blame(self, kind: str, text: str) -> None:
        """Note a problem; ``finish`` raises it."""
        self._problems.append((kind, text))

    def expect_layers(self, layers: int) -> None:
        """Refuse more layers than there are tensors, before a loop over a billion layers of a hostile file begins."""
        if layers > len(self._left):
            got, expected = f"{len(self._left)} tensors", f"those of {layers} layers"
            raise WeightsError(
                "are too few", kind="missing-tensor", file=self._path, thing="tensors", got=got, expected=expected
            )

    def take(self, name: str, shape: tuple[int, ...] | None = None) -> StoredTensor | None:
        """The tensor for tritgold's ``name``. None, with a problem noted, if absent, repeated or of another shape."""
        sources = candidates(self._table, name)
        found = [self._left.pop(source) for source in sources if source in self._left]
        if len(found) != 1:
            kind, what = ("duplicate-tensor", "twice") if found else ("missing-tensor", "missing")
            self.blame(kind, f"{what}: {' or '.join(sources)}")
            self._missing += [] if found else sources
            return None
        if shape is not None and found[0].shape != shape:
            self.blame("tensor-shape", f"{found[0].name}: found shape {list(found[0].shape)}, expected {list(shape)}")
            return None
        return found[0]

    def in_file_order(self, names: Iterable[str]) -> list[str]:
        """tritgold's ``names`` by where their tensors begin; those that are absent at the end."""

        def place(name: str) -> tuple[bool, str, int]:
            found = next((self._left[source] for source in candidates(self._table, name) if source in self._left), None)
            return (True, "", 0) if found is None else (False, str(found.file), found.offset)

        return sorted(names, key=place)

    def take_beside(self, tensor: StoredTensor, suffix: str) -> StoredTensor | None:
        """The optional tensor ``<tensor without .weight><suffix>``, such as a weight's scale; None if it is absent."""
        return self._left.pop(tensor.name.removesuffix(".weight") + suffix, None)

    def matrix(self, name: str, shape: tuple[int, ...]) -> StoredTensor | None:
        """A float tensor of exactly this shape, finite; a matrix may be in a block type (``DENSE_BLOCKS``).

        None, with a problem noted, if it is absent or has another shape or dtype.
        """
        tensor = self.take(name, shape)
        known = (*FLOAT_BYTES, *DENSE_BLOCKS) if len(shape) == 2 else tuple(FLOAT_BYTES)
        if tensor is not None and tensor.dtype not in known:
            self.blame("weight-dtype", f"{tensor.name}: found {tensor.dtype}, expected {' or '.join(known)}")
            return None
        if tensor is not None and not _is_finite(tensor):
            self.blame("weight-non-finite", f"{tensor.name}: holds infinity or NaN: {_place_of_non_finite(tensor)}")
        return tensor

    def vector(self, name: str, width: int, offset: float = 0.0) -> np.ndarray:
        """A norm's gain or a bias, float32 [width], finite, ``offset`` added. Where a problem was noted the array is
        empty; finish() raises.
        """
        tensor = self.matrix(name, (width,))
        if tensor is None:
            return np.empty(0, np.float32)
        return tensor.floats() + np.float32(offset) if offset else tensor.floats()

    def pass_over(self, source: str) -> None:
        """Take out a tensor, by its name in the file, that the caller has read."""
        self._left.pop(source, None)

    def head_copy(self, embedding: StoredTensor | None) -> None:
        """For a tied head: if the file has a head tensor as well, its values must be the embedding's.

        The dtypes may differ: values are compared as float32, which is exact. 0 and -0 count as different.
        """
        copy = self._left.pop(candidates(self._table, "head")[0], None)
        if copy is None or embedding is None:
            return
        if copy.shape != embedding.shape or copy.dtype not in FLOAT_BYTES or embedding.dtype not in FLOAT_BYTES:
            found, expected = copy.form, embedding.form
            what = f"differs from the embedding, although the config ties them: found {found}, expected {expected}"
            self.blame("tied-head", f"{copy.name}: {what}")
        elif (difference := _difference(copy, embedding)) is not None:
            what = f"differs from the embedding, although the config ties them: {difference}"
            self.blame("tied-head", f"{copy.name}: {what}")

    def finish(self) -> None:
        """Raise WeightsError with every problem, unused tensors included; the kind is that of the first."""
        for name, tensor in sorted(self._left.items()):
            if name == ROPE_FACTORS and tensor.dtype in FLOAT_BYTES:
                if not (tensor.floats() == 1).all():
                    self.blame("rope-factors", f"{name}: factors other than 1, for which tritgold has no arithmetic")
            elif not name.endswith(_IGNORED_SUFFIX):
                what = "a scale that no weight uses" if "scale" in name else "the graph has no place for it"
                self.blame("unused-tensor", f"unused: {name}: {what}")
        if not self._problems:
            return
        lines = [f"\n  {printable(text)}" for _, text in self._problems[:_SHOWN]]
        if len(self._problems) > _SHOWN:
            lines.append(f"\n  and {len(self._problems) - _SHOWN} more")
        count = f"{len(self._problems)} problem{'s' if len(self._problems) > 1 else ''}"
        raise WeightsError(
            f"the tensors are not those of the model, {count}:{''.join(lines)}\n",
            kind=self._problems[0][0],
            file=self._path,
            hint=self._hint(),
        )

    def _hint(self) -> str | None:
        """For names that all have a prefix too many or too few, as wrappers of a model save them."""
        for name in self._missing[:_SHOWN]:
            for other in self._left:
                if other.endswith(f".{name}") or name.endswith(f".{other}"):
                    more, less = (other, name) if len(other) > len(name) else (name, other)
                    prefix, whose = more.removesuffix(less), "names in the file" if more is other else "expected names"
                    return printable(f"{whose} begin with {prefix!r}: save the model itself, not what wraps it", 400)
        return None


def _difference(copy: StoredTensor, matrix: StoredTensor) -> str | None:
    """In words: how many values differ, the largest difference and its place; None if all float32 are equal."""
    count, largest, place = 0, -1.0, (0, 0)
    for row in range(0, copy.shape[0], 256):
        first, second = copy.rows(slice(row, row + 256)), matrix.rows(slice(row, row + 256))
        differs = first.view("<u4") != second.view("<u4")
        if differs.any():
            count += int(differs.sum())
            with np.errstate(invalid="ignore", over="ignore"):
                gap = np.where(differs, np.abs(first.astype(np.float64) - second), -1.0)
            gap = np.where(np.isnan(gap), np.inf, gap)
            if (most := float(gap.max())) > largest:
                at, column = divmod(int(np.argmax(gap)), copy.shape[1])
                largest, place = most, (row + at, column)
    return f"{count} values, by at most {largest:.6g} at [{place[0]}, {place[1]}]" if count else None


def _place_of_non_finite(tensor: StoredTensor) -> str:
    """The first infinity or NaN and its index, as ``inf at [0, 3]``."""
    words = tensor.floats().reshape(-1)
    first = int(np.argmax(~np.isfinite(words)))
    place = [int(at) for at in np.unravel_index(first, tensor.shape)]
    return f"{words[first]} at {place}"


def _is_finite(tensor: StoredTensor) -> bool:
    """Whether no value is infinite or NaN. Float words are tested by their exponent bits, some megabytes at a time."""
    if tensor.dtype in DENSE_BLOCKS:
        pieces = range(0, tensor.shape[0], _ROWS)
        return all(bool(np.isfinite(tensor.rows(slice(row, row + _ROWS))).all()) for row in pieces)
    dtype, exponent = _EXPONENTS[tensor.dtype]
    words = np.ascontiguousarray(tensor.data).reshape(-1).view(dtype)
    for at in range(0, words.size, _PIECE):
        found = ((words[at : at + _PIECE] & exponent) == exponent).any()
        tensor.release(at * words.itemsize, min(at + _PIECE, words.size) * words.itemsize)
        if found:
            return False
    return True
