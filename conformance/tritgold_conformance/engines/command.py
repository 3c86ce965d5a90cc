"""A program as an engine: ``--engine 'cmd:./my_engine --flag'``, in any language. docs/command-protocol.md.

It is run once for all that the judge asks, and once more for each question that nobody could foresee.
"""

import contextlib
import hashlib
import shlex
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tritgold import graph
from tritgold.checkpoint import Checkpoint
from tritgold.errors import EngineError
from tritgold_conformance.comparing.activation_statistics import MOMENTS
from tritgold_conformance.engines.exchange import Answer, read_answer, write_model, write_requests
from tritgold_conformance.engines.process import run_program
from tritgold_conformance.faults.witnesses import FileCase
from tritgold_conformance.golden.run import GoldenRun
from tritgold_conformance.questions.request_batch import Asked, AskedOperation, Session

Logits = np.ndarray | None
Next = tuple[int, dict[int, float]] | None
# Beside 16 bytes for each number that a complete answer has: headers, and what a program likes to add.
SPARE = 1 << 24


class CommandEngine:
    """A program that reads a folder and writes one.

    words: the command; two folders are added to it. path: of the checkpoint. seconds: for one run. opened: makes of
    the checkpoint, in a folder that goes again, what the program reads instead of it.
    """

    timed = False  # starting a program is no part of a token's time: it is asked for its own seconds
    clock = "engine"

    def __init__(
        self,
        words: list[str],
        checkpoint: Checkpoint,
        path: Path,
        seconds: float,
        opened: Callable[[Path], Path] | None = None,
    ) -> None:
        self.name = Path(words[0]).name if words else ""
        self._words, self._checkpoint, self._path, self._seconds = words, checkpoint, path, seconds
        self._opened = opened
        self._operations = {operation.name: operation for operation in graph.operations(checkpoint.config)}
        self._versions: dict[str, str] = {}
        self._times: dict[str, float] = {}
        self._timed_tokens: list[int] = []
        self._known: dict[str, dict[str, np.ndarray] | None] = {}
        self._traces: dict[tuple[int, ...], dict[str, np.ndarray]] = {}
        self._sessions: list[tuple[Session, Logits]] = []
        self._texts: list[tuple[list[int], list[Next]]] = []
        self._read: list[list[int]] = []
        self._statistics: dict[tuple[int, ...], dict[str, np.ndarray]] = {}
        self._files: dict[tuple[str, bytes], np.ndarray | str | None] = {}

    def prepare(self, golden: GoldenRun) -> None:
        """Ask everything that the judge will ask; what was answered before is forgotten."""
        self._known, self._traces, self._sessions, self._texts, self._timed_tokens = {}, {}, [], [], []
        self._statistics, self._files = {}, {}
        self._run(Asked.by_judge(golden))
        self._timed_tokens = list(golden.tokens)

    def versions(self) -> dict[str, str]:
        """What the program said."""
        return self._versions

    def seconds(self, tokens: list[int]) -> dict[str, float] | None:
        """What the program said of its own time, in the run that was judged."""
        return self._times if tokens == self._timed_tokens else None

    def reset(self) -> None:
        """The next tokens are the first ones."""
        self._read = []

    def prefill(self, tokens: list[int]) -> Logits:
        """Logits at the tokens. None where the program gave none for this session."""
        self._read.append(list(tokens))
        found = next(((s, rows) for s, rows in self._sessions if s.begins_with(self._read)), None)
        if found is None:
            read = [token for chunk in self._read for token in chunk]
            session = Session("session", read, [len(chunk) for chunk in self._read])
            self._run(Asked(sessions=[session]))
            found = self._sessions[-1]
        end = sum(map(len, self._read))
        return None if found[1] is None else found[1][end - len(tokens) : end]

    def step(self, token: int) -> Logits:
        """Logits after one more token."""
        rows = self.prefill([token])
        return None if rows is None else rows[0]

    def trace(self, tokens: list[int]) -> dict[str, np.ndarray]:
        """What it shows of its activations; empty where it shows nothing."""
        if tuple(tokens) not in self._traces:
            self._run(Asked(trace=tokens))
        return self._traces[tuple(tokens)]

    def operation(self, name: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        """One operation. None where the program gave no output of it."""
        asked = AskedOperation(self._operations[name], inputs)
        if _key(asked) not in self._known:
            self._run(Asked([asked]))
        return self._known[_key(asked)]

    def statistics(self, tokens: list[int]) -> dict[str, dict[str, float]]:
        """What it says of its activations; empty where it says nothing."""
        if tuple(tokens) not in self._statistics:
            self._run(Asked(statistics=tokens))
        given = self._statistics[tuple(tokens)].items()
        return {name: dict(zip(MOMENTS, of.tolist(), strict=True)) for name, of in given}

    def unpack(self, name: str, data: bytes, shape: tuple[int, int]) -> np.ndarray | None:
        """A packed matrix, read. None where the program gave none. Raises ValueError where it refused the bytes."""
        if (name, data) not in self._files:
            self._run(Asked(files=[FileCase(name, data, shape, "")]))
        found = self._files[name, data]
        if isinstance(found, str):
            raise ValueError(found)
        return found

    def complete(self, tokens: list[int]) -> Next:
        """The token it would write behind these, and log-probabilities."""
        found = next((rows for asked, rows in self._texts if asked[: len(tokens)] == tokens), None)
        if found is None:
            self._run(Asked(text=tokens))
            found = self._texts[-1][1]
        return found[len(tokens) - 1]

    def _run(self, asked: Asked) -> None:
        """Run the program once and keep what it answered."""
        answer = self._answer(asked)
        self.name, self._versions, self._times = answer.name or self.name, answer.versions, answer.seconds
        arrays = answer.arrays
        for number, one in enumerate(asked.operations):
            self._known[_key(one)] = _below(arrays, f"operation/{number}/") or None
        if asked.trace:
            self._traces[tuple(asked.trace)] = _below(arrays, "trace/")
        self._sessions += [(session, arrays.get(f"logits/{session.id}")) for session in asked.sessions]
        if asked.statistics:
            self._statistics[tuple(asked.statistics)] = _below(arrays, "statistics/")
        for number, case in enumerate(asked.files):
            refused = str(number) in answer.refused
            self._files[case.format, case.data] = "refused" if refused else arrays.get(f"files/{number}")
        if asked.text:
            self._texts.append((asked.text, _next_tokens(asked.text, _below(arrays, "text/"), self._thing())))

    def _answer(self, asked: Asked) -> Answer:
        with _work_folder() as work:
            inputs, outputs, scratch = (work / name for name in ("inputs", "outputs", "scratch"))
            for folder in (inputs, outputs, scratch):
                folder.mkdir()
            path = self._path if self._opened is None else self._opened(scratch)
            write_model(inputs, self._checkpoint, path)
            write_requests(inputs, asked)
            config = self._checkpoint.config
            words = [*self._words, str(inputs), str(outputs)]
            run_program(words, outputs, self._seconds, SPARE + 16 * asked.elements(config), scratch)
            return read_answer(outputs, dict(asked.shapes(config)), self._thing())

    def _thing(self) -> str:
        return f"engine {shlex.join(self._words)}"


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


def _key(asked: AskedOperation) -> str:
    digest = hashlib.sha256(asked.operation.name.encode())
    for role, array in sorted(asked.inputs.items()):
        digest.update(f"{role} {array.dtype.str} {array.shape}\n".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _below(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


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
