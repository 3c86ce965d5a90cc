"""Programs as engines: ``--engine 'cmd:./my_engine --flag'``, in any language, and ``--engine module:Class``.

The protocol is docs/command-protocol.md; a Python class is answered for by a program, its host. A program is run once
for all questions of the judge, and once more for each question that was not known before.
"""

import contextlib
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tritgold import graph
from tritgold.checkpoint import Checkpoint
from tritgold.errors import EngineError
from tritgold.modes import GOLDEN
from tritgold_conformance.contract.session import Session
from tritgold_conformance.engines import answers
from tritgold_conformance.engines.exchange import ANSWER, Answer, read_answer, write_model, write_requests
from tritgold_conformance.engines.process import run_program
from tritgold_conformance.faults.witnesses import FileCase
from tritgold_conformance.policies import FLOAT32
from tritgold_conformance.questions.evidence import Completion, Raised
from tritgold_conformance.questions.request_batch import Behaviour, OperationInput, RequestBatch

# Bytes in addition to 16 for each number of a complete answer: for headers and other files of the program.
SPARE = 1 << 24
TO_BEGIN = 60.0  # seconds until the host makes the instance: start of Python and import of NumPy from a slow disk


class CommandEngine:
    """A program that reads a folder and writes a folder.

    words: the command; two folders are appended to it. path: the checkpoint's path. seconds: limit for one run, or for
    one answer if the program reports its progress. opened: makes, in the given temporary folder, a file or folder for
    the program to read instead of the checkpoint. with_weights: whether the program reads model.safetensors.

    Raises EngineError, kind ``engine-changed-model``, if the files of the checkpoint changed.
    """

    timed = False  # the start of a program is not part of a token's time: the program reports its own seconds
    clock = "engine"
    mode, policy = GOLDEN.name, FLOAT32.name

    def __init__(
        self,
        words: list[str],
        checkpoint: Checkpoint,
        path: Path,
        seconds: float,
        opened: Callable[[Path], Path] | None = None,
        with_weights: bool = True,
    ) -> None:
        self.name = Path(words[0]).name if words else ""
        self._words, self._checkpoint, self._path, self._seconds = words, checkpoint, path, seconds
        self._opened, self._with_weights = opened, with_weights
        self._operations = {operation.name: operation for operation in graph.operations(checkpoint.config)}
        self._files_before = _stamps(path)
        self._versions: dict[str, str] = {}
        self.forget()

    def forget(self) -> None:
        """Delete all earlier answers."""
        self._known: dict[answers.Key, Any] = {}
        self._answered: dict[str, bool] = {}  # method -> whether it answered any question

    def prepare(self, asked: RequestBatch) -> None:
        """Ask all questions of the batch in one run."""
        self._run(asked)

    def offers(self, method: str) -> bool:
        """False if the method was asked and not answered; True if it was not asked yet (except ``twice``)."""
        return self._answered.get(method, method != "twice")

    def versions(self) -> dict[str, str]:
        """The versions that the program reported."""
        return self._versions

    def seconds(self, tokens: list[int]) -> dict[str, float] | None:
        """The seconds that the program reported in the run with these tokens; None if it reported none."""
        return self._known.get(answers.of_tokens("seconds", tokens))

    def session(self, asked: Session) -> np.ndarray | None:
        """Logits [tokens, vocab]. None if the program gave none for this session."""
        return self._get(answers.of_session(asked), RequestBatch(sessions=[asked]))

    def trace(self, tokens: list[int]) -> dict[str, np.ndarray]:
        """Its activations by trace name; empty if it gave none."""
        return self._get(answers.of_tokens("trace", tokens), RequestBatch(trace=tokens))

    def operation(self, name: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        """Outputs by role of one operation. None if the program gave none. Raises EngineError if the program raised."""
        asked = OperationInput(self._operations[name], inputs)
        return self._get(answers.of_operation(asked), RequestBatch([asked]))

    def statistics(self, tokens: list[int]) -> dict[str, dict[str, float]]:
        """Moments of its activations by trace name; empty if it gave none."""
        return self._get(answers.of_tokens("statistics", tokens), RequestBatch(statistics=tokens))

    def unpack(self, name: str, data: bytes, shape: tuple[int, int]) -> np.ndarray | None:
        """float [out, in], trit x scale. None if the program gave none. Raises EngineError if it refused the bytes."""
        asked = FileCase(name, data, shape, "")
        return self._get(answers.of_file(asked), RequestBatch(files=[asked]))

    def complete(self, tokens: list[int]) -> Completion | None:
        """The token that it would generate after these, and log-probabilities; None if the program gave none."""
        return self._get(answers.of_tokens("complete", tokens), RequestBatch(text=tokens))

    def behaviour(self, method: str, *arguments: Any) -> Any:
        """The answer to one of BEHAVIOURS (a loop or text). Raises EngineError if the program raised."""
        asked = Behaviour(method, arguments)
        return self._get(answers.of_behaviour(asked), RequestBatch(behaviours=[asked]))

    def _get(self, key: answers.Key, asked: RequestBatch) -> Any:
        """The answer to a question; the program is run again if the question was not asked before."""
        if key not in self._known:
            self._run(asked)
        found = self._known[key]
        if isinstance(found, Raised):
            raise EngineError(found.message, kind="engine-failed", thing=f"engine {self.name}")
        return found

    def _run(self, asked: RequestBatch) -> Answer:
        """Run the program once and store its answers."""
        answer = self._answer(asked)
        self.name, self._versions = answer.name or self.name, answer.versions
        self.policy = answer.policy
        for key, methods, found in answers.by_question(asked, answer, self._thing()):
            self._known[key] = found
            is_there = found is not None and not (isinstance(found, dict) and not found)
            for method in methods:
                self._answered[method] = self._answered.get(method, False) or is_there
        return answer

    def _answer(self, asked: RequestBatch) -> Answer:
        with _work_folder() as work:
            inputs, outputs, scratch = (work / name for name in ("inputs", "outputs", "scratch"))
            for folder in (inputs, outputs, scratch):
                folder.mkdir()
            path = self._path if self._opened is None else self._opened(scratch)
            write_model(inputs, self._checkpoint, path, self._with_weights)
            write_requests(inputs, asked)
            config = self._checkpoint.config
            words = [*self._words, str(inputs), str(outputs)]
            self._execute(words, outputs, SPARE + 16 * asked.elements(config), scratch)
            if _stamps(self._path) != self._files_before:
                what, hint = "the files of the checkpoint changed while it ran", "an engine may only read them"
                raise EngineError(what, kind="engine-changed-model", thing=self._thing(), got=self._path, hint=hint)
            return read_answer(outputs, dict(asked.shapes(config)), self._thing())

    def _execute(self, words: list[str], outputs: Path, size: int, scratch: Path) -> None:
        """Run the command. outputs: its output folder, at most ``size`` bytes. scratch: its TMPDIR."""
        run_program(words, outputs, self._seconds, size, scratch)

    def _thing(self) -> str:
        return f"engine {shlex.join(self._words)}"


class HostedEngine(CommandEngine):
    """A Python class in its host, which reports its progress, so that the time limit is for one call.

    The host is run once at the start, to find out whether an instance can be made, its arithmetic mode and its methods.
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
        """By the clock of the host, in a separate run, because only engines that conform are timed."""
        if super().seconds(tokens) is None:
            answer = self._run(RequestBatch(speed=tokens))
            self.clock, self.timed_rows = answer.clock or self.clock, answers.below(answer.arrays, "timed/")
        return super().seconds(tokens)

    def _execute(self, words: list[str], outputs: Path, size: int, scratch: Path) -> None:
        path = os.pathsep.join([folder for folder in sys.path if folder])
        doing = run_program(words, outputs, self._seconds, size, scratch, {"PYTHONPATH": path}, TO_BEGIN, echo=True)
        if not (outputs / ANSWER).exists():
            what = f"it ended its process with exit code 0 in {doing}"
            raise EngineError(what, kind="engine-crash", thing=self._thing())

    def _thing(self) -> str:
        return f"engine {self._spec}"


def open_command(command: str, checkpoint: Checkpoint, path: Path, seconds: float) -> CommandEngine:
    """The engine of ``cmd:<command>``; the command is split like in a shell. The program is not run yet.

    Raises EngineError, kind ``engine-unknown``, if the command cannot be split or is empty.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise EngineError(f"is not a command: {error}", kind="engine-unknown", thing=f"cmd:{command}") from None
    if not words:
        raise EngineError("names no program", kind="engine-unknown", thing="cmd:", expected="cmd:./my_engine --flag")
    return CommandEngine(words, checkpoint, path, seconds)


@contextlib.contextmanager
def _work_folder() -> Iterator[Path]:
    """A temporary folder, deleted afterwards even if a program changed permissions in it."""
    with tempfile.TemporaryDirectory(prefix="tritgold-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _stamps(path: Path) -> list[tuple[str, int, int, int]]:
    """Name, inode, size and change time of each file of a checkpoint: the change time cannot be set back."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    stats = [(str(file), file.stat()) for file in files if file.is_file()]
    return [(name, found.st_ino, found.st_size, found.st_ctime_ns) for name, found in stats]
