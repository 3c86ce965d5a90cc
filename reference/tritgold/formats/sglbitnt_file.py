"""SGLBITNT, the ``.bin`` files of WrinkleFree's sgl-kernel: reader and writer. Memory-mapped, every length checked.

Layout, all little-endian and without alignment: ``SGLBITNT``, u32 version 1, u32 length of the configuration and the
configuration (JSON), u32 number of tensors; then each tensor: u32 length of the name and the name (UTF-8), u32 dtype
(0 U8, 1 F32, 2 F16, 3 BF16), u32 number of sizes and the sizes (u32, rows first), u32 has_scale, f32 scale, u64 length
of the data and the data. A tensor begins where the previous one ends: after one wrong length everything is misread.

Two programs write it and differ in one field. ``convert_to_sglkernel.py`` (main; sgl-kernel's
``sglkernel_loader.h`` reads this form) omits the scale if has_scale is 0; ``convert_dlm_to_sglkernel.py`` (branch
GetDistillWorking; ``serve_bitnet_native.py`` reads this form) always writes it, as 0 if there is none. No field says
which form a file has; here the data length decides, which must be that of dtype and sizes.

Both copy the Hugging Face config.json and tensor names. Linear weights are U8 [out, in / 4] with a scale that
multiplies; of the other tensors the first program widens bf16 to F32, the second rounds all to F16.
Source: DeepOpt-com/WrinkleFree-Monorepo, the four files named.
"""

import json
import struct
from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np

from tritgold.errors import FormatError, OutputError
from tritgold.formats.container import PlannedTensor, StoredTensor, map_file
from tritgold.formats.untrusted_text import RepeatedNameError, parse_json, printable, require_regular
from tritgold.formats.whole_file import listed, write_chunks, written_whole

Dialect = Literal["optional", "always"]

MAGIC = b"SGLBITNT"
VERSION = 1
DTYPES = ("U8", "F32", "F16", "BF16")  # by number
ITEM_BYTES = {"U8": 1, "F32": 4, "F16": 2, "BF16": 2}
MAX_DIMS = 8
_LEAST_TENSOR = 25  # bytes of the smallest tensor: no name, no sizes, no scale, one byte of data


def is_sglbitnt(path: Path) -> bool:
    """Whether a file begins with ``SGLBITNT``; False if it cannot be read."""
    try:
        require_regular(path)
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, FormatError):
        return False


class SglbitntFile:
    """An opened SGLBITNT file.

    config: the configuration, as parsed JSON. tensors: by name, in the order of the file. scales: float32 by name, for
    the tensors that have one. dialect: ``always`` if tensors without a scale have a scale field, ``optional`` if they
    do not; None if every tensor has a scale.

    Raises FormatError; the kinds are ``not-sglbitnt``, ``version``, ``truncated``, ``count``, ``config-utf8``,
    ``config-json``, ``config-type``, ``name-utf8``, ``duplicate-name``, ``unknown-dtype``, ``dims``, ``scale-flag``,
    ``scale-non-finite``, ``size-mismatch``, ``trailing-bytes``.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file = map_file(self.path)
        self._at = 0
        magic = self._raw(len(MAGIC), "magic")
        if magic != MAGIC:
            self._refuse("is not an SGLBITNT file", "not-sglbitnt", "magic", magic, MAGIC)
        version = self._u32("version")
        if version != VERSION:
            self._refuse("unsupported version", "version", "version", version, VERSION)
        self.config = self._config()
        count = self._u32("number of tensors")
        left = self._file.size - self._at
        if count * _LEAST_TENSOR > left:  # refused before reading: a hostile file may give any count
            self._refuse(
                "cannot fit into the file", "count", "number of tensors", count, f"at most {left // _LEAST_TENSOR}"
            )
        self.dialect: Dialect | None = None
        self.scales: dict[str, np.float32] = {}
        self.tensors: dict[str, StoredTensor] = {}
        for index in range(count):
            self._tensor(index)
        if self._at != self._file.size:
            self._refuse("has bytes after the last tensor", "trailing-bytes", None, self._file.size, self._at)

    def _config(self) -> dict[str, Any]:
        text = self._text("configuration", "config-utf8")
        try:
            config = parse_json(text)
        except RepeatedNameError as error:
            self._refuse("occurs twice", "config-json", f"configuration key {error.name!r}")
        except ValueError as error:
            self._refuse(f"is not JSON: {error}", "config-json", "configuration")
        if not isinstance(config, dict):
            self._refuse("is not an object", "config-type", "configuration", type(config).__name__, "an object")
        return config

    def _tensor(self, index: int) -> None:
        name = self._text(f"name of tensor {index}", "name-utf8")
        thing = f"tensor {name!r}"
        if name in self.tensors:
            self._refuse("occurs twice", "duplicate-name", thing)
        number = self._u32(f"dtype of {thing}")
        if number >= len(DTYPES):
            self._refuse("has an unknown dtype", "unknown-dtype", thing, number, "0 (U8), 1 (F32), 2 (F16), 3 (BF16)")
        dims = self._u32(f"number of sizes of {thing}")
        if dims > MAX_DIMS:
            self._refuse("has an impossible number of sizes", "dims", thing, dims, f"at most {MAX_DIMS}")
        shape = tuple(self._u32(f"sizes of {thing}") for _ in range(dims))
        if 0 in shape:
            self._refuse("has a size of 0", "dims", thing, list(shape))
        dtype = DTYPES[number]
        size = prod(shape) * ITEM_BYTES[dtype]
        flag = self._u32(f"has_scale of {thing}")
        if flag > 1:
            self._refuse("has_scale is not a flag", "scale-flag", thing, flag, "0 or 1")
        if flag:
            self._scale(name, thing)
        else:
            self._settle_dialect(size)
            self._take(4 if self.dialect == "always" else 0, f"unused scale of {thing}")
        length = self._u64(f"data length of {thing}")
        if length != size:
            self._refuse(
                "data length is not shape x dtype", "size-mismatch", thing, length, f"{size} ({dtype} {list(shape)})"
            )
        begin = self._take(size, f"data of {thing}")
        self.tensors[name] = StoredTensor(self.path, name, dtype, shape, begin, self._file[begin : begin + size])

    def _scale(self, name: str, thing: str) -> None:
        scale = np.frombuffer(self._raw(4, f"scale of {thing}"), "<f4")[0]
        if not np.isfinite(scale):
            self._refuse("has a scale that is not finite", "scale-non-finite", thing, str(scale))
        self.scales[name] = scale

    def _settle_dialect(self, size: int) -> None:
        """Set the dialect at the first tensor without a scale: is its data length here, or 4 bytes later?"""
        if self.dialect is not None:
            return
        here, further = (self._file[at : at + 8].tobytes() for at in (self._at, self._at + 4))
        fits = [int.from_bytes(field, "little") == size for field in (here, further)]
        self.dialect = "always" if fits == [False, True] else "optional"

    def _take(self, count: int, what: str) -> int:
        """Step over ``count`` bytes; returns their offset. Refuses (``truncated``) if the file ends before."""
        left = self._file.size - self._at
        if count > left:
            self._refuse("ends too early", "truncated", what, f"{left} bytes left at byte {self._at}", count)
        self._at += count
        return self._at - count

    def _raw(self, count: int, what: str) -> bytes:
        at = self._take(count, what)
        return self._file[at : at + count].tobytes()

    def _u32(self, what: str) -> int:
        return int.from_bytes(self._raw(4, what), "little")

    def _u64(self, what: str) -> int:
        return int.from_bytes(self._raw(8, what), "little")

    def _text(self, what: str, kind: str) -> str:
        raw = self._raw(self._u32(f"length of {what}"), what)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            self._refuse(f"is not UTF-8: {error.reason}", kind, what)

    def _refuse(
        self, message: str, kind: str, thing: str | None, got: object = None, expected: object = None
    ) -> NoReturn:
        thing, got = thing and printable(thing), got if got is None or isinstance(got, int) else printable(got)
        raise FormatError(message, kind=kind, file=self.path, thing=thing, got=got, expected=expected)


def write_sglbitnt(
    path: Path,
    config: Mapping[str, Any],
    tensors: Iterable[PlannedTensor],
    scales: Mapping[str, np.float32],
    dialect: Dialect = "optional",
) -> None:
    """Write one file, tensors in the order given; it is written completely or not at all.

    config: as in config.json. scales: of packed tensors, by name. dialect: for tensors without a scale, ``optional``
    omits the scale field, ``always`` writes 0.

    Raises OutputError: those of ``written_whole``, and ``duplicate-name``, ``name-utf8``, ``unknown-dtype``, ``dims``,
    ``size-mismatch``, ``scale-non-finite``, ``scale-unused`` (a scale without its tensor), ``planned-size``.
    """
    plan = listed(path, tensors)
    if unused := sorted(scales.keys() - {tensor.name for tensor in plan}):
        _refuse_plan(path, unused[0], "is a scale without its tensor", "scale-unused")
    heads = [_head(path, tensor, scales.get(tensor.name), dialect) for tensor in plan]
    text = json.dumps(dict(config)).encode()
    with written_whole(path) as scratch, scratch.open("wb") as file:
        file.write(MAGIC + struct.pack("<II", VERSION, len(text)) + text + struct.pack("<I", len(plan)))
        for head, tensor in zip(heads, plan, strict=True):
            file.write(head)
            write_chunks(file, tensor)


def _head(path: Path, tensor: PlannedTensor, scale: np.float32 | None, dialect: Dialect) -> bytes:
    """The bytes of a tensor's record up to its data."""
    if tensor.dtype not in DTYPES:
        _refuse_plan(path, tensor.name, "has no such dtype", "unknown-dtype", tensor.dtype, ", ".join(DTYPES))
    shape = tensor.shape
    if len(shape) > MAX_DIMS or not all(0 < size < 2**32 for size in shape):
        _refuse_plan(
            path, tensor.name, "has an impossible shape", "dims", list(shape), f"at most {MAX_DIMS} u32 above 0"
        )
    size = prod(shape) * ITEM_BYTES[tensor.dtype]
    if size != tensor.size:
        expected = f"{size} bytes ({tensor.dtype} {list(shape)})"
        _refuse_plan(path, tensor.name, "size is not shape x dtype", "size-mismatch", f"{tensor.size} bytes", expected)
    if scale is not None and not np.isfinite(scale):
        _refuse_plan(path, tensor.name, "has a scale that is not finite", "scale-non-finite", str(scale))
    try:
        name = tensor.name.encode("utf-8")
    except UnicodeEncodeError as error:
        _refuse_plan(path, tensor.name, f"name cannot be UTF-8: {error.reason}", "name-utf8")
    head = struct.pack("<I", len(name)) + name
    head += struct.pack(f"<II{len(shape)}I", DTYPES.index(tensor.dtype), len(shape), *shape)
    head += struct.pack("<I", scale is not None)
    if scale is not None or dialect == "always":
        head += struct.pack("<f", 0.0 if scale is None else scale)
    return head + struct.pack("<Q", size)


def _refuse_plan(
    path: Path, name: str, message: str, kind: str, got: object = None, expected: object = None
) -> NoReturn:
    thing = printable(f"tensor {name!r}")
    raise OutputError(message, kind=kind, file=path, thing=thing, got=got, expected=expected)
