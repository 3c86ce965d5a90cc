"""GGUF reader, versions 2 and 3, with the bitnet.cpp fork's tensor types. Memory-mapped, every offset is checked.

PyPI's gguf refuses type 36 (I2_S), so the container is read here. Layout: magic, version, counts, key-value
pairs, tensor infos, padding, data. Data is found by the recorded offsets, never by the order of the infos.
Source: ggml's docs/gguf.md and ggml/src/gguf.cpp.
"""

import warnings
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, NoReturn

from tritgold.errors import TritgoldWarning
from tritgold.formats.container import StoredTensor
from tritgold.formats.ggml_types import (
    IK_LLAMA,
    PRISM,
    Q2_0,
    Q2_0_BYTES,
    RETIRED,
    block_weights,
    tensor_bytes,
    type_names,
)
from tritgold.formats.gguf_values import UINT32, GgufValues
from tritgold.formats.other_files import LONGEST, hint_of
from tritgold.formats.untrusted_text import first_repeated, printable

MAX_DIMS = 4
ALIGNMENT, DEFAULT_ALIGNMENT = "general.alignment", 32


@dataclass(frozen=True)
class _Info:
    """A tensor info of the file. shape: rows first. offset: in bytes, from the start of the data section."""

    name: str
    shape: tuple[int, ...]
    type_id: int
    offset: int


class GgufFile:
    """An opened GGUF file.

    q2_0_block: weights in a block of type 42, 64 (ggml) or 128 (PrismML's older files). It is never guessed: a file
    whose offsets fit the other block size is refused (``type-42``).

    architecture: used if the file does not name one, as in a shard after the first (``gguf_split``).
    version: 2 or 3. metadata: key -> int, float, bool, str, list of str, or NumPy array. alignment: in bytes.
    tensors: by name, in the order of the infos; ``dtype`` is the type's name (``I2_S``), ``shape`` rows first. A size
    may be 0, as in ggml: such a tensor has no bytes.
    type_ids: tensor name -> type number. spans: tensor name -> bytes from its first to the next tensor, or to the end
    of the file.

    Raises FormatError; the kinds are ``not-gguf``, ``big-endian``, ``gguf-version``, ``truncated``, ``count``,
    ``key-utf8``, ``value-type``, ``value``, ``duplicate-name``, ``dims``, ``alignment``, ``unknown-type``,
    ``row-length``, ``misaligned``, ``overlap``, ``type-42``.
    """

    def __init__(self, path: str | Path, q2_0_block: int = 64, architecture: str = "") -> None:
        self.path, self.q2_0_block = Path(path), q2_0_block
        self._values = values = GgufValues(self.path)
        self._refuse = values.refuse
        self.version, tensor_count, pair_count = self._preamble()
        self.metadata: dict[str, Any] = {}
        types: dict[str, int] = {}
        for _ in range(pair_count):
            key = values.string("metadata key")
            if key in self.metadata:
                self._refuse("occurs twice", "duplicate-name", f"key {key!r}")
            types[key] = values.scalar("I", f"type of {key!r}")
            self.metadata[key] = values.value(types[key], key)
        self.architecture = str(self.metadata.get("general.architecture", architecture))
        self.alignment = self._alignment()
        infos = [self._info() for _ in range(tensor_count)]
        if (twice := first_repeated(info.name for info in infos)) is not None:
            self._refuse("occurs twice", "duplicate-name", f"tensor {twice!r}")
        self.type_ids = {info.name: info.type_id for info in infos}
        self.spans = self._spans(infos)
        self.tensors = self._place(infos)
        self._say_of_alignment(types.get(ALIGNMENT, UINT32))

    def _preamble(self) -> tuple[int, int, int]:
        values = self._values
        magic = bytes(values.raw[values.take(4, "magic") : 4])
        if magic != b"GGUF":
            hint = hint_of(bytes(values.data[:LONGEST]))
            self._refuse("is not a GGUF file", "not-gguf", "magic", magic, b"GGUF", hint)
        version = values.scalar("I", "version")
        if version in (2 << 24, 3 << 24):
            self._refuse(
                "is big-endian",
                "big-endian",
                "version",
                hint="convert it on the machine that wrote it; all engines here are little-endian",
            )
        if version not in (2, 3):
            self._refuse("unsupported version", "gguf-version", "version", version, "2 or 3")
        tensors, pairs = values.scalar("Q", "tensor count"), values.scalar("Q", "key count")
        # The smallest possible info and pair: counts that cannot fit are refused before anything is allocated.
        for what, count, least in (("tensor count", tensors, 32), ("key count", pairs, 13)):
            if count * least > values.data.size - values.at:
                self._refuse("cannot fit into the file", "count", what, count, f"at most {values.data.size // least}")
        return version, tensors, pairs

    def _alignment(self) -> int:
        value = self.metadata.get(ALIGNMENT, DEFAULT_ALIGNMENT)
        if type(value) is not int or value < 1 or (value % 8 and value & (value - 1)):
            expected = "a multiple of 8, as 32"
            self._refuse("is not a multiple of 8", "alignment", f"key {ALIGNMENT!r}", repr(value), expected)
        return value

    def _say_of_alignment(self, kind: int) -> None:
        """Warn of an alignment that is readable but unusual: ggml's own readers require a UINT32 and a power of two."""
        odd = [] if kind == UINT32 else [f"is of value type {kind} where ggml asks for {UINT32} (UINT32)"]
        if self.alignment & (self.alignment - 1):
            odd.append(f"is {self.alignment}, and llama.cpp refuses what is not a power of two")
        if odd:
            what = f"{self.path}: key {ALIGNMENT!r} {' and '.join(odd)}"
            warnings.warn(printable(what), TritgoldWarning, stacklevel=3)

    def _info(self) -> _Info:
        values = self._values
        name = values.string("tensor name")
        thing = f"tensor {name!r}"
        dims = values.scalar("I", f"dimensions of {thing}")
        if not 1 <= dims <= MAX_DIMS:
            self._refuse("has an impossible number of dimensions", "dims", thing, dims, f"1 to {MAX_DIMS}")
        sizes = [values.scalar("Q", f"sizes of {thing}") for _ in range(dims)]
        if max(sizes) >= 2**63 or prod(sizes) >= 2**63:
            self._refuse("has impossible sizes", "dims", thing, sizes)
        type_id, offset = values.scalar("I", f"type of {thing}"), values.scalar("Q", f"offset of {thing}")
        if offset % self.alignment:
            self._refuse("does not begin at a multiple of the alignment", "misaligned", thing, offset, self.alignment)
        return _Info(name, tuple(reversed(sizes)), type_id, offset)

    def _spans(self, infos: list[_Info]) -> dict[str, int]:
        begins = sorted({info.offset for info in infos})
        end = self._values.data.size - align(self._values.at, self.alignment)
        spans = {at: stop - at for at, stop in pairwise([*begins, end])}
        return {info.name: spans[info.offset] for info in infos}

    def _place(self, infos: list[_Info]) -> dict[str, StoredTensor]:
        start = align(self._values.at, self.alignment)
        placed = {}
        for info in infos:
            span = self.spans[info.name]
            dtype, size = self._size(info, span)
            thing = f"tensor {info.name!r}"
            stop = start + info.offset + size
            if align(stop, self.alignment) > self._values.data.size:
                what = f"{dtype} payload, padded to {self.alignment}, ends after the end of the file"
                self._refuse(what, "truncated", thing, self._values.data.size, align(stop, self.alignment))
            if size > span:
                self._refuse(
                    f"{dtype} payload reaches into the next tensor",
                    "overlap",
                    thing,
                    f"{span} bytes to it",
                    f"{size} bytes",
                )
            data = self._values.data[start + info.offset : stop]
            placed[info.name] = StoredTensor(self.path, info.name, dtype, info.shape, start + info.offset, data)
        filled = [info for info in infos if 0 not in info.shape]  # an empty tensor begins where the next one does
        if (shared := first_repeated(info.offset for info in filled)) is not None:
            names = " and ".join(repr(info.name) for info in filled if info.offset == shared)
            self._refuse("share their bytes", "overlap", f"tensors {names}", shared)
        return placed

    def _size(self, info: _Info, span: int) -> tuple[str, int]:
        """The type's name and the bytes of the tensor. span: bytes to the next tensor, or to the end of the file."""
        thing = f"tensor {info.name!r}"
        names = type_names(info.type_id, self.architecture)
        if not names:
            prism, ik = PRISM.get(info.type_id), IK_LLAMA.get(info.type_id)
            hint = prism and f"it is PrismML's {prism}, which also needs a transform of the activations"
            if ik is not None:
                hint = f"it is {ik} of ik_llama.cpp and holds no trits: requantise to IQ2_BN, or Q6_K for the embedding"
            self._refuse_type(info, hint)
        # Two types that share a number differ in size. The type that the architecture implies is used unless only the
        # other one fills the span.
        fitting = [name for name in names if self._fills(tensor_bytes(name, info.shape, self.q2_0_block), span)]
        dtype = next(iter(fitting), names[0])
        if dtype in [name for name, _, _ in RETIRED.values()]:
            self._refuse_type(info, f"by its size it is {dtype}, which ggml has retired")
        if info.type_id == Q2_0 and not fitting:
            self._check_type_42(info, span)
        size = tensor_bytes(dtype, info.shape, self.q2_0_block)
        if size is None:
            block = block_weights(dtype, self.q2_0_block)
            what = f"rows of {dtype} are whole blocks"
            self._refuse(what, "row-length", thing, info.shape[-1], f"a multiple of {block}")
        return dtype, size

    def _fills(self, size: int | None, span: int) -> bool:
        return size is not None and fills(size, span, self.alignment)

    def _check_type_42(self, info: _Info, span: int) -> None:
        """Refuse type 42 if the distance to the next tensor fits the other block size; nothing else shows the size."""
        ours, other = self.q2_0_block, 192 - self.q2_0_block
        if self._fills(tensor_bytes("Q2_0", info.shape, other), span):
            what = {64: "ggml's Q2_0", 128: "legacy Prism Q2_0"}[other]
            self._refuse(
                f"type 42 fits {Q2_0_BYTES[other]} B/{other}, not {Q2_0_BYTES[ours]} B/{ours}: {what}",
                "type-42",
                f"tensor {info.name!r}",
                f"{span} bytes to the next tensor",
                f"{tensor_bytes('Q2_0', info.shape, ours)}",
                f"read it with q2_0_block={other}",
            )

    def _refuse_type(self, info: _Info, hint: str | None) -> NoReturn:
        what = f"unknown tensor type {info.type_id} in tensor {info.name!r}"
        self._refuse(what, "unknown-type", None, hint=hint)


def fills(size: int, span: int, alignment: int) -> bool:
    """Whether a tensor of this size fills ``span``, the bytes up to the next tensor, except for padding.

    >>> fills(136, 160, 32), fills(144, 160, 32), fills(96, 160, 32)
    (True, True, False)
    """
    return size <= span < align(size, alignment) + alignment


def align(at: int, alignment: int) -> int:
    """``at`` rounded up to a multiple of the alignment."""
    return -(-at // alignment) * alignment
