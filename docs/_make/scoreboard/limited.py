"""A command within limits of time and memory; no process of it is left when it ends."""

import os
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Literal, NamedTuple

MARK = "TRITGOLD_SCOREBOARD_RUN"  # in the environment of all processes that the command starts
POLL_SECONDS = 0.2
STDERR_BYTES = 4000
STDOUT_BYTES = 64 << 20  # a report of the judge is a few MB
PAGE = os.sysconf("SC_PAGE_SIZE")
Ending = Literal["ended", "time", "memory", "output"]


class Ended(NamedTuple):
    """how: what ended it. status: its exit status; None if it was killed. mib: most resident memory, all processes."""

    how: Ending
    status: int | None
    stdout: bytes
    stderr: str
    seconds: float
    mib: float


def run_limited(words: Sequence[str], environment: Mapping[str, str], seconds: float, mib: float) -> Ended:
    """Run a command until it ends or a limit is passed, then kill its process group and, on Linux, all processes that
    have its mark in their environment: those that left its group and session too.

    environment: beside that of this process. Raises OSError if the command cannot be started.
    """
    mark, most, how = uuid.uuid4().hex, 0.0, None
    began = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            list(words),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env={**os.environ, **environment, MARK: mark},
            start_new_session=True,
        )
        try:
            while how is None and process.poll() is None:
                most = max(most, sum(map(_resident_mib, marked(mark))))
                how = _passed(time.monotonic() - began, seconds, most, mib, (out, err))
                with suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_SECONDS)
        finally:
            end_marked(mark, process)
        status = process.returncode if how is None else None
        text = _tail(err, STDERR_BYTES).decode(errors="replace")
        return Ended(how or "ended", status, _tail(out, STDOUT_BYTES), text, time.monotonic() - began, most)


def _passed(
    seconds: float, most_seconds: float, mib: float, most_mib: float, files: Sequence[IO[bytes]]
) -> Ending | None:
    if mib > most_mib:
        return "memory"
    if sum(os.fstat(file.fileno()).st_size for file in files) > STDOUT_BYTES:
        return "output"
    return "time" if seconds > most_seconds else None


def marked(mark: str) -> list[int]:
    """The processes with this mark in their environment; none where there is no /proc."""
    entry, found = f"{MARK}={mark}".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if entry in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return found


def end_marked(mark: str, process: "subprocess.Popen[bytes]") -> None:
    """Kill the process's group and all processes with the mark, until none is left."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for _ in range(20):
        found = marked(mark)
        for number in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(number, signal.SIGKILL)
        if not found:
            return
        time.sleep(0.05)


def _resident_mib(process: int) -> float:
    with suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * PAGE / 2**20
    return 0.0


def _tail(file: IO[bytes], size: int) -> bytes:
    """The last bytes of an open file."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - size))
    return file.read()
