"""Prepared weights in a folder: one .npy file for each array, and entry.json with their dtypes, shapes and sums.

NumPy's format, because any tool can open it, and because its arrays begin at multiples of 64 bytes: a mapped file
becomes an array of JAX without a copy. bfloat16, which NumPy does not have, is stored as the uint16 of its bits.

Each start reads the arrays once and compares their sums, at the speed of memory: 64-bit words added up, one sum for
each MiB. It finds any single changed word, and a piece that was never written. It does not prevent deliberate changes.
"""

import os
from pathlib import Path
from typing import Final, Literal

import jax.numpy as jnp
import msgspec
import numpy as np

from tritgold.errors import EngineError

SCHEMA: Final = "tritgold.xla-weights/1"
INDEX = "entry.json"
Arrays = dict[str, np.ndarray]

_WORDS = 1 << 17  # 64-bit words in one sum
_COMPARED = 1 << 24  # bytes compared at a time


class _Array(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    dtype: str
    shape: tuple[int, ...]
    sums: list[int]


class _Index(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: Literal["tritgold.xla-weights/1"]
    arrays: dict[str, _Array]


def write_entry(folder: Path, arrays: Arrays) -> None:
    """Write the arrays into an empty folder; entry.json last.

    Raises OSError, and EngineError ``weights-cache`` if the bits in a file are not those of the array.
    """
    index = {}
    for name, array in arrays.items():
        stored = array.view(np.uint16) if array.dtype == jnp.bfloat16 else array
        np.save(folder / f"{name}.npy", stored, allow_pickle=False)
        index[name] = _Array(str(array.dtype), array.shape, _sums(stored))
    (folder / INDEX).write_bytes(msgspec.json.encode(_Index(SCHEMA, index)))
    for name, array in arrays.items():
        if not _holds(folder / f"{name}.npy", array):
            raise _damaged(folder, f"{name}.npy", "another array", "the one that was written")


def read_entry(folder: Path) -> Arrays:
    """The arrays, mapped and read-only.

    Raises FileNotFoundError if there is no entry.json, OSError if it cannot be read, EngineError ``weights-cache`` if
    an array is missing or does not agree with it.
    """
    try:
        index = msgspec.json.decode((folder / INDEX).read_bytes(), type=_Index)
    except msgspec.DecodeError as error:
        raise _damaged(folder, INDEX, str(error), f"schema {SCHEMA}") from None
    return {name: _read(folder, name, said) for name, said in index.arrays.items()}


def _holds(file: Path, array: np.ndarray) -> bool:
    """Whether the file ends with the bytes of the array; read in pieces."""
    given = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    with file.open("rb") as opened:
        opened.seek(-given.size, os.SEEK_END)
        pieces = range(0, given.size, _COMPARED)
        return all(opened.read(_COMPARED) == given[at : at + _COMPARED].tobytes() for at in pieces)


def _read(folder: Path, name: str, said: _Array) -> np.ndarray:
    if "/" in name or name.startswith("."):
        raise _damaged(folder, INDEX, name, "names of arrays")
    try:
        # As a plain array: slicing a memmap costs ten times as much.
        stored = np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False))
    except FileNotFoundError:
        raise _damaged(folder, f"{name}.npy", "no such file", "an array") from None
    except (ValueError, EOFError, SyntaxError) as error:
        raise _damaged(folder, f"{name}.npy", str(error), "an array") from None
    array = stored.view(jnp.bfloat16) if said.dtype == "bfloat16" and stored.dtype == np.uint16 else stored
    if (str(array.dtype), array.shape) != (said.dtype, said.shape):
        expected = f"{said.dtype} {list(said.shape)}"
        raise _damaged(folder, f"{name}.npy", f"{array.dtype} {list(array.shape)}", expected)
    if _sums(stored) != said.sums:
        raise _damaged(folder, f"{name}.npy", "other sums", "those of entry.json")
    return array


def _sums(array: np.ndarray) -> list[int]:
    """Sums of the 64-bit words of each MiB, modulo 2**64; the last bytes are padded with zeros."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    whole = flat.size // 8 * 8
    words, rest = flat[:whole].view(np.uint64), np.zeros(8, np.uint8)
    rest[: flat.size - whole] = flat[whole:]
    pieces = [int(words[at : at + _WORDS].sum()) for at in range(0, words.size, _WORDS)]
    return [*pieces, int(rest.view(np.uint64)[0])]


def _damaged(folder: Path, file: str, got: str, expected: str) -> EngineError:
    return EngineError("is damaged", kind="weights-cache", file=folder / file, got=got, expected=expected)
