"""Engines that affect their process without an exception, each as ``--engine process_engines:NAME``."""

import atexit
import ctypes
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

NUMBER = os.environ.get("TRITGOLD_TEST_NUMBER", "1000")  # seconds, by which left-over processes are found


class Right:
    """Right: uses the golden model."""

    def __init__(self, model: str) -> None:
        from tritgold.checkpoint import open_checkpoint
        from tritgold_conformance.golden.reference_engine import ReferenceEngine

        self._inner = ReferenceEngine(open_checkpoint(Path(model)))

    def reset(self) -> None:
        self._inner.reset()

    def prefill(self, tokens: list[int]) -> Any:
        self.mischief()
        return self._inner.prefill(tokens)

    def mischief(self) -> None:
        """Called during each prefill; subclasses misbehave here."""


class Leaves(Right):
    def mischief(self) -> None:
        os._exit(0)


class LeavesAsUsage(Right):
    """With the exit code of a usage error."""

    def mischief(self) -> None:
        os._exit(2)


class LeavesFrom40(Right):
    """Exits if the prompt has 40 or more tokens."""

    def prefill(self, tokens: list[int]) -> Any:
        if len(tokens) >= 40:
            os._exit(0)
        return super().prefill(tokens)


class LeavesAtTheEnd(Right):
    """Wrong, and exits with exit code 0 when Python ends."""

    def prefill(self, tokens: list[int]) -> Any:
        atexit.register(os._exit, 0)
        return -np.asarray(super().prefill(tokens))


class Segfaults(Right):
    def mischief(self) -> None:
        ctypes.string_at(0)


class HangsInNativeCode(Right):
    def mischief(self) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)  # like a kernel that never returns
        print("hangs", flush=True)
        time.sleep(1000)


class HangsInItsAnswer(Right):
    """Gives an endless trace."""

    def trace(self, tokens: list[int]) -> Any:
        return ((str(n), n) for n in itertools.count())


class HangsInItsVersions(Right):
    def versions(self) -> Any:
        return ((0, n) for n in itertools.count())


class HangsInGenerate(Right):
    def generate(self, *given: Any) -> Any:
        time.sleep(1000)


class LacksARow(Right):
    def prefill(self, tokens: list[int]) -> Any:
        return super().prefill(tokens)[:-1]


class Interrupts(Right):
    """Raises KeyboardInterrupt, which only the user should cause."""

    def mischief(self) -> None:
        raise KeyboardInterrupt


class RaisesHere(Right):
    def mischief(self) -> None:
        raise ValueError("no such kernel")


class Talks(Right):
    def mischief(self) -> None:
        print("kernel: avx2")


class RaisesInOperations(Right):
    """Raises in one operation and for one format; everything else is right."""

    def step(self, token: int) -> Any:
        return self._inner.step(token)

    def operation(self, name: str, inputs: dict[str, Any]) -> Any:
        if name == "layers.0.q":
            raise KeyError("no kernel")
        return self._inner.operation(name, inputs)

    def unpack(self, name: str, data: bytes, shape: tuple[int, int]) -> Any:
        from tritgold_conformance.faults.packing import FORMATS

        if name == "tl1":
            raise ValueError("no such format")
        return FORMATS[name].unpack(data, shape).dense()

    def statistics(self, tokens: list[int]) -> Any:
        act = self._inner.trace(tokens).arrays["layers.0.ffn_act"]
        return {"layers.0.ffn_act": {"zeros": float((act == 0).mean())}, "mine/own": {"rms": 1.0}}

    def complete(self, tokens: list[int]) -> Any:
        self.reset()
        row = self._inner.prefill(tokens)[-1].astype(np.float64)
        row -= row.max()
        return int(np.argmax(row)), dict(enumerate((row - np.log(np.exp(row).sum())).tolist()))


class Writes:
    """Gives only loops and text, no logits."""

    mode = "llama-cpp-q8_k"

    def __init__(self, model: str) -> None:
        self.name = "writer"

    def generate(self, prompt: list[int], most: int, options: dict[str, Any]) -> Any:
        if options.get("stop"):
            raise ValueError("no stop")
        return [*prompt, most]

    def encode(self, text: str) -> Any:
        return np.array([ord(c) for c in text])

    def stream(self, ids: list[int]) -> Any:
        return [chr(i) for i in ids]

    def chat(self, message: str) -> Any:
        return None


class Drifts(Right):
    """Gives another answer each time."""

    calls = 0

    def prefill(self, tokens: list[int]) -> Any:
        self.calls += 1
        return super().prefill(tokens) + self.calls


class Slow(Right):
    def mischief(self) -> None:
        time.sleep(0.4)


class LeavesAThread(Right):
    def mischief(self) -> None:
        threading.Thread(target=time.sleep, args=(1000,), daemon=False).start()


class LeavesAProcess(Right):
    """Also leaves a temporary file and output on stdout."""

    def mischief(self) -> None:
        subprocess.Popen([sys.executable, "-c", "import sys, time; time.sleep(float(sys.argv[1]))", NUMBER])
        tempfile.mkstemp(prefix="left-behind-")
        os.write(1, b"loading kernels ...\n")


class ForksWell(Right):
    """Starts processes as a library may, and lets them end."""

    def mischief(self) -> None:
        worker = multiprocessing.get_context("spawn").Process(target=int)
        worker.start()
        worker.join()


class ForksAndLeaves(Right):
    """Leaves a forked worker, as multiprocessing on Linux does, that never ends."""

    def mischief(self) -> None:
        if os.fork() == 0:
            time.sleep(1000)


class ForksAndHangs(Right):
    def mischief(self) -> None:
        if os.fork() == 0:
            time.sleep(1000)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        time.sleep(1000)


class ChangesTheProcess(Right):
    """Changes settings of its process and relies on them; and has a method that would receive the golden run."""

    def __init__(self, model: str) -> None:
        super().__init__(model)
        np.seterr(all="raise")
        warnings.simplefilter("error")
        os.chdir(tempfile.mkdtemp())
        self.folder = Path.cwd()

    def mischief(self) -> None:
        assert np.geterr()["over"] == "raise"
        assert warnings.filters[0][0] == "error"
        assert Path.cwd() == self.folder
        np.seterr(under="ignore")

    def prepare(self, golden: Any) -> None:
        raise AssertionError("the golden run is nobody else's")
