"""One model over devices: what a step, a prompt and a collective cost, beside XLA's own threads; and a model of it.

``python -m measure.sharding > docs/data/sharding.json``: some minutes, on a quiet machine.

``measured``: layers of BitNet b1.58 2B-4T with random weights, on 1 device with one thread, 1 device with two, and 2
devices; each in a process of its own, in turn, the least of a few rounds. ``modelled``: the formulas of
docs/sharding.md for models of 7B to 100B, with this machine's bandwidth and collectives and with a network's.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np

from measure.report import show
from measure.sharding_model import ASSUMED, COUNTS, SHAPES, Machine, step
from tritgold.config import ModelConfig
from tritgold.ternary import InMemoryTernary, TernaryTensor
from tritgold.weights import LINEARS, LayerWeights, ModelWeights

SCHEMA = "tritgold.sharding/1"
LAYERS, VOCAB = 6, 16_032
CONFIG = ModelConfig(
    vocab=VOCAB, hidden=2560, inter=6912, layers=LAYERS, heads=20, kv_heads=5, head_dim=128, context=256, norm_eps=1e-5,
    rope_theta=5e5, activation="relu2", sub_norms=True, tied_head=True, scale_rule="multiply",
)  # fmt: skip
# (devices, threads): XLA's own threads are those of one pool, which all devices share.
WAYS = ((1, 1), (1, 2), (2, 2))
ROUNDS, STEPS = 3, 8


class _Rows:
    """A matrix of bfloat16 numbers as float32."""

    def __init__(self, shape: tuple[int, int]) -> None:
        rng = np.random.default_rng(0)
        bits = rng.standard_normal(shape, np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
        self._array = bits.view(np.float32)
        self.shape = shape

    def rows(self, index: slice | np.ndarray) -> np.ndarray:
        return self._array[index]


def weights(config: ModelConfig) -> ModelWeights:
    """Random trits, the same in every layer; nothing here depends on their values."""
    rng = np.random.default_rng(158)

    def linear(name: str) -> InMemoryTernary:
        shape = config.linear_shape(name)
        scale = np.asarray(np.float32(2 / np.sqrt(shape[1])))
        return InMemoryTernary(TernaryTensor(rng.integers(-1, 2, shape, np.int8), scale))

    linears: dict[str, Any] = {name: linear(name) for name in LINEARS}
    gains: dict[str, Any] = {name: np.ones(width, np.float32) for name, width in config.vector_widths().items()}
    gains = {"attn_sub_norm": None, "ffn_sub_norm": None} | gains
    layer = LayerWeights(**linears, **gains)
    return ModelWeights(
        _Rows((config.vocab, config.hidden)), (layer,) * config.layers, np.ones(config.hidden, np.float32), None
    )


def measured(devices: int) -> dict[str, Any]:
    """In this process: seconds of a step and of a prompt of 128, and of one collective."""
    from tritgold_xla import XlaEngine
    from tritgold_xla.runtime.flags import start_with_devices

    start_with_devices(devices)
    engine = XlaEngine(CONFIG, weights(CONFIG), 256, "bf16", devices=devices)
    prompt = np.random.default_rng(1).integers(0, VOCAB, 128).tolist()
    engine.read(prompt)
    engine.step(1)
    prompts, steps = [], []
    for _ in range(ROUNDS):
        engine.reset()
        prompts.append(_seconds(lambda: engine.read(prompt)))
        steps += [_seconds(lambda: engine.step(1)) for _ in range(STEPS)]
    found: dict[str, Any] = {"step": min(steps), "prompt": min(prompts)}
    if devices > 1:
        found["collective"] = collective(devices)
    return found


def collective(devices: int, count: int = 200) -> float:
    """Seconds of one sum of int32 [1, hidden] over the devices, of many in one program."""
    import jax
    import jax.numpy as jnp
    from jax import lax
    from jax.sharding import Mesh

    from tritgold_xla.sharding.shards import on_every_device, spec_of
    from tritgold_xla.sharding.split import AXIS, psum

    mesh = Mesh(np.array(jax.devices("cpu")[:devices]), (AXIS,))

    def many(x: jax.Array) -> jax.Array:
        return lax.fori_loop(0, count, lambda _, x: psum(x, AXIS) >> 1, x)

    program = jax.jit(on_every_device(many, mesh=mesh, in_specs=spec_of(), out_specs=spec_of()))
    x = jnp.ones((1, CONFIG.hidden), jnp.int32)
    program(x).block_until_ready()
    return min(_seconds(lambda: program(x).block_until_ready()) for _ in range(ROUNDS)) / count


def _seconds(run: Any) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def _asked(devices: int, threads: int) -> dict[str, Any]:
    count = str(threads)
    environment = {**os.environ, "NPROC": count, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "measure.sharding", str(devices)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return {"devices": devices, "threads": threads, **json.loads(done.stdout)}


def report() -> dict[str, Any]:
    """All of it."""
    points = [_asked(*way) for way in WAYS]
    alone, shared = points[0], points[-1]
    read = step(CONFIG, Machine(1, 1e9, 0, 0)).bytes_read
    bandwidth = read / alone["step"]
    here = Machine(2, bandwidth, shared["collective"], float("inf"))
    return {
        "schema": SCHEMA,
        "layers": LAYERS,
        "measured": points,
        "bandwidth": bandwidth,
        "predicted": step(CONFIG, here).as_dict(),
        "modelled": {
            name: [step(config, replace(ASSUMED, devices=count)).as_dict() for count in COUNTS]
            for name, config in SHAPES.items()
        },
    }


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(measured(int(sys.argv[1]))))
    else:
        show(report())
