"""The JAX engine. With its two neighbours the only module here that imports ``tritgold_xla``, and only when asked."""

import inspect
import os
import warnings
from collections.abc import Callable, Generator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tritgold.checkpoint import Checkpoint
from tritgold.errors import OutputError, TritgoldWarning
from tritgold_conformance.engines.xla_judged import JudgedXlaEngine

if TYPE_CHECKING:
    from tritgold_xla import XlaEngine as XlaEngine
    from tritgold_xla.decode.block_diffusion import Diffused

    XlaDiffused = Diffused

BAR = 30  # characters
# What the speed of a compiled program depends on beside the machine.
SETTINGS = ("XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR", "NPROC", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")


def open_engine(
    checkpoint: Checkpoint,
    capacity: int,
    kv_cache: str | None = None,
    say: Callable[[str], None] | None = None,
    sequences: int = 1,
) -> "XlaEngine":
    """The XLA engine on a checkpoint, with room for ``capacity`` positions (at most the model's).

    kv_cache: how keys and values are stored, as the engine says by itself where None is given. say: hears how far
    loading is, a bar as text. sequences: texts that are decoded together. Its programs are kept for the next process,
    and what ``tuned`` has found is used. Raises MissingDependencyError without JAX, ConfigError
    for a storage that the engine does not have, EngineError ``tuning-file`` for choices that cannot be read.
    """
    from tritgold_xla import XlaEngine

    _keep_programs()
    room = min(capacity, checkpoint.config.context)
    stored = own_kv_cache() if kv_cache is None else kv_cache
    return XlaEngine(
        checkpoint.config,
        checkpoint.weights,
        room,
        kv_cache=stored,
        sequences=sequences,
        tuning=tuning_file(),
        progress=_bar(say),
    )


def open_judged(checkpoint: Checkpoint, capacity: int, say: Callable[[str], None] | None = None) -> JudgedXlaEngine:
    """The XLA engine as the judge asks it, for ``--engine xla``."""
    return JudgedXlaEngine(open_engine(checkpoint, capacity, say=say))


def _bar(say: Callable[[str], None] | None) -> Callable[[int, int], None] | None:
    """Matrices packed, of how many -> a bar as text, when it has become longer."""
    if say is None:
        return None
    shown = -1

    def progress(done: int, all_: int) -> None:
        nonlocal shown
        length = BAR * done // all_
        if length > shown:
            shown = length
            say(f"packing weights {'━' * length:·<{BAR}} {done} of {all_} matrices")

    return progress


@cache
def _keep_programs() -> None:
    """In XDG_CACHE_HOME/tritgold/xla; not where TRITGOLD_CACHE is 0. A folder that cannot be written is said once."""
    from tritgold_xla.runtime.flags import cache_folder, keep_programs

    if os.environ.get("TRITGOLD_CACHE") == "0":
        return
    try:
        keep_programs(cache_folder() / "xla")
    except OutputError as error:
        text = f"compiled programs are not kept: {error}"
        warnings.warn(text, TritgoldWarning, stacklevel=2)


def tuning_file() -> Path | None:
    """The file of ``tuned``, where there is one."""
    from tritgold_xla.ternary_matmul.tune import default_file

    try:
        file = default_file()
    except OutputError:  # no home, no file
        return None
    return file if os.path.lexists(file) else None


def tuned(out: int, in_: int) -> list[dict[str, Any]]:
    """Measure the ways to multiply a matrix [out, in_] and keep the fastest, which engines opened from now on use.

    One answer for each number of tokens: ``tokens``, ``formulation``, and ``seconds`` of one product by formulation.
    """
    from tritgold_xla.ternary_matmul.tune import tune

    found = tune([(out, in_)])
    return [{"tokens": one.tokens, "formulation": one.formulation, "seconds": one.seconds} for one in found]


def start_with(threads: int) -> None:
    """Raises EngineError ``flags-late`` where JAX has started with another number of threads."""
    from tritgold_xla.runtime.flags import start_with as start

    start(threads)


def own_kv_cache() -> str:
    """How the engine stores keys and values where nobody says."""
    from tritgold_xla import XlaEngine

    return str(inspect.signature(XlaEngine).parameters["kv_cache"].default)


def sizes(engine: "XlaEngine") -> dict[str, int]:
    """Bytes that a decode step reads: ``packed`` of the ternary weights, ``head``, ``kv`` for each position.

    ``screen``: what ``greedy`` reads of it, or of its coarse copy.
    """
    import jax

    parts, cache = engine._parameters, engine._cache
    head = sum(leaf.nbytes for leaf in jax.tree.leaves(parts.head))
    return {
        "packed": sum(leaf.nbytes for leaf in jax.tree.leaves(parts.layers.linears)),
        "head": head,
        "screen": engine.config.vocab * (engine.config.hidden + 12) if engine._screens else head,
        "kv": sum(leaf.nbytes for leaf in cache) // cache.positions,
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
    programs, tuning = jax.config.jax_compilation_cache_dir, tuning_file()
    found |= {} if programs is None else {"JAX_COMPILATION_CACHE_DIR": str(programs)}
    return found | ({} if tuning is None else {"tuning": str(tuning)})


def diffuse(engine: "XlaEngine", prompt: list[int], tokens: int, case: dict[str, Any]) -> tuple[list[int], int]:
    """(tokens, forward passes) of block diffusion; case: a preset and a threshold, or a number of ``passes`` a block.

    With ``passes`` the model need not be one of block diffusion: its last id stands for the mask, each pass decides a
    token, and what is left after the last is filled.
    """
    from tritgold_xla.decode.block_diffusion import block_diffusion
    from tritgold_xla.decode.diffusion_options import BlockOptions, preset

    if "passes" in case:
        mask = engine.config.vocab - 1
        options = BlockOptions(True, (1.0,), block=case["block"], max_passes=case["passes"], mask=mask)
    else:
        options = preset(case["preset"], float(case["threshold"]))
    done = block_diffusion(engine, prompt, tokens, options)
    return done.tokens, len(done.passes)


def blocks_of(
    engine: "XlaEngine", prompt: list[int], tokens: int, decode: str, threshold: float, **sizes: int | None
) -> "Generator[list[int], None, XlaDiffused]":
    """As ``decode_blocks``, a block at a time."""
    from tritgold_xla.decode.block_diffusion import block_by_block
    from tritgold_xla.decode.diffusion_options import preset

    return block_by_block(engine, prompt, tokens, preset(decode, threshold, **sizes))


def decode_blocks(
    engine: "XlaEngine", prompt: list[int], tokens: int, decode: str, threshold: float, **sizes: int | None
) -> "XlaDiffused":
    """Block diffusion by a preset's name. sizes: fields of the engine's ``BlockOptions``. Raises as it does."""
    from tritgold_xla.decode.block_diffusion import block_diffusion
    from tritgold_xla.decode.diffusion_options import preset

    return block_diffusion(engine, prompt, tokens, preset(decode, threshold, **sizes))
