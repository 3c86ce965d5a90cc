"""The key of prepared weights: the contents of the files, how they are read, and the code that reads and packs them.

The name and age of a file are not part of it. The contents are hashed once (SHA-256, 0.7 GB/s); later a file with the
same inode, size and times counts as unchanged, as in git and make.
"""

import hashlib
import json
import mmap
import os
import time
from contextlib import suppress
from dataclasses import fields
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import tritgold
from tritgold.config import ModelConfig
from tritgold.errors import OutputError
from tritgold.formats.container import StoredTensor
from tritgold.formats.packings.packing_base import Packing
from tritgold.formats.stored_weights import MasterWeight, PackedWeight
from tritgold.formats.whole_file import written_whole
from tritgold.weights import ModelWeights

# Seconds: a file that was changed a moment ago could change again without new times (the resolution of the clock).
_SETTLED = 2.0
_PIECE = 1 << 24  # bytes hashed at a time


class _Seen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file that was hashed. stat: device, inode, bytes, and the times of its last change in nanoseconds."""

    stat: tuple[int, ...]
    sha256: str


def key_of(config: ModelConfig, weights: ModelWeights, memory: Path) -> str | None:
    """A SHA-256 in hexadecimal; None if some weights are not in mapped files, or if a file has changed meanwhile.

    memory: a folder, created if missing, for earlier hashes. Raises OSError if a file cannot be read.
    """
    parts = _parts(weights)
    files = sorted({tensor.file for tensor in stored_tensors(weights)})
    try:
        described = [_described(part, files) for part in parts]
    except _ElsewhereError:
        return None
    digests = [content_of(file, memory) for file in files]
    if not files or None in digests:
        return None
    all_of_it = [made_by(), config.as_dict(), digests, described]
    return hashlib.sha256(json.dumps(all_of_it, sort_keys=True).encode()).hexdigest()


def _parts(weights: ModelWeights) -> list[Any]:
    parts = [getattr(weights, field.name) for field in fields(weights) if field.name != "layers"]
    return parts + [getattr(layer, field.name) for layer in weights.layers for field in fields(layer)]


def stored_tensors(weights: ModelWeights) -> list[StoredTensor]:
    """The tensors of files that the weights are read from."""
    return [tensor for part in _parts(weights) if (tensor := _stored(part)) is not None]


class _ElsewhereError(Exception):
    """A part of the model may depend on something other than the contents of files."""


def _stored(part: Any) -> StoredTensor | None:
    return part if type(part) is StoredTensor else getattr(part, "stored", None)


def _described(part: Any, files: list[Path]) -> object:
    """How a part of the model is read: all its fields, as JSON values. Raises _ElsewhereError."""
    if part is None or type(part) in (bool, int, str):
        return part
    if isinstance(part, tuple):
        return [_described(each, files) for each in part]
    if isinstance(part, np.ndarray | np.floating):
        array = np.ascontiguousarray(part)
        return [array.dtype.str, array.shape, hashlib.sha256(array.data).hexdigest()]
    if type(part) is StoredTensor and _mapped(part.data):
        return [files.index(part.file), part.name, part.dtype, part.shape, part.offset, part.data.nbytes]
    if isinstance(part, Packing):
        return [type(part).__name__, {name: str(value) for name, value in vars(part).items()}]
    if type(part) in (PackedWeight, MasterWeight):
        own = {f.name: getattr(part, f.name) for f in fields(part) if not f.name.startswith("_")}
        return [type(part).__name__, {name: _described(value, files) for name, value in own.items()}]
    raise _ElsewhereError


def _mapped(array: np.ndarray) -> bool:
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, mmap.mmap)


def content_of(file: Path, memory: Path) -> str | None:
    """The SHA-256 of a file, from ``memory`` if it has not changed; None if it changes while it is hashed."""
    before = _stat(file)
    note = memory / f"{hashlib.sha256(os.fsencode(file.resolve())).hexdigest()}.json"
    try:
        seen = msgspec.json.decode(note.read_bytes(), type=_Seen)
    except (OSError, msgspec.DecodeError):
        seen = None
    if seen is not None and seen.stat == before:
        return seen.sha256
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        while piece := opened.read(_PIECE):
            digest.update(piece)
    if _stat(file) != before:
        return None
    if time.time() - max(before[-2:]) / 1e9 > _SETTLED:
        with suppress(OSError, OutputError):  # then it is hashed again the next time
            memory.mkdir(parents=True, exist_ok=True)
            with written_whole(note) as scratch:
                scratch.write_bytes(msgspec.json.encode(_Seen(before, digest.hexdigest())))
    return digest.hexdigest()


def _stat(file: Path) -> tuple[int, ...]:
    told = file.stat()
    return told.st_dev, told.st_ino, told.st_size, told.st_mtime_ns, told.st_ctime_ns


@cache
def made_by() -> str:
    """The code that reads and packs: a hash of every source file of both packages, and the version of the compiler."""
    digest = hashlib.sha256(f"{version('jaxlib')} {tritgold.__name__}".encode())
    for package in (Path(tritgold.__file__).parent, Path(__file__).parents[1]):
        for file in sorted(package.rglob("*.py")):
            digest.update(str(file.relative_to(package)).encode() + file.read_bytes())
    return digest.hexdigest()
