"""An engine's own server, started for one case and ended after it."""

import os
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from scoreboard.environments import Place, UnavailableError
from scoreboard.limited import MARK, end_marked
from scoreboard.manifest import EngineEntry

START_SECONDS = 120.0
LOG_CHARACTERS = 400


@contextmanager
def way_in(
    engine: EngineEntry, place: Place, model: Path, folder: Path, served: bool, more: Mapping[str, str]
) -> Iterator[str]:
    """The engine, in the form of ``--engine``, for as long as the block lasts. folder: for the server's log.

    more: for its environment. Raises UnavailableError with the end of the log if the server does not begin to listen.
    """
    if not served and engine.way:
        yield place.filled(engine.way)
        return
    port, mark, log = _free_port(), uuid.uuid4().hex, folder / "server.log"
    words = [place.filled(word, model=str(model), port=port) for word in engine.server]
    with log.open("wb") as out:
        try:
            process = subprocess.Popen(
                words,
                cwd=folder,  # some write a log there
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **more, MARK: mark},
                start_new_session=True,
            )
        except OSError as error:
            raise UnavailableError(f"its server cannot be started: {type(error).__name__}") from None
        try:
            _await(process, int(port), log)
            yield place.filled(engine.served_way, port=port)
        finally:
            end_marked(mark, process)


def _free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return str(free.getsockname()[1])


def _await(process: "subprocess.Popen[bytes]", port: int, log: Path, seconds: float = START_SECONDS) -> None:
    """Until it listens and no longer answers that it is loading."""
    until = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < until:
        if _listens(port):
            return
        time.sleep(0.2)
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower() or "assert" in line.lower()] or lines
    shown = " | ".join(telling[-3:])[-LOG_CHARACTERS:]
    how = "does not listen" if process.poll() is None else f"ended with {process.returncode}"
    raise UnavailableError(f"its server {how}: {shown}")


def _listens(port: int) -> bool:
    """Whether GET /health is answered with anything but 503, by which llama.cpp's servers say that they are loading."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
        connection.sendall(b"GET /health HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
        answer = connection.recv(64).split()
        return len(answer) > 1 and answer[1] != b"503"
    return False
