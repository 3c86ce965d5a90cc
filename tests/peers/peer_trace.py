"""peer.safetensors, read and renamed: transformers' module names become tritgold's trace names."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from tritgold_conformance.engines.peers import is_recorded, our_names

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
        ours = our_names(arrays)
        return cls(**heads, arrays={ours[name]: array for name, array in arrays.items()})

    @property
    def whole(self) -> dict[str, np.ndarray]:
        """Codes, scales and logits: what all rows were kept of."""
        return {name: array for name, array in self.arrays.items() if name.endswith(_WHOLE)} | {"logits": self.logits}

    @property
    def floats(self) -> dict[str, np.ndarray]:
        """Everything else."""
        return {name: array for name, array in self.arrays.items() if not name.endswith(_WHOLE)}


def recorded(names: Iterable[str]) -> list[str]:
    """Those of our trace names that a peer records beside its logits."""
    return [name for name in names if is_recorded(name) and name != "logits"]
