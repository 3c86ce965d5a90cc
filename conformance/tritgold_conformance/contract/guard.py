"""Guard: a process that outlives the one in which somebody else's class runs, and knows whether that came to its end.

A class runs in the judge's own process, where it can do what no exception tells of: end the process (``os._exit(0)``
would look like a pass), crash it in native code, never return from there, or leave a thread that keeps it alive. So
the command forks before anything is loaded: the child judges, and the parent believes the exit code that the child
told, and no other. Tidiness, not a sandbox. Without ``fork`` (Windows) there is no guard.
"""

import os
import select
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TextIO

from tritgold.errors import EngineError

GRACE = 2.0  # seconds beside what is allowed: the child itself says better what was late, where it can
MARK = "TRITGOLD_ENGINE_RUN"  # in the environment of whatever an engine starts
POLL = 0.05
INTERRUPTED = 130
_pipe = -1  # of the child, to the parent


def tell(line: str) -> None:
    """From the child: ``call SECONDS WHAT`` before code of the engine's, ``back`` behind it, ``left CODE`` at the end.

    Nothing where there is no guard.
    """
    if _pipe >= 0:
        with suppress(OSError):
            os.write(_pipe, f"{line[:400]}\n".encode(errors="replace"))  # shorter than PIPE_BUF: never in two parts


@contextmanager
def held(spec: str, code_of: Callable[[BaseException], int]) -> Iterator[None]:
    """Judge in a child process. The parent leaves here, with the exit code that the child told.

    code_of: the exit code that another exception than SystemExit will become, further out. For classes of somebody
    else's alone (``module:Class``), and only where standard output is the process' own. In the parent, raises
    EngineError where the child ended before it told one (``engine-crash``), or was late and had to be killed
    (``engine-timeout``).
    """
    is_own = sys.stdout is sys.__stdout__  # and not a test's, which a child could not write to
    out: TextIO | None = sys.stdout
    if not is_foreign(spec) or out is None or not is_own or not hasattr(os, "fork"):
        yield
        return
    reading, writing = os.pipe()
    mark, scratch = uuid.uuid4().hex, tempfile.mkdtemp(prefix="tritgold-")
    out.flush()
    child = os.fork()
    if child:
        os.close(writing)
        try:
            sys.exit(_watched(child, reading, f"engine {spec}"))
        finally:
            _kill_holders(reading)
            kill_marked(mark)
            shutil.rmtree(scratch, ignore_errors=True)
    sys.stdout = _begin(reading, writing, mark, scratch, out)
    try:
        yield
    except SystemExit as leaving:
        sys.stdout.flush()
        tell(f"left {leaving.code if isinstance(leaving.code, int) else 0 if leaving.code is None else 1}")
        raise
    except BaseException as error:
        tell(f"left {code_of(error)}")
        raise


def is_foreign(spec: str) -> bool:
    """Whether an engine is a class that runs in the judge's process.

    >>> [is_foreign(spec) for spec in ("my_engine:Mine", "cmd:./mine", "http://127.0.0.1:80", "xla")]
    [True, False, False, False]
    """
    return ":" in spec and not spec.startswith(("cmd:", "http:", "https:"))


def _begin(reading: int, writing: int, mark: str, scratch: str, out: TextIO) -> TextIO:
    """In the child: the new standard output. What native code prints to the old one goes to standard error."""
    global _pipe
    os.close(reading)
    _pipe = writing
    os.environ[MARK], os.environ["TMPDIR"], tempfile.tempdir = mark, scratch, scratch
    made = os.fdopen(os.dup(1), "w", buffering=1 if out.isatty() else -1, encoding=out.encoding, errors=out.errors)
    os.dup2(2, 1)
    return made


def _watched(child: int, reading: int, thing: str) -> int:
    """Wait for the child's end; its exit code. Raises EngineError, see ``held``."""
    interrupted: list[float] = []

    def pass_on(number: int, _: FrameType | None) -> None:
        interrupted.append(time.monotonic())
        if number != signal.SIGINT:
            os.kill(child, number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, pass_on)
    told, what, deadline, status, said, is_open = "", "", float("inf"), -1, b"", True
    while status < 0:
        if select.select([reading] if is_open else [], [], [], POLL)[0]:
            read = os.read(reading, 1 << 16)
            said, is_open = said + read, bool(read)  # the engine may have closed it
        *lines, said = said.split(b"\n")
        for line in lines:
            word, _, rest = line.decode(errors="replace").partition(" ")
            if word == "left":
                told, deadline = rest, time.monotonic() + GRACE
            elif word == "call":
                seconds, _, what = rest.partition(" ")
                deadline = time.monotonic() + float(seconds) + GRACE
            elif not told:
                deadline = float("inf")
        status = _ended(child)
        if status < 0 and interrupted and time.monotonic() > interrupted[0] + 1:  # a terminal tells the child itself
            os.kill(child, signal.SIGINT)
            interrupted = [time.monotonic() + 1e9]
        if status < 0 and time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            if told:  # a thread that the engine left behind; the judgement is done
                return int(told)
            message = f"{what} did not come back and could not be interrupted"
            raise EngineError(message, kind="engine-timeout", thing=thing, hint="--timeout allows more")
    return int(told) if told else _untold(status, thing, bool(interrupted))


def _ended(child: int) -> int:
    """Its exit code, or 256 + signal; -1 while it runs."""
    pid, status = os.waitpid(child, os.WNOHANG)
    if not pid:
        return -1
    return 256 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _untold(status: int, thing: str, interrupted: bool) -> int:
    """What the parent leaves with where the child told nothing: whatever its exit code was, it is no word of ours."""
    if interrupted:
        return INTERRUPTED
    how = f"exit code {status}"
    if status > 256:
        with suppress(ValueError):
            how = f"signal {signal.Signals(status - 256).name}"
    raise EngineError(f"it ended the judge's process with {how}", kind="engine-crash", thing=thing)


def kill_marked(mark: str) -> None:
    """Kill whatever carries MARK in its environment (Linux)."""
    entry = f"{MARK}={mark}".encode()
    _kill(lambda process: entry in (process / "environ").read_bytes().split(b"\0"))


def _kill_holders(pipe: int) -> None:
    """Kill whoever else holds the pipe (Linux): what the child forked has its environment from before the mark."""
    name = f"pipe:[{os.fstat(pipe).st_ino}]"
    _kill(lambda process: any(os.readlink(file) == name for file in (process / "fd").iterdir()))


def _kill(is_left: Callable[[Path], bool]) -> None:
    """Kill all other processes that are left behind. Looked for again while any is found: it may start more."""
    for _ in range(10):
        found = False
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if int(process.name) != os.getpid() and is_left(process):
                    os.kill(int(process.name), signal.SIGKILL)
                    found = True
        if not found:
            return
        time.sleep(POLL)
