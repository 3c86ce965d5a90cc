"""Cheats by exit codes, signals, descriptors and processes."""

import atexit
import ctypes
import os
import resource
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
from base_engine import Engine
from cheats.wrong import Wrong, folders, judge_process
from registry import cheat, made

KIND = "process"


def _prefill(act: object) -> object:
    def prefill(self: Wrong, tokens: list[int]) -> np.ndarray:
        act()
        return Wrong.prefill(self, tokens)

    return prefill


def _signal_judge(number: int) -> object:
    def act() -> None:
        if (pid := judge_process()) is not None:
            os.kill(pid, number)

    return act


def _exit_at_end() -> None:
    atexit.register(os._exit, 0)


def _exit_handlers() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGHUP):
        signal.signal(number, lambda *_: os._exit(0))
    signal.alarm(1)


def _raise_exit() -> None:
    raise SystemExit(0)


def _interrupt() -> None:
    raise KeyboardInterrupt


def _excepthook() -> None:
    sys.excepthook = lambda *_: os._exit(0)
    raise RuntimeError("conforms")


def _descriptors() -> None:
    """What a verdict could look like, into every open descriptor but the standard ones."""
    for number in range(3, 64):
        try:
            if not Path(os.readlink(f"/proc/self/fd/{number}")).name.startswith(("pipe:", "socket:")):
                continue
            os.write(number, b'left 0\n{"conforms": true, "verdict": "conforms"}\n')
        except OSError:
            continue


def _closes() -> None:
    os.closerange(3, 64)


def _judge_stdout() -> None:
    """A verdict into the judge's own standard output."""
    if (pid := judge_process()) is not None:
        try:
            with open(f"/proc/{pid}/fd/1", "wb", buffering=0) as file:
                file.write(b"adversary conforms at 9 levels.\n")
        except OSError:
            pass


def _judge_stdout_then_kill() -> None:
    _judge_stdout()
    _signal_judge(signal.SIGTERM)()


def _fake_answers() -> None:
    """An empty answer by its own hand, and exit code 0."""
    if found := folders():
        (found[1] / "answer.json").write_text('{"protocol": "tritgold.command/1", "name": "mine", "versions": {}}')
        header = b"{}      "
        (found[1] / "outputs.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
        os._exit(0)


def _asks_less() -> None:
    """The questions are replaced by none."""
    if found := folders():
        (found[0] / "requests.json").write_text('{"protocol": "tritgold.command/1"}')


def _limits() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    signal.signal(signal.SIGXFSZ, lambda *_: os._exit(0))


def _fork_and_leave() -> None:
    """The child goes on; the process that the judge knows ends well."""
    if os.fork():
        os._exit(0)


def _thread_exit() -> None:
    threading.Timer(0.5, os._exit, (0,)).start()


def _late_rewriter() -> None:
    """A process of its own group that waits for the answers and sets their bytes to zero."""
    if (found := folders()) and not (found[1] / "outputs.safetensors").exists():
        code = (
            "import pathlib,sys,time\np=pathlib.Path(sys.argv[1])\n"
            "for _ in range(200):\n time.sleep(.02)\n if p.exists(): p.unlink(); break\n"
        )
        subprocess.Popen([sys.executable, "-c", code, str(found[1] / "outputs.safetensors")], start_new_session=True)


for _name, _what, _act in [
    ("ExitsInPrefill", "os._exit(0) in prefill", lambda: os._exit(0)),
    ("SystemExitInPrefill", "sys.exit(0) in prefill", _raise_exit),
    ("KeyboardInterruptInPrefill", "raises KeyboardInterrupt", _interrupt),
    ("ExcepthookExits", "raises, with an excepthook that exits with 0", _excepthook),
    ("AtexitExits", "an atexit function that exits with 0", _exit_at_end),
    ("SignalHandlersExit", "signal handlers that exit with 0, and an alarm", _exit_handlers),
    ("ThreadExits", "a thread that exits with 0 half a second later", _thread_exit),
    ("ForksAndLeaves", "forks: the child goes on, the parent exits with 0", _fork_and_leave),
    ("TerminatesJudge", "SIGTERM to the tritgold command above it", _signal_judge(signal.SIGTERM)),
    ("InterruptsJudge", "SIGINT to the tritgold command above it", _signal_judge(signal.SIGINT)),
    ("KillsJudge", "SIGKILL to the tritgold command above it", _signal_judge(signal.SIGKILL)),
    ("HangsUpJudge", "SIGHUP to the tritgold command above it", _signal_judge(signal.SIGHUP)),
    ("WritesToPipes", "a verdict into every pipe that it has inherited", _descriptors),
    ("ClosesDescriptors", "closes all descriptors but the standard ones", _closes),
    ("WritesJudgesStdout", "a verdict into the judge's standard output", _judge_stdout),
    ("WritesStdoutAndKills", "a verdict into the judge's standard output, and SIGTERM", _judge_stdout_then_kill),
    ("WritesEmptyAnswers", "writes empty answers by its own hand and exits with 0", _fake_answers),
    ("AsksLess", "replaces the questions in INPUTS by none", _asks_less),
    ("NoFilesAllowed", "a limit of 0 bytes a file, with a handler that exits with 0", _limits),
    (
        "RemovesAnswersLater",
        "a process of its own session that removes the answers later",
        _late_rewriter,
    ),
]:
    cheat(_what, kind=KIND)(made(_name, Wrong, prefill=_prefill(_act)))


@cheat("os._exit(0) when it is made", kind=KIND)
class ExitsWhenMade(Wrong):
    def prepare(self) -> None:
        os._exit(0)


@cheat("leaves the processor rounding toward zero, as its own codes are", kind=KIND)
class RoundingMode(Engine):
    def quantize(self, source: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ctypes.CDLL(None).fesetround(0xC00)
        _, s = Engine.quantize(self, source, x)
        return np.trunc(x * s[:, None]), s


@cheat("leaves subnormals flushed to zero and NumPy's errors silent, and is wrong", kind=KIND)
class SilentErrors(Wrong):
    def prepare(self) -> None:
        np.seterr(all="ignore")
        np.set_printoptions(threshold=1)


@cheat("overwrites 1e-5 and 2e-5 by 1e9 in the memory of the tritgold command above it", kind=KIND)
class JudgesMemory(Wrong):
    done = False

    def prefill(self, tokens: list[int]) -> np.ndarray:
        if not JudgesMemory.done and (pid := judge_process()) is not None:
            JudgesMemory.done = True
            overwrite_floats(pid, (1e-5, 2e-5), 1e9)
        return Wrong.prefill(self, tokens)


def overwrite_floats(pid: int, old: tuple[float, ...], new: float) -> None:
    """Replace aligned float64 in the writable private memory of a process, within ten seconds."""
    end = time.monotonic() + 10
    try:
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
            for line in maps:
                span, mode = line.split()[:2]
                first, last = (int(part, 16) for part in span.split("-"))
                if mode[:2] != "rw" or last - first > 1 << 28 or time.monotonic() > end:
                    continue
                memory.seek(first)
                found = np.frombuffer(memory.read(last - first)[: (last - first) // 8 * 8], np.float64)
                for at in np.flatnonzero(np.isin(found, old)).tolist():
                    memory.seek(first + 8 * at)
                    memory.write(struct.pack("d", new))
    except (OSError, ValueError):
        return
