"""What the cheats are made of: an engine that is wrong everywhere, and ways to find the judge around it.

Nothing here touches a process, a file or a name that is not of the run of ``tritgold check`` that judges it.
"""

import os
import sys
from pathlib import Path

import numpy as np
from base_engine import Engine, F

JUDGE = ("tritgold", "tritgold_conformance")


class Wrong(Engine):
    """Layers are skipped: finite, plausible and wrong at every position."""

    def layer(self, n: int, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return x if n else Engine.layer(self, n, x, positions)


def judge_modules() -> list[object]:
    """Modules of the judge that are loaded in this process."""
    return [m for name, m in list(sys.modules.items()) if name.split(".")[0] in JUDGE and m is not None]


def judge_process() -> int | None:
    """The process of the ``tritgold`` command above this one, by its own name; None where there is none."""
    pid = os.getppid()
    for _ in range(3):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            status = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            return None
        if any(Path(os.fsdecode(word)).name == "tritgold" for word in words[:2]):
            return pid
        pid = int(status[1])
    return None


def folders() -> tuple[Path, Path] | None:
    """INPUTS and OUTPUTS of the host's command line (docs/command-protocol.md); None anywhere else."""
    found = [Path(word) for word in sys.argv[-2:]]
    return (found[0], found[1]) if len(found) == 2 and (found[0] / "requests.json").exists() else None


def large(array: object) -> bool:
    return isinstance(array, np.ndarray) and array.dtype == F and array.size > 1000 and array.flags.writeable
