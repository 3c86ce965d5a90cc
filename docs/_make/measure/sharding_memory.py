"""What each of two processes holds of a model with the widths of 30B and two layers: beside its share of the weights.

``python -m measure.sharding_memory > docs/data/sharding-memory.json``: some minutes, and one gigabyte of memory.

No process makes more than one matrix at a time, and none has a file: ``held`` is what the process has more than before
it loaded, ``most`` what it had while it did.
"""

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from measure.report import show
from measure.sharding_model import SHAPES
from tritgold.config import ModelConfig
from tritgold.ternary import TernaryTensor
from tritgold.weights import LINEARS, LayerWeights, ModelWeights

SCHEMA = "tritgold.sharding_memory/1"
PROCESSES = 2
CONFIG = replace(SHAPES["30B"], layers=2, tied_head=True, context=256)


class _Trits:
    """Trits that are drawn when they are asked for, always the same."""

    master = None

    def __init__(self, shape: tuple[int, int], seed: int) -> None:
        self.shape, self._seed = shape, seed

    def ternary(self) -> TernaryTensor:
        trits = np.random.default_rng(self._seed).integers(-1, 2, self.shape, np.int8)
        return TernaryTensor(trits, np.asarray(np.float32(0.02)))


class _Rows:
    """Rows of small numbers that bfloat16 has, made when they are asked for."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape = shape

    def rows(self, index: slice | np.ndarray) -> np.ndarray:
        ids = np.arange(self.shape[0])[index][:, None]
        return ((ids * 7 + np.arange(self.shape[1])) % 128 / 64 - 1).astype(np.float32)


def weights(config: ModelConfig) -> ModelWeights:
    """A model of which nothing is in memory."""
    gains: dict[str, Any] = {name: np.ones(width, np.float32) for name, width in config.vector_widths().items()}

    def linears(layer: int) -> dict[str, Any]:
        return {name: _Trits(config.linear_shape(name), 10 * layer + i) for i, name in enumerate(LINEARS)}

    layers = [LayerWeights(**gains, **linears(layer)) for layer in range(config.layers)]
    return ModelWeights(_Rows((config.vocab, config.hidden)), tuple(layers), np.ones(config.hidden, np.float32), None)


def member(address: str, process: int) -> dict[str, Any]:
    """In one of the processes."""
    from tritgold_xla import XlaEngine
    from tritgold_xla.parameters import parameter_bytes
    from tritgold_xla.processes.led_engine import start_jax
    from tritgold_xla.processes.seat import Seat
    from tritgold_xla.runtime.flags import cpu_devices

    start_jax(Seat(address, PROCESSES, process))
    cpu_devices(PROCESSES)
    before = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the most so far is what it is now
    engine = XlaEngine(CONFIG, weights(CONFIG), 64, devices=PROCESSES)
    held, most = _memory("VmRSS") - before, _memory("VmHWM") - before
    token = int(np.argmax(engine.read([1, 2, 3])))
    share = parameter_bytes(CONFIG) // PROCESSES
    return {"share": share, "held": held, "most": most, "of_share": held / share, "token": token}


def _memory(name: str) -> int:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{name}:")]
    return int(line.split()[1]) * 1024


def report() -> dict[str, Any]:
    """Of all processes."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "measure.sharding_memory", address]
    children = [
        subprocess.Popen([*command, str(process)], env=environment, stdout=subprocess.PIPE)
        for process in range(PROCESSES)
    ]
    found = [json.loads(child.communicate()[0]) for child in children]
    return {"schema": SCHEMA, "layers": CONFIG.layers, "hidden": CONFIG.hidden, "inter": CONFIG.inter,
            "processes": found}  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(member(sys.argv[1], int(sys.argv[2]))))
    else:
        show(report())
