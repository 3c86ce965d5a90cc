"""The JAX engine. With its two neighbours the only module here that imports ``tritgold_xla``, and only when asked."""

import inspect
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tritgold.checkpoint import Checkpoint
from tritgold.errors import EngineError

if TYPE_CHECKING:
    from tritgold_xla import XlaEngine

# What the speed of a compiled program depends on beside the machine.
SETTINGS = ("XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR", "NPROC", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")


def open_engine(checkpoint: Checkpoint, capacity: int, kv_cache: str | None = None) -> "XlaEngine":
    """The XLA engine on a checkpoint, with room for ``capacity`` positions (at most the model's).

    kv_cache: how keys and values are stored, as the engine says by itself where None is given. Raises
    MissingDependencyError without JAX, EngineError ``not-offered`` for a storage that the engine does not have.
    """
    from tritgold_xla import XlaEngine

    room = min(capacity, checkpoint.config.context)
    if kv_cache is None or kv_cache == own_kv_cache():
        return XlaEngine(checkpoint.config, checkpoint.weights, room)
    if "kv_cache" not in inspect.signature(XlaEngine).parameters:
        raise EngineError("is not offered", kind="not-offered", thing=f"KV cache {kv_cache}", expected=own_kv_cache())
    options: dict[str, Any] = {"kv_cache": kv_cache}
    return XlaEngine(checkpoint.config, checkpoint.weights, room, **options)


def own_kv_cache() -> str:
    """How the engine stores keys and values where nobody says."""
    from tritgold_xla import XlaEngine

    parameter = inspect.signature(XlaEngine).parameters.get("kv_cache")
    return "f32" if parameter is None else str(parameter.default)


def sizes(engine: "XlaEngine") -> dict[str, int]:
    """Bytes that a decode step reads: ``packed`` of the ternary weights, ``head``, ``kv`` for each position.

    ``screen``: what ``greedy`` reads instead of the head, where the engine has it.
    """
    import jax

    parts, cache = engine._parameters, engine._cache
    head = sum(leaf.nbytes for leaf in jax.tree.leaves(parts.head))
    positions = getattr(cache, "positions", engine.capacity)
    return {
        "packed": sum(leaf.nbytes for leaf in jax.tree.leaves(parts.layers.linears)),
        "head": head,
        "screen": engine.config.vocab * (engine.config.hidden + 12) if hasattr(engine, "greedy") else head,
        "kv": sum(leaf.nbytes for leaf in cache) // positions,
    }


def reader(buffer: np.ndarray) -> Callable[[], object]:
    """A compiled program that reads int32 [rows, columns] once: sums of columns."""
    import jax

    on_device = jax.device_put(buffer)
    program = jax.jit(lambda rows: rows.sum(axis=0))
    return lambda: program(on_device).block_until_ready()


def settings() -> dict[str, str]:
    """The environment and the options that compiled programs depend on in this process."""
    import jax

    found = {name: os.environ[name] for name in SETTINGS if name in os.environ}
    cache = jax.config.jax_compilation_cache_dir
    return found | ({} if cache is None else {"JAX_COMPILATION_CACHE_DIR": str(cache)})


def diffuse(engine: "XlaEngine", prompt: list[int], tokens: int, case: dict[str, Any]) -> tuple[list[int], int]:
    """(tokens, forward passes) of block diffusion; case: a preset and a threshold, or a number of ``passes`` a block.

    With ``passes`` the model need not be one of block diffusion: its last id stands for the mask, each pass decides a
    token, and what is left after the last is filled.
    """
    from tritgold_xla.block_diffusion import block_diffusion
    from tritgold_xla.diffusion_options import BlockOptions, preset

    if "passes" in case:
        mask = engine.config.vocab - 1
        options = BlockOptions(True, (1.0,), block=case["block"], max_passes=case["passes"], mask=mask)
    else:
        options = preset(case["preset"], float(case["threshold"]))
    done = block_diffusion(engine, prompt, tokens, options)
    return done.tokens, len(done.passes)
