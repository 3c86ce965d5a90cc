"""One model over devices: what a step, a prompt and a collective cost, beside XLA's own threads; and a model of it.

``python -m measure.sharding > docs/data/sharding.json``: some minutes, on a quiet machine.

``measured``: layers of BitNet b1.58 2B-4T with random weights, on 1 device with one thread, 1 device with two, and 2
devices; each in a process of its own, in turn, the least of a few rounds. ``collectives``: how many stand in the
program of a step, those of a layer once, and how many a token has; ``collective``: seconds of one, of many in a row.
``predicted``: the step on 2 devices by the formulas of docs/sharding.md, from the step on 1 and the collective.
``modelled``: the same formulas for models of 7B to 100B.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from measure.report import show
from measure.sharding_model import ASSUMED, COUNTS, SHAPES, Machine, step
from tritgold.config import ModelConfig
from tritgold.ternary import InMemoryTernary, TernaryTensor
from tritgold.weights import LINEARS, LayerWeights, ModelWeights

SCHEMA = "tritgold.sharding/2"
# (devices, threads): XLA's own threads are those of one pool, which all devices share.
WAYS = ((1, 1), (1, 2), (2, 2))


@dataclass(frozen=True)
class Sizes:
    """Of the model, all else being BitNet b1.58 2B-4T's; and of the measurement. prompt: tokens."""

    layers: int = 6
    vocab: int = 16_032
    hidden: int = 2560
    inter: int = 6912
    heads: int = 20
    kv_heads: int = 5
    context: int = 256
    prompt: int = 128
    rounds: int = 3
    steps: int = 8

    def config(self) -> ModelConfig:
        """The model."""
        sizes = {name: value for name, value in asdict(self).items() if name not in ("prompt", "rounds", "steps")}
        return ModelConfig(
            **sizes, head_dim=self.hidden // self.heads, norm_eps=1e-5, rope_theta=5e5, activation="relu2",
            sub_norms=True, tied_head=True, scale_rule="multiply",
        )  # fmt: skip


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


def measured(sizes: Sizes, devices: int) -> dict[str, Any]:
    """In this process: seconds of a step and of a prompt, and of one collective."""
    from tritgold_xla import XlaEngine
    from tritgold_xla.runtime.flags import start_with_devices

    start_with_devices(devices)
    config = sizes.config()
    engine = XlaEngine(config, weights(config), config.context, "bf16", devices=devices)
    prompt = np.random.default_rng(1).integers(0, config.vocab, sizes.prompt).tolist()
    engine.read(prompt)
    engine.step(1)
    prompts, steps = [], []
    for _ in range(sizes.rounds):
        engine.reset()
        prompts.append(_seconds(lambda: engine.read(prompt)))
        steps += [_seconds(lambda: engine.step(1)) for _ in range(sizes.steps)]
    found: dict[str, Any] = {"step": min(steps), "prompt": min(prompts)}
    if devices > 1:
        found |= {"collectives": collectives(engine), "collective": collective(sizes, devices)}
    return found


def collectives(engine: Any) -> dict[str, int]:
    """How many stand in the program that has run last, and how many of them are in the loop over layers."""
    program = list(engine._shards._programs.values())[-1]
    place = np.zeros(1, np.int32), np.int32(0), np.int32(1), np.int32(0)
    text = program.lower(engine._parameters, engine._cache, *place).as_text()
    count = sum(text.count(f"stablehlo.{name}") for name in ("all_reduce", "all_gather"))
    outside = 2  # the row of the embedding, and the logits
    return {"in_program": count, "a_token": (count - outside) * engine.config.layers + outside}


def collective(sizes: Sizes, devices: int, count: int = 200) -> float:
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
    x = jnp.ones((1, sizes.hidden), jnp.int32)
    program(x).block_until_ready()
    return min(_seconds(lambda: program(x).block_until_ready()) for _ in range(sizes.rounds)) / count


def _seconds(run: Any) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def _asked(sizes: Sizes, devices: int, threads: int) -> dict[str, Any]:
    count = str(threads)
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "NPROC": count, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": path}
    command = [sys.executable, "-W", "ignore", "-m", "measure.sharding"]
    done = subprocess.run(
        [*command, "--member", json.dumps(asdict(sizes)), str(devices)],
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
    )
    return {"devices": devices, "threads": threads, **json.loads(done.stdout)}


def report(sizes: Sizes) -> dict[str, Any]:
    """All of it."""
    points, config = [_asked(sizes, *way) for way in WAYS], sizes.config()
    alone, shared = points[0], points[-1]
    context = sizes.prompt + sizes.steps // 2  # positions that a step reads, on average
    bandwidth = step(config, Machine(1, 1e9, 0, 1), context).bytes_read / alone["step"]
    here = Machine(2, bandwidth, shared["collective"], float("inf"))
    return {
        "schema": SCHEMA,
        "sizes": asdict(sizes),
        "measured": points,
        "bandwidth": bandwidth,
        "predicted": step(config, here, context).as_dict(),
        "modelled": {
            name: [step(each, replace(ASSUMED, devices=count)).as_dict() for count in COUNTS]
            for name, each in SHAPES.items()
        },
    }


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--member", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.member:
        print(json.dumps(measured(Sizes(**json.loads(given.member[0])), int(given.member[1]))))
    else:
        show(report(Sizes()))


if __name__ == "__main__":
    main()
