"""Runs a foreign program with limits for time and output size, and ends all its processes.

Its processes are found by the process group and, on Linux, by a mark in the environment, which children that leave the
group also have. This is not a sandbox: run a malicious program in a container.
"""

import ctypes
import os
import selectors
import shlex
import signal
import stat
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType

from tritgold.errors import EngineError
from tritgold.formats.untrusted_text import printable
from tritgold_conformance.engines.host import PROGRESS

MARK = "TRITGOLD_ENGINE_RUN"  # environment variable of all processes that an engine starts
POLL = 0.05  # seconds between checks of the clock and of the folder
TAIL = 4000  # bytes of the printed output that an error quotes
LINE = 400  # bytes of the last progress line that are read
MAX_FILES = 1000  # in the output folder; two are needed
SCRATCH = 1 << 30  # bytes that a program may write in addition to its answer, for example into its TMPDIR
SCRATCH_FILES = 100_000
_SET_DUMPABLE, _DROP_FROM_BOUNDING_SET, _SYS_PTRACE = 4, 24, 19  # constants of prctl(2) and capabilities(7)


def run_program(
    words: list[str],
    outputs: Path,
    seconds: float,
    size: int,
    scratch: Path,
    environment: Mapping[str, str] = MappingProxyType({}),
    to_begin: float = 0,
    echo: bool = False,
) -> str:
    """Run a program to its end; returns its last progress line. Its printed output is only kept for an error message.

    outputs: its output folder, at most ``size`` bytes; other files next to it may have SCRATCH bytes more. scratch: its
    TMPDIR. seconds: limit for the whole run or, if it writes its progress, from one progress line to the next;
    to_begin: limit until the first line, if larger. environment: variables to add to this process's. echo: copy its
    output to stderr.

    Raises EngineError if it cannot be started (``engine-load``), ends with another exit code than 0 (``engine-crash``),
    exceeds the time limit (``engine-timeout``) or writes more than ``size`` (``engine-output-size``). In every case all
    its processes are ended.
    """
    thing, work = f"engine {shlex.join(words[:-2])}", outputs.parent
    # The work folder also has the inputs, which may be large, and TMPDIR.
    limits = ((outputs, size, MAX_FILES), (work, folder_size(work, SCRATCH_FILES) + size + SCRATCH, SCRATCH_FILES))
    with _started(words, scratch, environment, thing) as process, selectors.DefaultSelector() as reading:
        assert process.stdout is not None
        reading.register(process.stdout, selectors.EVENT_READ)
        doing, told, tail, is_open = "", 0, b"", True
        deadline = time.monotonic() + max(seconds, to_begin)
        while True:
            if is_open and reading.select(POLL):
                chunk = os.read(process.stdout.fileno(), 1 << 16)
                tail, is_open = (tail + chunk)[-TAIL:], bool(chunk)
                if echo and sys.stderr is not None:
                    sys.stderr.write(chunk.decode(errors="replace"))
                    sys.stderr.flush()
                ended = not is_open and process.poll() is not None
            else:
                ended = process.poll() is not None  # a child process may keep the pipe open after the program has ended
                if not is_open and not ended:
                    time.sleep(POLL)
            _require_room(limits, outputs, thing, tail)
            length, line = _progress(outputs, told)
            if length != told:
                doing, told, deadline = line, length, time.monotonic() + seconds
            if ended:
                break
            if time.monotonic() > deadline:
                hint = "--timeout allows more" + _said(tail, "; ")
                what = f"{doing} took longer than {seconds:g} s".strip()
                raise EngineError(what, kind="engine-timeout", thing=thing, hint=hint)
    _require_success(process.returncode, doing, thing, tail)
    return doing


def _require_room(limits: tuple[tuple[Path, int, int], ...], outputs: Path, thing: str, tail: bytes) -> None:
    for folder, most, files in limits:
        if folder_size(folder, files) > most:
            what, hint = f"wrote too much into its {_place(folder, outputs)}", _said(tail)
            raise EngineError(what, kind="engine-output-size", thing=thing, expected=f"{most} bytes", hint=hint)


def _require_success(returncode: int, doing: str, thing: str, tail: bytes) -> None:
    if returncode:
        how = f"exit code {returncode}"
        if returncode < 0:
            with suppress(ValueError):
                how = f"signal {signal.Signals(-returncode).name}"
        what = f"failed in {doing} with {how}" if doing else f"failed with {how}"
        raise EngineError(what, kind="engine-crash", thing=thing, hint=_said(tail) or None)


def _progress(outputs: Path, told: int) -> tuple[int, str]:
    """Size of the progress file in bytes, and its last line if the size is not ``told``. Reads only a regular file."""
    path = outputs / PROGRESS
    with suppress(OSError):
        found = os.lstat(path)
        if stat.S_ISREG(found.st_mode) and found.st_size != told:
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                file.seek(max(0, found.st_size - LINE))
                lines = file.read(LINE).decode(errors="replace").splitlines()
            return found.st_size, printable(lines[-1] if lines else "")
    return told, ""


@contextmanager
def _started(words: list[str], scratch: Path, more: Mapping[str, str], thing: str) -> Iterator[subprocess.Popen[bytes]]:
    """The running program; it and everything that it started are killed when the block ends."""
    keep_memory_private()
    mark = uuid.uuid4().hex
    environment = {**os.environ, **more, "TMPDIR": str(scratch), MARK: mark}
    process = None
    try:
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
        yield process
    finally:
        if process is None:
            time.sleep(POLL)  # interrupted during the start: the process may get its mark only now
        else:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        _kill_marked(mark)
        if process is not None and process.stdout is not None:
            process.stdout.close()


def keep_memory_private() -> None:
    """No process that is started from now on may read or write this process's memory (Linux).

    With /proc/PID/mem it could change the verdict. A process of the same user is refused because this process is not
    dumpable; a process of root is refused because it starts without the right to trace.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            prctl = ctypes.CDLL(None).prctl
            prctl(_SET_DUMPABLE, 0, 0, 0, 0)
            prctl(_DROP_FROM_BOUNDING_SET, _SYS_PTRACE, 0, 0, 0)


def _kill_marked(mark: str) -> None:
    """Kill all processes with this MARK in their environment (Linux). Repeated, because they may start more."""
    entry = f"{MARK}={mark}".encode()
    for _ in range(10):
        found = False
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if entry in (process / "environ").read_bytes().split(b"\0"):
                    os.kill(int(process.name), signal.SIGKILL)
                    found = True
        if not found:
            return
        time.sleep(POLL)


def _place(folder: Path, outputs: Path) -> str:
    return "output folder" if folder == outputs else "folders, TMPDIR included"


def folder_size(folder: Path, most: int = MAX_FILES) -> int:
    """Bytes of all files below a folder; links are not followed. With more than ``most`` files, 2**62 (too much)."""
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
    """The last lines of its printed output, without control characters; empty if it printed nothing."""
    lines = tail.decode(errors="replace").strip().splitlines()[-8:]
    return before + "it said: " + " | ".join(printable(line, 300) for line in lines) if lines else ""
