"""peer.safetensors, read and renamed: transformers' module names become tritgold's trace names."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from tritgold.trace_names import TRACE_NAMES


def _peer_names() -> dict[str, str]:
    """transformers' name -> ours, for the outputs of modules and what a quantiser makes of their inputs."""
    names = {}
    for ours, theirs in TRACE_NAMES.items():
        module, _, side = theirs.hf.partition(" ")
        what = ours.rpartition(".")[2]
        if what in ("codes", "scale"):
            names[f"{module}.{what}"] = ours
        elif side == "output" and what not in ("probs", "logits"):  # not the hooks' to record
            names[f"{module}.output"] = ours
    return names


_OURS = _peer_names()
_WHOLE = (".codes", ".scale")


@dataclass(frozen=True, eq=False)
class Peer:
    """peer.safetensors, under our names. rows: those whose float activations were kept."""

    tokens: np.ndarray
    logits: np.ndarray
    rows: np.ndarray
    arrays: dict[str, np.ndarray]

    @classmethod
    def load(cls, path: Path) -> "Peer":
        """Raises KeyError for an array that the table does not know."""
        arrays = load_file(path)
        heads = {name: arrays.pop(name) for name in ("tokens", "logits", "rows")}
        renamed = {}
        for name, array in arrays.items():
            pattern, layer = _pattern(name)
            renamed[_OURS[pattern].replace("{n}", layer)] = array
        return cls(**heads, arrays=renamed)

    @property
    def whole(self) -> dict[str, np.ndarray]:
        """Codes, scales and logits: what all rows were kept of."""
        return {name: array for name, array in self.arrays.items() if name.endswith(_WHOLE)} | {"logits": self.logits}

    @property
    def floats(self) -> dict[str, np.ndarray]:
        """Everything else."""
        return {name: array for name, array in self.arrays.items() if not name.endswith(_WHOLE)}


def recorded(names: Iterable[str]) -> list[str]:
    """Those of our trace names that a peer records."""
    return [name for name in names if _pattern(name)[0] in _OURS.values()]


def _pattern(name: str) -> tuple[str, str]:
    """``layers.12.x`` -> (``layers.{n}.x``, ``12``)."""
    found = re.search(r"(?<=layers\.)\d+", name)
    return (name, "") if found is None else (name[: found.start()] + "{n}" + name[found.end() :], found[0])
