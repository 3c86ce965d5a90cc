"""Calls to another process: a request as one line of JSON, then an answer as one line. While one works, one waits.

The child's standard output carries answers alone; what libraries print there goes to standard error.
"""

import contextlib
import json
import os
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Thread
from typing import IO, Any

from tritgold.errors import EngineError, MissingDependencyError, TritgoldError

Handler = Callable[..., Any]
KEPT = 30  # last lines of a child's standard error, for the message if it ends by itself


def serve(handlers: dict[str, Handler]) -> None:
    """Answer requests until standard input ends. ``{"do": name, ...}`` calls handlers[name](**rest)."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # from here on, everything printed goes to standard error
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            with contextlib.redirect_stdout(sys.stderr):
                answer = {"ok": handlers[asked.pop("do")](**asked)}
        except TritgoldError as error:
            answer = {"error": error.as_dict()}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": {"error": type(error).__name__, "message": f"{error} {_place(error)}".strip()}}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _place(error: BaseException) -> str:
    """(file:line) of the innermost frame in tritgold; empty if there is none."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "tritgold" in f.filename]
    return f"({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""


def wait_or_kill(child: "subprocess.Popen[Any]", seconds: float) -> None:
    """Wait until a process has ended; after so many seconds kill it."""
    try:
        child.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


class Worker:
    """The parent's side: a child process that runs ``serve``.

    ``ask`` raises EngineError ``worker`` if the child ends or its answer is not JSON. What its handler raised is raised
    here as EngineError; a MissingDependencyError keeps its type.
    """

    def __init__(self, name: str, command: Sequence[str], environment: dict[str, str]) -> None:
        self.name = name
        self._child = subprocess.Popen(
            [*command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            encoding="utf-8", errors="backslashreplace", env=environment,
        )  # fmt: skip
        assert self._child.stderr is not None
        self._last: deque[str] = deque(maxlen=KEPT)
        # Read by a thread: a full pipe would stop the child.
        self._reader = Thread(target=self._drain, args=(self._child.stderr,), daemon=True)
        self._reader.start()

    def ask(self, do: str, **what: Any) -> Any:
        """Send a request and wait for the answer."""
        stdin, stdout = self._child.stdin, self._child.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps({"do": do, **what}) + "\n")
            stdin.flush()
            line = stdout.readline()
            answer = json.loads(line)
        except (OSError, json.JSONDecodeError) as error:
            raise self._ended(do) from error
        if "error" in answer:
            raise self._refused(answer["error"])
        return answer["ok"]

    def close(self) -> None:
        """End the child: its input is closed; if it has not ended 10 seconds later, it is killed."""
        with contextlib.suppress(OSError):
            if self._child.stdin is not None:
                self._child.stdin.close()
        wait_or_kill(self._child, 10)
        self._reader.join(timeout=5)
        for pipe in (self._child.stdout, self._child.stderr):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _drain(self, stream: IO[str]) -> None:
        with contextlib.suppress(ValueError, OSError):  # closed
            self._last.extend(line.rstrip() for line in stream)

    def _ended(self, do: str) -> EngineError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(timeout=5)
        self._reader.join(timeout=5)
        shown = " | ".join([line for line in self._last if line.strip()][-3:])
        return EngineError(
            f"its process ended during {do!r} with {self._child.returncode}",
            kind="worker",
            thing=self.name,
            hint=shown or "it wrote nothing; out of memory, perhaps",
        )

    def _refused(self, said: dict[str, Any]) -> TritgoldError:
        kinds: dict[str, type[TritgoldError]] = {"MissingDependencyError": MissingDependencyError}
        error = kinds.get(said["error"], EngineError)
        message = said["message"] if said.get("kind") else f"{said['error']}: {said['message']}"
        fields = {name: said.get(name) for name in ("file", "got", "expected", "hint")}
        return error(message, kind=said.get("kind") or "engine-failed", thing=said.get("thing") or self.name, **fields)
