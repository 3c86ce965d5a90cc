"""Plan: everything about the result decided and checked, and only the payloads still to be made."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tritgold.checkpoint import Checkpoint
from tritgold.formats.container import PlannedTensor


@dataclass
class Plan(ABC):
    """scales: of each linear by our name, [] or [out, 1], as a reader must find it. linear_bytes: of all packed ones.

    other_type: linears of another type than the target's, by the name they have in the file.
    """

    tensors: list[PlannedTensor] = field(default_factory=list)
    scales: dict[str, np.ndarray | np.float32] = field(default_factory=dict)
    linear_bytes: int = 0
    other_type: dict[str, str] = field(default_factory=dict)

    @abstractmethod
    def write(self, path: Path) -> None:
        """Write everything at ``path``, which is not visible yet."""

    def opened_by(self, path: Path) -> Path:
        """What to open of what was written at ``path``: that, or its first shard."""
        return path

    def differs(self, written: Checkpoint) -> str | None:
        """What the container says otherwise than planned, beside its tensors; None where nothing."""
        return None
