"""Trace: the named activations of one forward pass in execution order, and their file.

Comparisons compare traces. The file is a plain safetensors file, readable from any language; the
order, the tokens and the provenance are JSON in its metadata under ``tritgold.trace``.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from tritgold.errors import TraceError
from tritgold.trace_names import token_axis

SCHEMA = "tritgold.trace/1"
# Keys of the header: type, and whether a trace from another program must have it too.
_HEADER: dict[str, tuple[type, bool]] = {
    "order": (list, True),
    "tokens": (list, True),
    "mode": (str, True),
    "model_hash": (str, True),
    "engine": (str, False),
    "versions": (dict, False),
    "digest": (str, False),
}


@dataclass(eq=False)
class Trace:
    """Arrays by name, in the order in which they were recorded.

    tokens: the input ids. mode: an ArithmeticMode id. engine: name of the engine that computed it. model_hash: of the
    weights used. A forward pass in several chunks appends along the token axis, so the trace of a prefill and that of
    step-by-step decoding have the same arrays (softmax rows are widened with zeros to the final number of keys).
    """

    tokens: list[int] = field(default_factory=list)
    mode: str = ""
    engine: str = ""
    model_hash: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    def record(self, name: str, array: np.ndarray) -> None:
        """Add an array, or append the next chunk of an array along its token axis."""
        before = self.arrays.get(name)
        if before is None:
            self.arrays[name] = array
            return
        axis = token_axis(name)
        if axis == 1:  # softmax weights, [heads, tokens, keys]
            missing = array.shape[2] - before.shape[2]
            before = np.pad(before, ((0, 0), (0, 0), (0, missing)))
        self.arrays[name] = np.concatenate([before, array], axis=axis)

    def __getitem__(self, name: str) -> np.ndarray:
        try:
            return self.arrays[name]
        except KeyError:
            raise TraceError(
                "the trace has no such array",
                kind="trace-name-missing",
                thing=name,
                hint=_nearest(name, self.arrays),
            ) from None

    def __contains__(self, name: str) -> bool:
        return name in self.arrays

    def digest(self) -> str:
        """SHA-256 over the arrays in execution order, without provenance.

        For each array: its name, a space, its dtype as ``<f4``, ``<i4`` or ``|i1``, a space, its shape as ``[3, 259]``,
        a line feed, and then its bytes, little-endian, in C order.
        """
        digest = hashlib.sha256()
        for name, array in self.arrays.items():
            digest.update(f"{name} {array.dtype.str} {list(array.shape)}\n".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trace, completely or not at all. Raises TraceError ``trace-unwritable``."""
        header = {
            "schema": SCHEMA,
            "engine": self.engine,
            "mode": self.mode,
            "model_hash": self.model_hash,
            "tokens": [int(t) for t in self.tokens],
            "versions": self.versions or versions(),
            "digest": self.digest(),
            "order": list(self.arrays),
        }
        target = Path(path)
        scratch = target.with_name(target.name + ".part")
        arrays = {name: np.ascontiguousarray(a) for name, a in self.arrays.items()}
        try:
            save_file(arrays, scratch, metadata={"tritgold.trace": json.dumps(header)})
            scratch.replace(target)
        except (OSError, SafetensorError) as error:
            raise TraceError(f"cannot be written: {error}", kind="trace-unwritable", file=path) from error
        finally:
            scratch.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Trace":
        """Read a trace, written by tritgold or by another program.

        Raises TraceError if the file is not a trace, if its header lacks order, tokens, mode or model_hash, or if
        the digest in the header is not that of its arrays.
        """
        try:
            with safe_open(path, framework="numpy") as file:
                header = _header(path, file.metadata())
                arrays = {str(name): file.get_tensor(name) for name in header["order"]}
        except (OSError, SafetensorError, KeyError, TypeError) as error:
            raise TraceError(f"cannot be read: {error}", kind="trace-unreadable", file=path) from error
        trace = cls(
            tokens=header["tokens"],
            mode=header["mode"],
            engine=header.get("engine", ""),
            model_hash=header["model_hash"],
            versions=header.get("versions", {}),
            arrays=arrays,
        )
        if "digest" in header and trace.digest() != header["digest"]:
            raise TraceError(
                "the arrays are not those that were saved",
                kind="trace-digest",
                file=path,
                got=trace.digest(),
                expected=header["digest"],
            )
        return trace


def versions() -> dict[str, str]:
    """The versions that a trace records: tritgold, Python, NumPy, machine."""
    return {
        "tritgold": _own_version(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
    }


@cache
def _own_version() -> str:
    """Read from the installation once."""
    try:
        return importlib.metadata.version("tritgold")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _header(path: object, metadata: dict[str, str] | None) -> dict[str, Any]:
    try:
        header: dict[str, Any] = json.loads((metadata or {})["tritgold.trace"])
    except (KeyError, ValueError, RecursionError):
        raise TraceError(
            "a safetensors file, but not a trace",
            kind="not-a-trace",
            file=path,
            expected="JSON in the metadata entry 'tritgold.trace'",
            hint="make one with: tritgold trace MODEL --ids 1,2,3 -o FILE",
        ) from None
    if not isinstance(header, dict) or header.get("schema") != SCHEMA:
        got = header.get("schema") if isinstance(header, dict) else type(header).__name__
        raise TraceError("unknown schema", kind="trace-schema", file=path, got=got, expected=SCHEMA)
    for key, (kind, required) in _HEADER.items():
        if (required or key in header) and not isinstance(header.get(key), kind):
            what = f"{kind.__name__}; copy it from the golden trace" if required else kind.__name__
            got = repr(header.get(key))[:60]
            raise TraceError(
                "is wrong in the header", kind="trace-header", file=path, thing=repr(key), got=got, expected=what
            )
    return header


def _nearest(name: str, names: Iterable[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, list(names), n=3)
    return f"nearest: {', '.join(close)}" if close else "it is empty"
