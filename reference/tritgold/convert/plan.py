"""Plan: the result of a conversion, decided and checked; only the bytes of the tensors are made later."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tritgold.checkpoint import Checkpoint
from tritgold.formats.container import PlannedTensor


@dataclass
class Plan(ABC):
    """The plan of one target.

    tensors: to be written, in order. scales: of each linear by tritgold's name, [] or [out, 1], as a reader must read
    it. linear_bytes: of all packed linears. other_type: linears of another type than the target's, by their names in
    the file.
    """

    tensors: list[PlannedTensor] = field(default_factory=list)
    scales: dict[str, np.ndarray | np.float32] = field(default_factory=dict)
    linear_bytes: int = 0
    other_type: dict[str, str] = field(default_factory=dict)

    @abstractmethod
    def write(self, path: Path) -> None:
        """Write everything to ``path``, which is temporary."""

    def opened_by(self, path: Path) -> Path:
        """The path to open after writing to ``path``: the same, or that of the first shard."""
        return path

    def differs(self, written: Checkpoint) -> str | None:
        """What differs from the plan in the opened result, apart from tensors; None if nothing."""
        return None
