"""What an engine answers over several devices, as SHA-256: a program for a process that starts with so many.

    python sharded_hashes.py '{"models": ["llama"], "ways": [["f32", null]], "devices": [1, 2]}'

prints {model: {way: {devices: {what: digest}}}}. Devices are the processor's, forced; ways: KV scheme and formulation.
As one of several processes (TRITGOLD_COORDINATOR) it shares the model with the others, and the first one prints.
"""

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from tritgold.checkpoint import open_checkpoint
from tritgold.config import ModelConfig
from tritgold.golden import embedded_model
from tritgold.graph import operations
from tritgold.weights import ModelWeights

FIXTURES = Path(__file__).parents[2] / "peers" / "fixtures"
Model = tuple[ModelConfig, ModelWeights, list[int]]
# Two layers of BitNet b1.58 2B-4T; of its vocabulary an eighth, whose 16,032 rows no block of rows divides.
TWO_LAYERS = ModelConfig(
    vocab=16_032, hidden=2560, inter=6912, layers=2, heads=20, kv_heads=5, head_dim=128, context=128, norm_eps=1e-5,
    rope_theta=5e5, activation="relu2", sub_norms=True, tied_head=True, scale_rule="multiply",
)  # fmt: skip


def digest(*arrays: np.ndarray) -> str:
    """Of types, shapes and bytes."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def alone(engine, trace, names: tuple[str, ...]) -> str:
    """Digest of what these operations give, each alone, on the traced inputs; what was traced is what they give."""
    arrays, found = {**trace.arrays, "tokens": np.array(trace.tokens, np.int64)}, []
    for operation in operations(engine.config):
        if operation.name in names:
            made = engine.operation(operation.name, {role: arrays[name] for role, name in operation.reads.items()})
            for role, name in operation.writes.items():
                np.testing.assert_array_equal(made[role], arrays[name], name)
            found += made.values()
    return digest(*found)


def answers(engine, tokens: list[int], extent: str) -> dict[str, str]:
    """Digests of logits, of every traced array, and of tokens.

    extent: ``long``, three steps after all other tokens; ``steps``, two programs, a trace and a step; ``some``, two
    operations alone too, and how many collectives a step has; ``all``, prompts, the greedy program, a linear of each
    kind alone, and two ways of block diffusion.
    """
    if extent == "long":
        engine.prefill(tokens[:-3])
        return {"logits": digest(*(engine.step(token) for token in tokens[-3:]))}
    trace = engine.trace(tokens[:8])
    engine.reset()
    if extent != "all":
        rows = [engine.step(token) for token in tokens[:3]]
        found = {"trace": digest(*trace.arrays.values()), "logits": digest(*rows)}
        found["tokens"] = digest(np.array([np.argmax(row) for row in rows]))
        if extent == "some":
            found["alone"] = alone(engine, trace, ("layers.0.q", "layers.1.o"))
            found["collectives"], found["for CUDA"] = (str(collectives(engine, p)) for p in ("cpu", "cuda"))
        return found
    logits = [engine.prefill(tokens[:5]), *(engine.step(token)[None] for token in tokens[5:8])]
    engine.reset()
    made = [engine.greedy(tokens[:5])]
    while len(made) < 4:
        made.append(engine.greedy(made[-1:]))
    found = {"trace": digest(*trace.arrays.values()), "logits": digest(*logits), "tokens": digest(np.array(made))}
    found["alone"] = alone(engine, trace, ("layers.0.q", "layers.0.o", "layers.0.up", "layers.0.down"))
    if engine.config.block is not None:
        from tritgold_xla.decode.block_diffusion import block_diffusion
        from tritgold_xla.decode.diffusion_options import preset

        for name in ("fast-dllm-v2", "adaptive"):
            done = block_diffusion(engine, tokens[:9], 40, preset(name))
            found[name] = digest(np.array(done.tokens), np.array(done.order))
    return found


def collectives(engine, platform: str) -> int:
    """How many one step makes, lowered for a platform; those of a layer are in the text of the program once."""
    if engine._shards is None:
        return 0
    program = list(engine._shards._programs.values())[-1]
    place = np.zeros(1, np.int32), np.int32(0), np.int32(1), np.int32(0)
    traced = program.trace(engine._parameters, engine._cache, *place)
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    return text.count("stablehlo.all_reduce") + text.count("stablehlo.all_gather")


@contextmanager
def opened(name: str) -> Iterator[Model]:
    """An embedded model with a shorter context, or one that is made here."""
    if name in ("kjv-ar", "kjv-dlm", "seeded"):
        with embedded_model(name) as path:
            checkpoint = open_checkpoint(path)
            config = replace(checkpoint.config, context=128)
            yield config, checkpoint.weights, np.random.default_rng(1).integers(0, 256, 12).tolist()
        return
    if (FIXTURES / name).is_dir():
        checkpoint = open_checkpoint(FIXTURES / name / "checkpoint")
        yield checkpoint.config, checkpoint.weights, np.random.default_rng(1).integers(0, 50, 12).tolist()
        return
    from engine_cases import LLAMA, MIXED, Matrix, make_weights

    long = replace(MIXED, context=640)
    shapes = {"llama": LLAMA, "mixed": MIXED, "one-wide-row": MIXED, "2b-two-layers": TWO_LAYERS, "long": long}
    config = shapes[name]
    weights = make_weights(config)
    if name in ("2b-two-layers", "one-wide-row"):  # bfloat16 numbers, as the model's are: a head that is cut
        bits = weights.embedding.array.view(np.uint32) & np.uint32(0xFFFF0000)
        if name == "one-wide-row":  # the last process alone has a number that is none
            bits[-1] |= 1
        weights = replace(weights, embedding=Matrix(bits.view(np.float32)))
    count = 600 if name == "long" else 12
    yield config, weights, np.random.default_rng(1).integers(0, config.vocab, count).tolist()


def main(
    models: list[str], ways: list[tuple[str, str | None]], devices: list[int], extent: str = "all"
) -> dict[str, object]:
    """All of them. Where the environment has a seat among processes, one of each alone; only process 0 returns."""
    from tritgold_xla import XlaEngine
    from tritgold_xla.processes.opening import opened as opened_over_processes
    from tritgold_xla.processes.seat import seat_of
    from tritgold_xla.runtime.cache_folder import cache_folder, keep_programs
    from tritgold_xla.runtime.flags import start_with_devices

    if (seat := seat_of(os.environ)) is None:
        start_with_devices(max(devices))
    found: dict[str, dict[str, dict[int, dict[str, str]]]] = {}
    for name in models:
        with opened(name) as (config, weights, tokens):
            for scheme, formulation in ways:

                def make(count: int, scheme=scheme, formulation=formulation, config=config, weights=weights):
                    if os.environ.get("TRITGOLD_CACHE") != "0":
                        keep_programs(cache_folder() / "xla")
                    return XlaEngine(config, weights, config.context, scheme, formulation, screen=False, devices=count)

                of_way = found.setdefault(name, {}).setdefault(f"{scheme}, {formulation}", {})
                for count in devices:
                    print(f"{name} {scheme} {formulation} {count}", file=sys.stderr, flush=True)
                    if seat is None:
                        engine = make(count)
                    else:
                        engine = opened_over_processes(seat, Path(__file__), count, {"model": name}, make)
                    of_way[count] = answers(engine, tokens, extent)
    return found


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
