"""safetensors reader of one file; safetensors_folder.py reads several with an index. Parsed here, so that every offset
is checked and an error names the tensor.

Layout: u64 header length, a JSON header (name -> dtype, shape, data_offsets; ``__metadata__`` -> strings), then
the data without gaps. Source: the format section of the safetensors README, and its Rust parser's checks.
"""

from math import prod
from pathlib import Path
from typing import Any, NoReturn

from tritgold.errors import FormatError
from tritgold.formats.container import StoredTensor, map_file
from tritgold.formats.other_files import LONGEST, hint_of
from tritgold.formats.untrusted_text import RepeatedNameError, parse_json, printable

ITEM_BYTES = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64"), 8),
}
MAX_HEADER = 100_000_000  # the limit of the reference parser
# JSON items of a header: parsing takes at most 200 MB then, not 3 GB. A tensor has 8 items, so this allows 65,000.
MAX_ITEMS = 1 << 19
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


def _counts(values: Any) -> bool:
    """Whether it is a list of integers from 0 to 2**63 - 1; JSON's true is not an integer."""
    return isinstance(values, list) and all(type(v) is int and 0 <= v < 2**63 for v in values)
