"""What all containers share: tensors stored in a file, how their floats are read, and tensors to be written.

A StoredTensor is a range of bytes in a memory-mapped file, checked against the file's length when it is made. Nothing
is copied until rows are read. A PlannedTensor is its counterpart for writing: its size is known in advance, its bytes
are made only when they are written, so that a converted model is never in memory as a whole.
"""

import mmap
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from tritgold.errors import FormatError, WeightsError
from tritgold.formats.dense_blocks import DENSE_BLOCKS, dequantised
from tritgold.formats.untrusted_text import require_regular
from tritgold.rounding import bf16_to_f32

FLOAT_BYTES = {"F32": 4, "F16": 2, "BF16": 2}


@dataclass(frozen=True, eq=False)
class StoredTensor:
    """A tensor in a file.

    dtype: its name in the container (``BF16``, ``U8``, ``I2_S``). shape: rows first, as in NumPy; GGUF files
    store it in reverse order. offset: of the first byte, from the start of the file. data: uint8 view of exactly its
    bytes.
    """

    file: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    data: np.ndarray

    @property
    def form(self) -> str:
        """Type and shape for a message, such as ``U8 [64, 256]``."""
        return f"{self.dtype} {list(self.shape)}"

    def floats(self) -> np.ndarray:
        """The whole tensor as float32: words widened exactly, blocks dequantised. WeightsError for other tensors."""
        return self._widen(self.data).reshape(self.shape)

    def rows(self, index: slice | np.ndarray) -> np.ndarray:
        """Some rows of a float matrix, float32 [len(index), columns]. With this method it is a ``DenseMatrix``.

        The mapped pages of a slice are released after reading: a caller that reads slice by slice must not end with
        the whole matrix in memory.
        """
        by_row = self.data.reshape(self.shape[0], -1)
        widened = self._widen(by_row[index]).reshape(-1, self.shape[1])
        if isinstance(index, slice) and widened.size:
            first, _, step = index.indices(self.shape[0])
            last = first + (len(widened) - 1) * step
            low, high = min(first, last), max(first, last) + 1
            self._release(low * by_row.shape[1], high * by_row.shape[1])
        return widened

    def release(self, begin: int = 0, end: int | None = None) -> None:
        """Release the pages that reading this tensor, or these bytes of it, has mapped; a later read maps them again.

        Mapped pages count as memory of the process until the system needs them: after one pass over a model, all of
        it would count. Does nothing for data that is not in a mapped file, or on a system without ``MADV_DONTNEED``.
        """
        self._release(begin, self.data.nbytes if end is None else end)

    def _release(self, begin: int, end: int) -> None:
        """Release bytes ``begin`` to ``end`` of the data; whole pages, so neighbouring bytes as well."""
        base: object = self.data
        while isinstance(base, np.ndarray):
            base = base.base
        if end > begin and isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            page = (self.offset + begin) // mmap.PAGESIZE * mmap.PAGESIZE
            base.madvise(mmap.MADV_DONTNEED, page, self.offset + end - page)

    def _widen(self, data: np.ndarray) -> np.ndarray:
        flat = np.ascontiguousarray(data).reshape(-1)
        if self.dtype == "F32":
            return flat.view("<f4").astype(np.float32)
        if self.dtype == "F16":
            return flat.view("<f2").astype(np.float32)
        if self.dtype == "BF16":
            return bf16_to_f32(flat.view("<u2"))
        if self.dtype in DENSE_BLOCKS:
            return dequantised(self.dtype, flat)
        raise WeightsError(
            "is not a float tensor",
            kind="weight-dtype",
            file=self.file,
            thing=f"tensor {self.name!r}",
            got=self.dtype,
            expected=" or ".join((*FLOAT_BYTES, *DENSE_BLOCKS)),
        )


@dataclass(frozen=True, eq=False)
class PlannedTensor:
    """A tensor to be written.

    dtype: its name in the container, as in StoredTensor. shape: rows first. size: the bytes that ``chunks`` will give.
    chunks: makes the bytes, in pieces of any size; called once.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int
    chunks: Callable[[], Iterable[bytes | memoryview]]


class Container(Protocol):
    """An opened checkpoint file or folder: its path and its tensors by name."""

    path: Path
    tensors: dict[str, StoredTensor]


def map_file(path: Path) -> np.ndarray:
    """The file as a read-only uint8 array, memory-mapped.

    Raises FormatError for a missing file or one that is not a regular file (``unreadable``), and for an empty file
    (``truncated``).
    """
    try:
        if require_regular(path) == 0:
            raise FormatError("is empty", kind="truncated", file=path, got="0 bytes")
        return np.asarray(np.memmap(path, np.uint8, "r"))  # slices of a memmap itself cost ten times as much
    except (OSError, ValueError) as error:
        raise FormatError(f"cannot be opened: {error}", kind="unreadable", file=path) from error


def holes(path: Path) -> list[tuple[int, int]]:
    """Ranges of the file that were never written, (begin, end) in bytes; they read as zeros.

    A download that reserves its space first and is then cut short leaves a file of the right length with a hole at
    its end, and zero bytes are not zero weights: in most packings they are rows of -1. Empty where the file system
    does not report holes. Raises FormatError ``unreadable`` if it is not a regular file, OSError as ``open`` does.
    """
    if not hasattr(os, "SEEK_HOLE"):
        return []
    require_regular(path)
    found, end = [], 0
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        while end < size:
            begin = file.seek(end, os.SEEK_HOLE)
            if begin >= size:
                break
            try:
                end = file.seek(begin, os.SEEK_DATA)
            except OSError:  # ENXIO: no data after it
                end = size
            found.append((begin, end))
    return found
