"""A built ``llama-server`` of llama.cpp or of a fork, as a child process.

Prompts are token ids. Requests go to ``/completion``, which old and new servers have, and which reports their times.
"""

import contextlib
import http.client
import json
import socket
import subprocess
import tempfile
import time
from collections import deque
from pathlib import Path
from threading import Thread
from typing import Any

from tritgold.errors import EngineError
from tritgold_conformance.bench.json_rpc import wait_or_kill
from tritgold_conformance.bench.memory import peak_memory
from tritgold_conformance.bench.peer_judge import Shown, shown

WAIT = 600.0  # seconds for a model to be loaded, and for one answer
# Most likely tokens, requested for each step: the whole vocabulary of the judged models, because ik_llama.cpp's server
# adds the tokens that it does not show to the sum twice (docs/findings/ik-llama-cpp-probabilities.md).
SHOWN = 1024


class LlamaServer:
    """One server with one file. positions: room for so many, in all slots together. load: seconds until it was
    ready.
    """

    def __init__(self, name: str, program: Path, path: str, positions: int, threads: int, slots: int = 1) -> None:
        """Raises EngineError ``engine-load`` if it ends before it is ready; the hint is the last that it printed."""
        self._name = name
        self.port = _free_port()
        command = [
            str(program.resolve()),
            "-m",
            str(Path(path).resolve()),
            "-c",
            str(positions),
            "-np",
            str(slots),
            "-t",
            str(threads),
            "-tb",
            str(threads),
        ]
        command += ["--host", "127.0.0.1", "--port", str(self.port)]
        self._folder = (
            tempfile.TemporaryDirectory()
        )  # some servers write a log into the folder that they are started in
        self._child = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=self._folder.name
        )
        self._last: deque[bytes] = deque(maxlen=8)
        self._reader = Thread(target=lambda: self._last.extend(self._child.stderr or ()), daemon=True)
        self._reader.start()
        begin = time.perf_counter()
        try:
            self._wait(path)
        except BaseException:
            self.close()
            raise
        self.load = time.perf_counter() - begin

    def complete(self, ids: list[int], steps: int, **asked: Any) -> dict[str, Any]:
        """The answer to a prompt, greedy, with ``steps`` tokens. Raises EngineError ``peer`` if it is not an answer."""
        body = {"prompt": ids, "n_predict": steps, "temperature": 0, "ignore_eos": True, **asked}
        status, answer = self._ask("POST", "/completion", body)
        if status != 200 or not isinstance(answer, dict):
            got = f"status {status}: {answer!r:.200}"
            raise EngineError("refuses a prompt", kind="peer", thing=self._name, got=got)
        return answer

    def next_tokens(self, ids: list[int], steps: int) -> list[Shown]:
        """The generated tokens, and the most likely tokens at each position."""
        return shown(self.complete(ids, steps, n_probs=SHOWN, cache_prompt=False))

    def peak_memory(self) -> int | None:
        """VmHWM of the server, bytes."""
        return peak_memory(self._child.pid)

    def close(self) -> None:
        """End it."""
        self._child.terminate()
        wait_or_kill(self._child, 5)
        self._reader.join(timeout=5)
        if self._child.stderr is not None:
            self._child.stderr.close()
        self._folder.cleanup()

    def _wait(self, path: str) -> None:
        end = time.monotonic() + WAIT
        while time.monotonic() < end:
            if self._child.poll() is not None:
                self._reader.join(timeout=5)
                lines = [line.decode(errors="replace").strip() for line in self._last]
                what = f"refuses the file: ended with {self._child.returncode}"
                hint = " | ".join(line for line in lines if line)[-300:] or "it wrote nothing"
                raise EngineError(what, kind="engine-load", thing=self._name, file=path, hint=hint)
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self._ask("GET", "/health", None)[0] == 200:
                    return
            time.sleep(0.05)
        raise EngineError(f"is not ready after {WAIT:g} s", kind="engine-load", thing=self._name, file=path)

    def _ask(self, method: str, where: str, body: Any) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT)
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, where, data, {"Content-Type": "application/json"})
            with connection.getresponse() as response:
                text = response.read().decode(errors="replace")
            with contextlib.suppress(ValueError):
                return response.status, json.loads(text)
            return response.status, text
        finally:
            connection.close()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
