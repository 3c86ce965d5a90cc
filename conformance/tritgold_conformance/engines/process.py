"""A program of somebody else's, run within limits: time, bytes of output, and nothing of it left behind.

It is held by its process group and, on Linux, by a mark in its environment, which children that leave the group carry
too. That is tidiness, not a sandbox: a program that means harm belongs in a container.
"""

import os
import selectors
import shlex
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tritgold.errors import EngineError
from tritgold.formats.untrusted_text import printable
from tritgold_conformance.contract.guard import MARK, kill_marked

POLL = 0.05  # seconds between looks at the clock and at the folder
TAIL = 4000  # bytes of what it printed that an error quotes
MAX_FILES = 1000  # in the output folder; two are wanted
SCRATCH = 1 << 30  # bytes that a program may write beside its answer, into its TMPDIR for example
SCRATCH_FILES = 100_000


def run_program(words: list[str], outputs: Path, seconds: float, size: int, scratch: Path) -> None:
    """Run a program to its end. What it prints is kept for the error alone.

    outputs: its folder, which may grow to ``size`` bytes; what lies beside it, by SCRATCH more. scratch: its TMPDIR.
    Raises EngineError where it cannot be
    started (``engine-load``), ends with anything but 0 (``engine-crash``), takes longer than ``seconds``
    (``engine-timeout``) or writes more than ``size`` (``engine-output-size``). No process of it is left in any case.
    """
    thing, work = f"engine {shlex.join(words[:-2])}", outputs.parent
    # Beside it lie the inputs, which may be large, and TMPDIR.
    limits = ((outputs, size, MAX_FILES), (work, folder_size(work, SCRATCH_FILES) + size + SCRATCH, SCRATCH_FILES))
    with _started(words, scratch, thing) as process, selectors.DefaultSelector() as reading:
        assert process.stdout is not None
        reading.register(process.stdout, selectors.EVENT_READ)
        deadline, tail, is_open = time.monotonic() + seconds, b"", True
        while True:
            if is_open and reading.select(POLL):
                chunk = os.read(process.stdout.fileno(), 1 << 16)
                tail, is_open = (tail + chunk)[-TAIL:], bool(chunk)
                ended = not is_open and process.poll() is not None
            else:
                ended = process.poll() is not None  # a child of it may hold the pipe open for ever
                if not is_open and not ended:
                    time.sleep(POLL)
            for folder, most, files in limits:
                if folder_size(folder, files) > most:
                    what, hint = f"wrote too much into its {_place(folder, outputs)}", _said(tail)
                    raise EngineError(what, kind="engine-output-size", thing=thing, expected=f"{most} bytes", hint=hint)
            if ended:
                break
            if time.monotonic() > deadline:
                hint = "--timeout allows more" + _said(tail, "; ")
                raise EngineError(f"took longer than {seconds:g} s", kind="engine-timeout", thing=thing, hint=hint)
    if process.returncode:
        how = f"exit code {process.returncode}"
        if process.returncode < 0:
            with suppress(ValueError):
                how = f"signal {signal.Signals(-process.returncode).name}"
        raise EngineError(f"failed with {how}", kind="engine-crash", thing=thing, hint=_said(tail) or None)


@contextmanager
def _started(words: list[str], scratch: Path, thing: str) -> Iterator[subprocess.Popen[bytes]]:
    """The program running; killed with everything it started when the block is left."""
    mark = uuid.uuid4().hex
    environment = {**os.environ, "TMPDIR": str(scratch), MARK: mark}
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise EngineError(f"cannot be started: {error}", kind="engine-load", thing=thing) from None
    try:
        yield process
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        kill_marked(mark)
        assert process.stdout is not None
        process.stdout.close()


def _place(folder: Path, outputs: Path) -> str:
    return "output folder" if folder == outputs else "folders, TMPDIR included"


def folder_size(folder: Path, most: int = MAX_FILES) -> int:
    """Bytes in all files below a folder; links count as themselves. More than ``most`` files count as endless."""
    total, files, waiting = 0, 0, [] if folder.is_symlink() else [str(folder)]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                files += 1
                if files > most:
                    return 1 << 62
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                with suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_size
    return total


def _said(tail: bytes, before: str = "") -> str:
    """The last lines that it printed, nothing in them that moves a cursor."""
    lines = tail.decode(errors="replace").strip().splitlines()[-8:]
    return before + "it said: " + " | ".join(printable(line, 300) for line in lines) if lines else ""
