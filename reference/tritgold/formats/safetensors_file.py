"""safetensors reader: one file, or several with an index. Parsed here, so that every offset is checked and an error
names the tensor.

Layout: u64 header length, a JSON header (name -> dtype, shape, data_offsets; ``__metadata__`` -> strings), then
the data without gaps. Source: the format section of the safetensors README, and its Rust parser's checks.
"""

import os.path
import re
import warnings
from math import prod
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from tritgold.errors import FormatError, TritgoldWarning
from tritgold.formats.container import StoredTensor, map_file
from tritgold.formats.other_files import LONGEST, hint_of, hint_of_folder
from tritgold.formats.untrusted_text import RepeatedNameError, parse_json, printable, read_text

ITEM_BYTES = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64"), 8),
}
MAX_HEADER = 100_000_000  # the limit of the reference parser
# JSON items of a header: parsing takes at most 200 MB then, not 3 GB. A tensor has 8 items, so this allows 65,000.
MAX_ITEMS = 1 << 19
MAX_INDEX = 1 << 22  # bytes; an index has about 100 per tensor
MAX_DIMS = 64  # NumPy's limit; without one, the product of a hostile shape takes hours
INDEX = "model.safetensors.index.json"


class SafetensorsFile:
    """One safetensors file.

    tensors: by name, in the order of their offsets. metadata: the ``__metadata__`` strings.

    Raises FormatError for a malformed file; the kinds are ``truncated``, ``header-length``, ``header-utf8``,
    ``header-json``, ``header-type``, ``duplicate-name``, ``entry``, ``unknown-dtype``, ``offsets-order``,
    ``size-mismatch``, ``overlap``, ``gap``, ``trailing-bytes``.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file = map_file(self.path)
        header, start = self._header()
        self.metadata: dict[str, str] = self._metadata(header.pop("__metadata__", {}))
        self.tensors: dict[str, StoredTensor] = {}
        end = 0
        entries = [self._entry(name, entry) for name, entry in header.items()]
        for name, dtype, shape, begin, stop in sorted(entries, key=lambda e: (e[3], e[4])):
            thing = f"tensor {name!r}"
            if begin < end:
                self._refuse("shares bytes with the tensor before it", "overlap", thing, got=begin, expected=end)
            if begin > end:
                self._refuse("leaves a gap to the tensor before it", "gap", thing, got=begin, expected=end)
            end = stop
            if start + stop > self._file.size:
                self._refuse("ends after the end of the file", "truncated", thing, self._file.size, start + stop)
            data = self._file[start + begin : start + stop]
            self.tensors[name] = StoredTensor(self.path, name, dtype, shape, start + begin, data)
        if start + end != self._file.size:
            self._refuse("has bytes after the last tensor", "trailing-bytes", None, self._file.size, start + end)

    def _header(self) -> tuple[dict[str, Any], int]:
        size = self._file.size
        if size < 8:
            self._refuse("is too short for a header length", "truncated", None, f"{size} bytes", "at least 8")
        length = int(self._file[:8].copy().view("<u8")[0])
        if length > MAX_HEADER:
            hint = hint_of(self._file[:LONGEST].tobytes())
            self._refuse("header is too long", "header-length", None, length, f"at most {MAX_HEADER}", hint)
        if 8 + length > size:
            self._refuse("ends inside its header", "truncated", "header", f"{size} bytes", f"at least {8 + length}")
        raw = self._file[8 : 8 + length].tobytes()
        # Every JSON value except the outermost follows one of these characters: their count is an upper bound.
        items = sum(raw.count(sign) for sign in (b",", b"[", b"{"))
        if items > MAX_ITEMS:
            self._refuse("header has too many items", "header-length", None, items, f"at most {MAX_ITEMS}")
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            self._refuse(f"is not UTF-8: {error.reason} at byte {8 + error.start}", "header-utf8", "header")
        try:
            header = parse_json(text)
        except RepeatedNameError as error:
            self._refuse("occurs twice", "duplicate-name", f"entry {error.name!r}")
        except ValueError as error:
            self._refuse(f"is not JSON: {error}", "header-json", "header")
        if not isinstance(header, dict):
            self._refuse("is not an object", "header-type", "header", type(header).__name__, "an object")
        return header, 8 + length

    def _metadata(self, metadata: Any) -> dict[str, str]:
        if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
            self._refuse("must map strings to strings", "entry", "'__metadata__'")
        return dict(metadata)

    def _entry(self, name: str, entry: Any) -> tuple[str, str, tuple[int, ...], int, int]:
        thing = f"tensor {name!r}"
        expected = {"dtype", "shape", "data_offsets"}
        if not isinstance(entry, dict) or set(entry) != expected:
            got = sorted(entry) if isinstance(entry, dict) else type(entry).__name__
            self._refuse("entry is malformed", "entry", thing, got, sorted(expected))
        dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
            self._refuse("has an unknown dtype", "unknown-dtype", thing, repr(dtype), ", ".join(ITEM_BYTES))
        if not _counts(shape) or not _counts(offsets) or len(offsets) != 2 or len(shape) > MAX_DIMS:
            self._refuse("shape and offsets are lists of whole numbers", "entry", thing, f"{shape}, {offsets}")
        begin, stop = offsets
        if begin > stop:
            self._refuse("begins after its end", "offsets-order", thing, offsets)
        if stop - begin != prod(shape) * ITEM_BYTES[dtype]:
            got, want = f"{stop - begin} bytes", f"{prod(shape) * ITEM_BYTES[dtype]} bytes ({dtype} {shape})"
            self._refuse("size is not shape x dtype", "size-mismatch", thing, got, want)
        return name, dtype, tuple(shape), begin, stop

    def _refuse(
        self,
        message: str,
        kind: str,
        thing: str | None,
        got: object = None,
        expected: object = None,
        hint: str | None = None,
    ) -> NoReturn:
        thing, got = thing and printable(thing), got if got is None or isinstance(got, int) else printable(got)
        raise FormatError(message, kind=kind, file=self.path, thing=thing, got=got, expected=expected, hint=hint)


class SafetensorsFolder:
    """A checkpoint folder: ``model.safetensors``, or shards named by ``model.safetensors.index.json``.

    Raises FormatError if a shard is missing (``shard-missing``), if index and shards disagree (``not-in-index``,
    ``not-in-shard``), if the index is malformed (``index``), if there are no weights (``no-weights``), and if the
    folder has more than one model (``ambiguous``); and as SafetensorsFile does.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        single, index = self.path / "model.safetensors", self.path / INDEX
        if single.exists() and index.exists():
            self._refuse("holds both a whole model and an index of shards", "ambiguous", "remove one of them")
        if index.exists():
            self.tensors = self._shards(index)
            return
        files = [single] if single.exists() else sorted(self.path.glob("*.safetensors"))
        if len(files) != 1:
            what = "several .safetensors files and no index" if files else "no .safetensors file"
            self._refuse(
                f"holds {what}",
                "ambiguous" if files else "no-weights",
                (None if files else hint_of_folder(self.path)) or f"expected model.safetensors or {INDEX}",
            )
        self.tensors = SafetensorsFile(files[0]).tensors

    def _shards(self, index: Path) -> dict[str, StoredTensor]:
        where = _weight_map(index)
        names = sorted(set(where.values()))
        # os.path: Path.is_file of Python 3.11 raises on a name that is too long for the file system.
        missing = [name for name in names if not os.path.isfile(self.path / name)]
        if missing:
            raise FormatError(
                "names shards that are not there",
                kind="shard-missing",
                file=index,
                got=", ".join(printable(name) for name in missing[:20]),
                expected=f"{len(names)} files",
                hint="a download was cut short, or the files lie elsewhere",
            )
        tensors: dict[str, StoredTensor] = {}
        others: list[StoredTensor] = []
        for tensor in _of_all([self.path / shard for shard in names]):
            if tensor.name not in where:
                raise FormatError(
                    "lies in this shard, and the index does not name it",
                    kind="not-in-index",
                    file=tensor.file,
                    thing=printable(f"tensor {tensor.name!r}"),
                )
            if where[tensor.name] == tensor.file.name:
                tensors[tensor.name] = tensor
            else:
                others.append(tensor)
        absent = sorted(set(where) - set(tensors))
        if absent:
            shown = ", ".join(printable(repr(name)) for name in absent[:5])
            raise FormatError(f"names tensors that no shard holds: {shown}", kind="not-in-shard", file=index)
        _say_of_copies(tensors, others)
        return tensors

    def _refuse(self, message: str, kind: str, hint: str) -> NoReturn:
        raise FormatError(message, kind=kind, file=self.path, hint=hint)


def _of_all(paths: list[Path]) -> list[StoredTensor]:
    """The tensors of all shards. If several are broken, one error lists them all."""
    found: list[StoredTensor] = []
    broken: list[FormatError] = []
    for path in paths:
        try:
            found += SafetensorsFile(path).tensors.values()
        except FormatError as error:
            broken.append(error)
    if len(broken) > 1:
        lines = "".join(f"\n  {error}" for error in broken)
        what = f"{len(broken)} of {len(paths)} shards cannot be read:{lines}\n"
        raise FormatError(what, kind=broken[0].kind, file=paths[0].parent, hint="download these again")
    if broken:
        raise broken[0]
    return found


def _say_of_copies(tensors: dict[str, StoredTensor], others: list[StoredTensor]) -> None:
    """Warn of copies of a tensor in other shards than the index names, as when new weights were saved over old ones.

    Here the index decides. transformers 5 reads all files in the order of their names and keeps the last copy: if
    that copy is a different one with different bytes, it computes a different model.
    """
    if not others:
        return
    first = tensors[others[0].name]
    which = f"{printable(repr(first.name))} of {others[0].file.name}"
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    what = f"{first.file.parent}: {which}{more} passed over: the index says {first.file.name}"
    last = [other for other in others if other.file.name > tensors[other.name].file.name]
    if any(not np.array_equal(other.data, tensors[other.name].data) for other in last):
        what += "; transformers reads all files in order and keeps the last, which is another copy"
    warnings.warn(printable(what), TritgoldWarning, stacklevel=2)


def _weight_map(index: Path) -> dict[str, str]:
    try:
        where = parse_json(read_text(index, MAX_INDEX))["weight_map"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = f"is not a shard index: {type(error).__name__}: {error}"
        raise FormatError(what, kind="index", file=index) from error
    if not isinstance(where, dict) or not where or not all(isinstance(v, str) for v in where.values()):
        raise FormatError("weight_map must map tensor names to file names", kind="index", file=index)
    for name in where.values():
        # A name with a path in it would read files outside the checkpoint.
        if not re.fullmatch(r"[^/\\:]+\.safetensors", name):
            what = "names a shard that is not a plain file name"
            raise FormatError(what, kind="index", file=index, got=printable(repr(name)))
    return where


def _counts(values: Any) -> bool:
    """Whether it is a list of integers from 0 to 2**63 - 1; JSON's true is not an integer."""
    return isinstance(values, list) and all(type(v) is int and 0 <= v < 2**63 for v in values)
