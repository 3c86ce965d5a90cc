"""The engine's parameters: mapped from a cache folder if an earlier process prepared them, otherwise made and kept."""

import gc
import os
import shutil
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import jax
import numpy as np

from tritgold.config import ModelConfig
from tritgold.errors import EngineError, OutputError, TritgoldError, TritgoldWarning
from tritgold.formats.whole_file import written_folder
from tritgold.weights import ModelWeights
from tritgold_xla.parameters import Parameters, Progress, load_parameters, parameter_bytes, rotations
from tritgold_xla.place import Place
from tritgold_xla.runtime.cache_folder import require_folder
from tritgold_xla.weights_cache.entry import INDEX, Arrays, read_entry, write_entry
from tritgold_xla.weights_cache.key import key_of, stored_tensors

# Made at each start: tables that depend on the capacity, and a copy for the greedy head of one thread.
_NOT_KEPT = ("sin", "cos", "screen")
_DAY = 86400
_SPARE = 1 << 30  # bytes of the disk that are left free


class KeptWeights(NamedTuple):
    """The folder of prepared weights. most: bytes of all models; the least recently used ones are removed.

    least: bytes of the smallest model that is kept: a smaller one is prepared in less than a second.
    """

    folder: Path
    most: int = 16 << 30
    least: int = 64 << 20


def prepared_parameters(
    kept: KeptWeights | None,
    config: ModelConfig,
    weights: ModelWeights,
    capacity: int,
    device: jax.Device,
    progress: Progress | None = None,
) -> Parameters:
    """The same parameters as from ``load_parameters``, bit for bit. kept: None reads and keeps nothing.

    A damaged entry is removed and made again, with a TritgoldWarning; a folder that cannot be written also gives one.
    If two processes start at the same time, both make the weights, and the first to finish keeps them.
    """
    key = None
    if kept is not None and parameter_bytes(config) >= kept.least:
        try:
            key = key_of(config, weights, kept.folder / "seen")
        except OSError as error:
            _note(error)
    if key is None:
        return load_parameters(config, weights, capacity, Place(device), progress)
    assert kept is not None
    entry = kept.folder / key
    arrays = _found(entry)
    if arrays is None:
        made = load_parameters(config, weights, capacity, Place(device), progress)
        if not _keep(entry, _flat(made), kept.most):
            return made
        del made  # its memory first: from now on the arrays are those of the files
        gc.collect()  # only then does JAX release memory that it did not allocate
        arrays = _found(entry)
        if arrays is None:  # removed or damaged meanwhile
            return load_parameters(config, weights, capacity, Place(device), progress)
    for tensor in stored_tensors(weights):  # the checkpoint's own pages are not needed beside those of the entry
        tensor.release()
    tree = jax.tree.map(lambda array: jax.device_put(array, device), _nested(arrays))
    tree["head"] = tree.get("head", tree["embedding"])
    tree["sin"], tree["cos"] = rotations(config, capacity, Place(device))
    whole: Parameters = _typed(Parameters, tree)
    return whole


def _found(entry: Path) -> Arrays | None:
    try:
        arrays = read_entry(entry)
    except (FileNotFoundError, NotADirectoryError):
        if entry.exists() and not (entry / INDEX).exists():  # its removal was interrupted
            shutil.rmtree(entry, ignore_errors=True)
        return None
    except (OSError, EngineError) as error:
        _note(error, "is thrown away, and made again")
        shutil.rmtree(entry, ignore_errors=True)
        return None
    with suppress(OSError):
        os.utime(entry / INDEX)  # the time of its last use
    return arrays


def _keep(entry: Path, arrays: Arrays, most: int) -> bool:
    """Write the entry. Returns whether it exists now, written by this process or by a faster one."""
    try:
        require_folder(entry.parent)
        size = sum(array.nbytes for array in arrays.values())
        _make_room(entry.parent, size, most)
        with written_folder(entry) as scratch:
            write_entry(scratch, arrays)
    except (OSError, TritgoldError) as error:
        if getattr(error, "kind", "") != "exists":
            _note(error)
            return False
    return True


def _make_room(folder: Path, size: int, most: int) -> None:
    """Remove the least recently used entries, and files of killed processes, until ``size`` more bytes fit ``most``.

    A process that has mapped a removed file keeps its data. Raises OutputError ``cache-limit`` or ``disk-full``.
    """
    if size > most:
        raise OutputError("is too small for it", kind="cache-limit", file=folder, got=most, expected=f"{size} bytes")
    for part in folder.glob("*.part"):
        with suppress(OSError):
            if time.time() - part.stat().st_mtime > _DAY:
                shutil.rmtree(part, ignore_errors=True)
    kept = []
    for index in folder.glob(f"*/{INDEX}"):
        with suppress(OSError):
            held = sum(file.stat().st_size for file in index.parent.iterdir())
            kept.append((index.stat().st_mtime, held, index.parent))
    total = sum(held for _, held, _ in kept)
    for _, held, entry in sorted(kept):
        if total + size <= most:
            break
        shutil.rmtree(entry, ignore_errors=True)
        total -= held
    free = shutil.disk_usage(folder).free
    if free < size + _SPARE:
        got, expected = f"{free / 1e9:.1f} GB free", f"{(size + _SPARE) / 1e9:.1f} GB"
        raise OutputError("has no room", kind="disk-full", file=folder, got=got, expected=expected)


def _note(error: Exception, what: str = "prepared weights are not kept") -> None:
    text = f"{error}: it {what}" if what.startswith("is") else f"{what}: {error}"
    warnings.warn(text, TritgoldWarning, stacklevel=4)


def _flat(parameters: Parameters) -> Arrays:
    """Arrays by their path, ``layers.linears.q.scale``; a tied head is stored once."""
    tree = {name: part for name, part in parameters._asdict().items() if name not in _NOT_KEPT}
    if parameters.head is parameters.embedding:
        del tree["head"]
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {".".join(str(getattr(key, "name", getattr(key, "key", key))) for key in path): np.asarray(leaf)
            for path, leaf in leaves}  # fmt: skip


def _nested(arrays: Arrays) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, array in arrays.items():
        *folders, name = path.split(".")
        node = tree
        for folder in folders:
            node = node.setdefault(folder, {})
        node[name] = array
    return tree


def _typed(kind: Any, node: Any) -> Any:
    """Convert nested dictionaries to the named tuple ``kind`` (or ``kind | None``) and to those of its fields.

    A missing field gets its default; a dictionary without arrays was not stored, and becomes empty.
    """
    if get_origin(kind) is dict:
        return {name: _typed(get_args(kind)[1], below) for name, below in node.items()}
    kind = next((member for member in (kind, *get_args(kind)) if hasattr(member, "_fields")), None)
    if kind is None:
        return node
    hints = get_type_hints(kind)
    empty: dict[str, Any] = {name: {} for name, hint in hints.items() if get_origin(hint) is dict}
    return kind(**{name: _typed(hints[name], below) for name, below in (empty | node).items()})
