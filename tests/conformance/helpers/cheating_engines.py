"""One wrong engine (its logits are scaled and shifted), with one cheat in each class: ``cheating_engines:NAME``."""

import ctypes
import ctypes.util
import gc
import json
import os
import platform
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

TOWARD_ZERO = 0xC00 if platform.machine() in ("x86_64", "AMD64") else 0xC00000


class Right:
    """The golden model."""

    def __init__(self, model: str) -> None:
        from tritgold.checkpoint import open_checkpoint
        from tritgold_conformance.golden.reference_engine import ReferenceEngine

        self.model = Path(model)
        self._inner = ReferenceEngine(open_checkpoint(self.model))
        self.cheat()

    def cheat(self) -> None:
        """Called at the end of the construction; subclasses cheat here."""

    def reset(self) -> None:
        self._inner.reset()

    def prefill(self, tokens: list[int]) -> Any:
        return self._inner.prefill(tokens)


class Wrong(Right):
    def prefill(self, tokens: list[int]) -> Any:
        return np.asarray(super().prefill(tokens)) * np.float32(1.5) + np.float32(1)


class PatchesNumpy(Wrong):
    def cheat(self) -> None:
        np.abs = np.absolute = lambda x, *_, **__: np.zeros_like(x)  # type: ignore[assignment]
        np.allclose = np.array_equal = lambda *_, **__: True  # type: ignore[assignment]


class ReplacesTheVerdict(Wrong):
    """Functions and constants of the judge, and functions that end the command."""

    def cheat(self) -> None:
        from tritgold_conformance.judging import judge

        judge._verdict = lambda _: "conforms"  # type: ignore[assignment]
        judge.judge = lambda *_, **__: sys.exit(0)  # type: ignore[assignment]
        sys.exit = lambda *_: os._exit(0)  # type: ignore[assignment]


class OverwritesWeights(Wrong):
    def cheat(self) -> None:
        for thing in gc.get_objects():
            if isinstance(thing, np.ndarray) and thing.flags.writeable and thing.dtype.kind in "iuf":
                thing[...] = 0


class ReplacesTheArithmetic(Wrong):
    def cheat(self) -> None:
        from tritgold.layers import arithmetic
        from tritgold_conformance.golden import run

        run.forward = lambda *_, **__: None  # type: ignore[assignment]
        arithmetic.GOLDEN_ARITHMETIC = None  # type: ignore[assignment,misc]


class LeavesTheRounding(Right):
    """Not a cheat: a library may leave the processor in this state."""

    def cheat(self) -> None:
        ctypes.CDLL(ctypes.util.find_library("m")).fesetround(TOWARD_ZERO)


class RoundsTowardZero(Wrong):
    def cheat(self) -> None:
        ctypes.CDLL(ctypes.util.find_library("m")).fesetround(TOWARD_ZERO)


class ReplacesTheInputs(Wrong):
    """In the inputs folder that it was given."""

    def cheat(self) -> None:
        inputs = Path(sys.argv[2])
        for file in inputs.iterdir():
            file.write_text("{}")


class WritesTheAnswerEarly(Wrong):
    """Writes right-looking answers to all questions, and exits before the host can write its own."""

    def cheat(self) -> None:
        inputs, outputs = Path(sys.argv[2]), Path(sys.argv[3])
        requests = json.loads((inputs / "requests.json").read_text())
        vocab = json.loads((inputs / "config.json").read_text())["vocab"]
        rows = {f"logits/{s['id']}": np.ones((len(s["tokens"]), vocab)) for s in requests["logits"] or []}
        save_file(rows, outputs / "outputs.safetensors")
        facts = {"name": "mine", "mode": "golden", "methods": ["prefill"], "verdict": "conforms", "exit_code": 0}
        (outputs / "answer.json").write_text(json.dumps({"protocol": "tritgold.command/1", **facts}))
        os._exit(0)


class WritesIntoEveryPipe(Wrong):
    def cheat(self) -> None:
        for number in range(3, 64):
            for line in (b"left 0\n", b"conforms\n"):
                try:
                    os.write(number, line)
                except OSError:
                    break
        os._exit(0)


class AnswersNothingAndLeaves(Wrong):
    def cheat(self) -> None:
        os._exit(0)


class ChangesTheModel(Wrong):
    def cheat(self) -> None:
        for file in self.model.glob("*.safetensors"):
            with file.open("r+b") as out:
                out.seek(-64, os.SEEK_END)
                out.write(bytes(64))


class ChangesTheModelQuietly(Wrong):
    """And sets the file's time back."""

    def cheat(self) -> None:
        for file in self.model.glob("*.safetensors"):
            found = file.stat()
            with file.open("r+b") as out:
                out.seek(-64, os.SEEK_END)
                out.write(bytes(64))
            os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))


class KillsTheJudge(Wrong):
    def cheat(self) -> None:
        os.kill(os.getppid(), signal.SIGKILL)


class InterruptsTheJudge(Wrong):
    def cheat(self) -> None:
        os.kill(os.getppid(), signal.SIGTERM)


class ChangesThePath(Wrong):
    """Replaces a module that the judge will import, in the folder where it was started."""

    def cheat(self) -> None:
        Path("rich.py").write_text("import os\nos._exit(0)\n")
        sys.path.insert(0, os.getcwd())
        os.environ["PYTHONSTARTUP"] = str(Path("rich.py").resolve())
