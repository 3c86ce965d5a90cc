"""The JAX engine. Only the xla* modules here import ``tritgold_xla``, and only when the engine is requested."""

import inspect
import os
import warnings
from collections.abc import Callable
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

BAR = 30  # characters of a full progress bar
# Environment variables that change the speed of a compiled program.
SETTINGS = ("XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR", "NPROC", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")


def open_engine(
    checkpoint: Checkpoint,
    capacity: int,
    kv_cache: str | None = None,
    say: Callable[[str], None] | None = None,
    sequences: int = 1,
) -> "XlaEngine":
    """The XLA engine on a checkpoint, with room for ``capacity`` positions (at most the model's).

    kv_cache: the scheme for keys and values, the engine's default if None. say: receives the progress of loading, a bar
    as text. sequences: number of texts that are decoded together. Compiled programs are kept for later processes, and
    the choices of ``tuned`` are used. Raises MissingDependencyError without JAX, ConfigError
    for a scheme that the engine does not have, EngineError ``tuning-file`` for choices that cannot be read.
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
    """The XLA engine for the judge (``--engine xla``)."""
    return JudgedXlaEngine(open_engine(checkpoint, capacity, say=say))


def _bar(say: Callable[[str], None] | None) -> Callable[[int, int], None] | None:
    """A function (matrices packed, matrices in all) that passes a bar as text to ``say`` whenever the bar is longer."""
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
    """Keep compiled programs in XDG_CACHE_HOME/tritgold/xla, unless TRITGOLD_CACHE is 0. Warns once if it cannot."""
    from tritgold_xla.runtime.flags import cache_folder, keep_programs

    if os.environ.get("TRITGOLD_CACHE") == "0":
        return
    try:
        keep_programs(cache_folder() / "xla")
    except OutputError as error:
        text = f"compiled programs are not kept: {error}"
        warnings.warn(text, TritgoldWarning, stacklevel=2)


def tuning_file() -> Path | None:
    """The file with the choices of ``tuned``; None if there is none."""
    from tritgold_xla.ternary_matmul.tune import default_file

    try:
        file = default_file()
    except OutputError:  # no home folder, so no file
        return None
    return file if os.path.lexists(file) else None


def tuned(out: int, in_: int) -> list[dict[str, Any]]:
    """Measure the ways to multiply a matrix [out, in_] and store the fastest, for engines that are opened from now on.

    One result for each number of tokens: ``tokens``, ``formulation``, and ``seconds`` of one product by formulation.
    """
    from tritgold_xla.ternary_matmul.tune import tune

    found = tune([(out, in_)])
    return [{"tokens": one.tokens, "formulation": one.formulation, "seconds": one.seconds} for one in found]


def start_with(threads: int) -> None:
    """Set JAX's threads. Raises EngineError ``flags-late`` if JAX has started with another number of threads."""
    from tritgold_xla.runtime.flags import start_with as start

    start(threads)


def own_kv_cache() -> str:
    """The default KV cache scheme of the engine."""
    from tritgold_xla import XlaEngine

    return str(inspect.signature(XlaEngine).parameters["kv_cache"].default)


def sizes(engine: "XlaEngine") -> dict[str, int]:
    """Bytes that a decode step reads: ``packed`` of the ternary weights, ``head``, ``kv`` for each position.

    ``screen``: bytes of the head, or of its coarse copy, that ``greedy`` reads.
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
    """A function that runs a compiled program which reads int32 [rows, columns] once: sums of columns."""
    import jax

    on_device = jax.device_put(buffer)
    program = jax.jit(lambda rows: rows.sum(axis=0))
    return lambda: program(on_device).block_until_ready()


def settings() -> dict[str, str]:
    """The environment variables and options of this process on which compiled programs depend."""
    import jax

    found = {name: os.environ[name] for name in SETTINGS if name in os.environ}
    programs, tuning = jax.config.jax_compilation_cache_dir, tuning_file()
    found |= {} if programs is None else {"JAX_COMPILATION_CACHE_DIR": str(programs)}
    return found | ({} if tuning is None else {"tuning": str(tuning)})


def diffuse(engine: "XlaEngine", prompt: list[int], tokens: int, case: dict[str, Any]) -> tuple[list[int], int]:
    """(tokens, forward passes) of block diffusion; case: a preset and a threshold, or a number of ``passes`` per block.

    With ``passes`` the model need not be trained for block diffusion: its last id is the mask, each pass decides
    one token, and positions that are undecided after the last pass are filled.
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


def decode_blocks(
    engine: "XlaEngine", prompt: list[int], tokens: int, decode: str, threshold: float, **sizes: int | None
) -> "XlaDiffused":
    """Block diffusion with a preset. sizes: fields of the engine's ``BlockOptions``. Raises the errors of both."""
    from tritgold_xla.decode.block_diffusion import block_diffusion
    from tritgold_xla.decode.diffusion_options import preset

    return block_diffusion(engine, prompt, tokens, preset(decode, threshold, **sizes))
