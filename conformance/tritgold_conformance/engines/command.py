"""A program as an engine: ``--engine 'cmd:./my_engine --flag'``, in any language. docs/command-protocol.md.

It is run once for all that the judge asks, and once more for each question that could not be foreseen. A Python class
is such a program, run by its host.
"""

import contextlib
import hashlib
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tritgold import graph
from tritgold.checkpoint import Checkpoint
from tritgold.errors import EngineError
from tritgold.modes import GOLDEN
from tritgold_conformance.comparing.activation_statistics import MOMENTS
from tritgold_conformance.engines.exchange import ANSWER, Answer, read_answer, write_model, write_requests
from tritgold_conformance.engines.process import run_program
from tritgold_conformance.faults.witnesses import FileCase
from tritgold_conformance.golden.run import GoldenRun
from tritgold_conformance.questions.request_batch import Behaviour, OperationInput, RequestBatch, Session

Logits = np.ndarray | None
Next = tuple[int, dict[int, float]] | None
TO_BEGIN = 60.0  # seconds that a host may take before it makes the class: Python and NumPy from a slow disk
# Beside 16 bytes for each number that a complete answer has: headers, and what a program likes to add.
SPARE = 1 << 24


@dataclass(frozen=True)
class Raised:
    """What was raised, or refused, instead of an answer."""

    message: str


class CommandEngine:
    """A program that reads a folder and writes one.

    words: the command; two folders are added to it. path: of the checkpoint. seconds: for one run, or for one answer of
    a program that tells its progress. opened: makes of the checkpoint, in a folder that goes again, what the program
    reads instead of it. with_weights: whether it reads model.safetensors.

    Raises EngineError, kind ``engine-changed-model``, where the files of the checkpoint are not what they were.
    """

    timed = False  # starting a program is no part of a token's time: it is asked for its own seconds
    clock = "engine"
    mode = GOLDEN.name

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
        self._forget()

    def _forget(self) -> None:
        self._times: dict[tuple[int, ...], dict[str, float]] = {}
        self._known: dict[str, dict[str, np.ndarray] | Raised | None] = {}
        self._traces: dict[tuple[int, ...], dict[str, np.ndarray]] = {}
        self._sessions: list[tuple[Session, Logits]] = []
        self._texts: list[tuple[list[int], list[Next]]] = []
        self._read: list[tuple[str, list[int]]] = []
        self._statistics: dict[tuple[int, ...], dict[str, dict[str, float]]] = {}
        self._files: dict[tuple[str, bytes, tuple[int, ...]], np.ndarray | Raised | None] = {}
        self._behaviours: dict[str, Any] = {}
        self._asked_for: dict[str, bool] = {}  # method -> whether it was answered

    def prepare(self, golden: GoldenRun, more: RequestBatch | None = None) -> None:
        """Ask everything that the judge will ask, and more; what was answered before is forgotten."""
        self._forget()
        self._run(RequestBatch.by_judge(golden, self.offers("step")) + (more or RequestBatch()))

    def offers(self, method: str) -> bool:
        """Whether it has a method: what was asked and not answered it has not; what was not asked, it may have."""
        return self._asked_for.get(method, True)

    def versions(self) -> dict[str, str]:
        """What the program said."""
        return self._versions

    def seconds(self, tokens: list[int]) -> dict[str, float] | None:
        """What the program said of its own time, in the run in which these tokens were judged."""
        return self._times.get(tuple(tokens))

    def reset(self) -> None:
        """The next tokens are the first ones. A session that is repeated is answered by the next one like it."""
        done = [pair for pair in self._sessions if self._read and pair[0].begins_with(self._read)][:1]
        self._sessions = [pair for pair in self._sessions if all(pair is not one for one in done)] + done
        self._read = []

    def prefill(self, tokens: list[int]) -> Logits:
        """Logits at the tokens. None where the program gave none for this session."""
        return self._read_on("prefill", list(tokens))

    def step(self, token: int) -> Logits:
        """Logits after one more token."""
        rows = self._read_on("step", [token])
        return None if rows is None else rows[0]

    def _read_on(self, call: str, tokens: list[int]) -> Logits:
        self._read.append((call, tokens))
        found = next(((s, rows) for s, rows in self._sessions if s.begins_with(self._read)), None)
        if found is None:
            read = [token for _, chunk in self._read for token in chunk]
            lengths = [len(chunk) for _, chunk in self._read]
            session = Session("session", read, lengths, tuple(call for call, _ in self._read))
            self._run(RequestBatch(sessions=[session]))
            found = self._sessions[-1]
        end = sum(len(chunk) for _, chunk in self._read)
        return None if found[1] is None else found[1][end - len(tokens) : end]

    def trace(self, tokens: list[int]) -> dict[str, np.ndarray]:
        """What it shows of its activations; empty where it shows nothing."""
        if tuple(tokens) not in self._traces:
            self._run(RequestBatch(trace=tokens))
        return self._traces[tuple(tokens)]

    def operation(self, name: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        """One operation. None where the program gave no output of it. Raises EngineError where it raised."""
        asked = OperationInput(self._operations[name], inputs)
        if _key(asked) not in self._known:
            self._run(RequestBatch([asked]))
        return self._not_raised(self._known[_key(asked)])

    def statistics(self, tokens: list[int]) -> dict[str, dict[str, float]]:
        """What it says of its activations; empty where it says nothing."""
        if tuple(tokens) not in self._statistics:
            self._run(RequestBatch(statistics=tokens))
        return self._statistics[tuple(tokens)]

    def unpack(self, name: str, data: bytes, shape: tuple[int, int]) -> np.ndarray | None:
        """A packed matrix, read. None where the program gave none. Raises EngineError where it refused the bytes."""
        if (name, data, tuple(shape)) not in self._files:
            self._run(RequestBatch(files=[FileCase(name, data, shape, "")]))
        return self._not_raised(self._files[name, data, tuple(shape)])

    def complete(self, tokens: list[int]) -> Next:
        """The token it would write after these, and log-probabilities."""
        found = next((rows for asked, rows in self._texts if asked[: len(tokens)] == tokens), None)
        if found is None:
            self._run(RequestBatch(text=tokens))
            found = self._texts[-1][1]
        return found[len(tokens) - 1]

    def behaviour(self, method: str, *arguments: Any) -> Any:
        """A loop or text: what one of BEHAVIOURS gave. Raises EngineError where it raised."""
        asked = Behaviour(method, arguments)
        if _call(asked) not in self._behaviours:
            self._run(RequestBatch(behaviours=[asked]))
        return self._not_raised(self._behaviours[_call(asked)])

    def _not_raised(self, found: Any) -> Any:
        if isinstance(found, Raised):
            raise EngineError(found.message, kind="engine-failed", thing=f"engine {self.name}")
        return found

    def _run(self, asked: RequestBatch) -> Answer:
        """Run the program once and keep what it answered."""
        answer = self._answer(asked)
        self.name, self._versions = answer.name or self.name, answer.versions
        arrays = answer.arrays
        raised = {name: Raised(message) for name, message in answer.raised.items()}
        for number, one in enumerate(asked.operations):
            name = f"operation/{number}"
            self._keep(self._known, _key(one), raised.get(name) or _below(arrays, f"{name}/") or None, "operation")
        if asked.trace:
            self._keep(self._traces, tuple(asked.trace), _below(arrays, "trace/"), "trace")
        for session in asked.sessions:
            rows = arrays.get(f"logits/{session.id}")
            self._sessions.append((session, rows))
            for call in session.calls:
                self._asked_for[call] = self._asked_for.get(call, False) or rows is not None
        if asked.statistics:
            given = _moments(_below(arrays, "statistics/"))
            self._keep(self._statistics, tuple(asked.statistics), given, "statistics")
        for number, case in enumerate(asked.files):
            refused = Raised("refused") if str(number) in answer.refused else raised.get(f"files/{number}")
            found = refused or arrays.get(f"files/{number}")
            self._keep(self._files, (case.format, case.data, tuple(case.shape)), found, "unpack")
        if asked.text:
            self._texts.append((asked.text, _next_tokens(asked.text, _below(arrays, "text/"), self._thing())))
            self._asked_for["complete"] = any(self._texts[-1][1])
        for number, behaviour in enumerate(asked.behaviours):
            name = f"behaviours/{number}"
            answered = [raised.get(name), arrays.get(name), answer.behaviours.get(str(number))]
            found = next((one for one in answered if one is not None), None)
            self._keep(self._behaviours, _call(behaviour), found, behaviour.method)
        for tokens in [session.tokens for session in asked.sessions] + [asked.speed]:
            if answer.seconds:
                self._times[tuple(tokens)] = answer.seconds
        return answer

    def _keep(self, kept: dict[Any, Any], key: Any, found: Any, method: str) -> None:
        """What was answered, and that it was: an empty answer is none."""
        kept[key] = found
        is_there = found is not None and not (isinstance(found, dict) and not found)
        self._asked_for[method] = self._asked_for.get(method, False) or is_there

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
        run_program(words, outputs, self._seconds, size, scratch)

    def _thing(self) -> str:
        return f"engine {shlex.join(self._words)}"


class HostedEngine(CommandEngine):
    """A Python class in its host, which tells its progress: the time limit is for one call.

    It is opened here once, to learn whether it can be made, by which arithmetic it means to compute, and what it has.
    """

    def __init__(self, spec: str, checkpoint: Checkpoint, path: Path, seconds: float) -> None:
        words = [sys.executable, "-m", "tritgold_conformance.engines.host", spec]
        super().__init__(words, checkpoint, path, seconds, with_weights=False)
        self._spec = spec
        about = self._run(RequestBatch())
        self.mode, self.clock, self._methods = about.mode, "program", about.methods

    def offers(self, method: str) -> bool:
        """Whether the class has the method."""
        return method in self._methods or method in ("reset", "seconds")

    def seconds(self, tokens: list[int]) -> dict[str, float] | None:
        """By the clock of its host, in a run of its own: engines that do not conform are not timed."""
        if tuple(tokens) not in self._times:
            self.clock = self._run(RequestBatch(speed=tokens)).clock or self.clock
        return self._times.get(tuple(tokens))

    def _execute(self, words: list[str], outputs: Path, size: int, scratch: Path) -> None:
        path = os.pathsep.join([folder for folder in sys.path if folder])
        doing = run_program(words, outputs, self._seconds, size, scratch, {"PYTHONPATH": path}, TO_BEGIN, echo=True)
        if not (outputs / ANSWER).exists():
            what = f"it ended its process with exit code 0 in {doing}"
            raise EngineError(what, kind="engine-crash", thing=self._thing())

    def _thing(self) -> str:
        return f"engine {self._spec}"


def open_command(command: str, checkpoint: Checkpoint, path: Path, seconds: float) -> CommandEngine:
    """The engine of ``cmd:<command>``, split as a shell splits it. Nothing is run yet.

    Raises EngineError for a command that is none.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise EngineError(f"is no command: {error}", kind="engine-unknown", thing=f"cmd:{command}") from None
    if not words:
        raise EngineError("names no program", kind="engine-unknown", thing="cmd:", expected="cmd:./my_engine --flag")
    return CommandEngine(words, checkpoint, path, seconds)


@contextlib.contextmanager
def _work_folder() -> Iterator[Path]:
    """A folder that is gone afterwards, whatever a program did to the permissions in it."""
    with tempfile.TemporaryDirectory(prefix="tritgold-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _key(asked: OperationInput) -> str:
    digest = hashlib.sha256(asked.operation.name.encode())
    for role, array in sorted(asked.inputs.items()):
        digest.update(f"{role} {array.dtype.str} {array.shape}\n".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _call(behaviour: Behaviour) -> str:
    return json.dumps([behaviour.method, behaviour.arguments])


def _below(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _moments(arrays: dict[str, np.ndarray]) -> dict[str, dict[str, float]]:
    """``<name>`` [6], of all MOMENTS, or ``<name>/<moment>`` [], of some."""
    found: dict[str, dict[str, float]] = {}
    for name, array in arrays.items():
        if array.shape == (len(MOMENTS),):
            found[name] = dict(zip(MOMENTS, array.tolist(), strict=True))
        elif array.size == 1:
            whole, _, moment = name.rpartition("/")
            found.setdefault(whole, {})[moment] = array.item()
        else:
            found[name] = {}
    return found


def _stamps(path: Path) -> list[tuple[str, int, int, int]]:
    """Of each file of a checkpoint what cannot be written without being changed, and cannot be put back."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    stats = [(str(file), file.stat()) for file in files if file.is_file()]
    return [(name, found.st_ino, found.st_size, found.st_ctime_ns) for name, found in stats]


def _next_tokens(tokens: list[int], given: dict[str, Any], thing: str) -> list[Next]:
    """text/token [tokens]; text/ids and text/logprobs [tokens, n], in which ids below 0 stand for nothing."""
    if "token" not in given:
        return [None] * len(tokens)
    chosen, count = given["token"], len(tokens)
    ids, values = (given.get(name, np.zeros((count, 0))) for name in ("ids", "logprobs"))
    shaped = ids.ndim == 2 and ids.shape == values.shape and len(ids) == count
    if not shaped or chosen.dtype.kind not in "iu" or (ids.size and ids.dtype.kind not in "iu"):
        what = "text/ids and text/logprobs are [tokens, n], of one shape; ids and text/token are integers"
        raise EngineError(what, kind="engine-output", thing=thing, hint="docs/command-protocol.md")
    found: list[Next] = []
    for token, row, logprobs in zip(chosen, ids, values, strict=True):
        pairs = [(int(i), float(value)) for i, value in zip(row, logprobs, strict=True) if i >= 0]
        if len(dict(pairs)) < len(pairs):
            raise EngineError("text/ids shows a token twice", kind="engine-output", thing=thing)
        found.append((int(token), dict(pairs)) if token >= 0 else None)
    return found
