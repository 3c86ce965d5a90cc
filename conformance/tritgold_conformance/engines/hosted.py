"""A Python class as an engine: ``--engine module:Class``, a program whose other half is its host."""

import os
import sys
from pathlib import Path

import numpy as np

from tritgold.checkpoint import Checkpoint
from tritgold.errors import EngineError
from tritgold_conformance.engines.answers import below
from tritgold_conformance.engines.command import CommandEngine
from tritgold_conformance.engines.exchange import ANSWER
from tritgold_conformance.engines.process import run_program
from tritgold_conformance.questions.request_batch import RequestBatch

TO_BEGIN = 60.0  # seconds that a host may take before it makes the class: Python and NumPy from a slow disk


class HostedEngine(CommandEngine):
    """A Python class in its host, which tells its progress: the time limit is for one call.

    It is opened here once, to learn whether it can be made, by which arithmetic it means to compute, and what it has.
    """

    def __init__(self, spec: str, checkpoint: Checkpoint, path: Path, seconds: float) -> None:
        words = [sys.executable, "-m", "tritgold_conformance.engines.host", spec]
        super().__init__(words, checkpoint, path, seconds, with_weights=False)
        self._spec = spec
        about = self._run(RequestBatch())
        self.timed_rows: dict[str, np.ndarray] = {}
        self.mode, self.policy, self.clock, self._methods = about.mode, about.policy, "program", about.methods

    def offers(self, method: str) -> bool:
        """Whether the class has the method."""
        return method in self._methods or method in ("reset", "seconds", "twice")

    def seconds(self, tokens: list[int]) -> dict[str, float] | None:
        """By the clock of its host, in a run of its own: engines that do not conform are not timed."""
        if super().seconds(tokens) is None:
            answer = self._run(RequestBatch(speed=tokens))
            self.clock, self.timed_rows = answer.clock or self.clock, below(answer.arrays, "timed/")
        return super().seconds(tokens)

    def _execute(self, words: list[str], outputs: Path, size: int, scratch: Path) -> None:
        path = os.pathsep.join([folder for folder in sys.path if folder])
        doing = run_program(words, outputs, self._seconds, size, scratch, {"PYTHONPATH": path}, TO_BEGIN, echo=True)
        if not (outputs / ANSWER).exists():
            what = f"it ended its process with exit code 0 in {doing}"
            raise EngineError(what, kind="engine-crash", thing=self._thing())

    def _thing(self) -> str:
        return f"engine {self._spec}"
