"""The safetensors weights of a checkpoint folder: one file, or shards that an index names."""

import os.path
import re
import warnings
from pathlib import Path
from typing import NoReturn

import numpy as np

from tritgold.errors import FormatError, TritgoldWarning
from tritgold.formats.container import StoredTensor
from tritgold.formats.other_files import hint_of_folder
from tritgold.formats.safetensors_file import INDEX, SafetensorsFile
from tritgold.formats.untrusted_text import parse_json, printable, read_text

MAX_INDEX = 1 << 22  # bytes; an index has about 100 per tensor


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
