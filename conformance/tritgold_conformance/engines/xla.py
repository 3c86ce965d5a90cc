"""The JAX engine. Only the xla* modules here import ``tritgold_xla``, and only when the engine is requested."""

import inspect
import os
import re
import warnings
from collections.abc import Callable, Generator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tritgold.checkpoint import Checkpoint
from tritgold.errors import EngineError, OutputError, TritgoldWarning
from tritgold_conformance.engines.xla_judged import JudgedXlaEngine

if TYPE_CHECKING:
    from tritgold_xla import XlaEngine as XlaEngine
    from tritgold_xla.decode.block_diffusion import Diffused
    from tritgold_xla.weights_cache.prepared import KeptWeights

    XlaDiffused = Diffused

BAR = 30  # characters
CACHE_GB = "TRITGOLD_CACHE_GB"
# What the speed of a compiled program depends on beside the machine.
SETTINGS = ("XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR", "NPROC", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")


def open_engine(
    checkpoint: Checkpoint,
    capacity: int,
    kv_cache: str | None = None,
    say: Callable[[str], None] | None = None,
    sequences: int = 1,
    measure: bool = False,
    devices: int = 1,
) -> "XlaEngine":
    """The XLA engine on a checkpoint, with room for ``capacity`` positions (at most the model's).

    kv_cache: how keys and values are stored, as the engine says by itself where None is given. say: hears how far
    loading is, a bar as text. sequences: texts that are decoded together. Its programs and its packed weights are
    kept for the next process, and what ``tuned`` has found is used. measure: where it has nothing for this machine and
    model, measure for two seconds; not where nothing is to be kept. devices: over how many of JAX's devices the model
    is cut; where JAX has not started, it takes the processor for so many.

    Raises MissingDependencyError without JAX, ConfigError for a storage that the engine does not have, EngineError
    ``tuning-file`` for choices that cannot be read, ``cache-size``, and ``devices`` where JAX has started with fewer.
    """
    from tritgold_xla import XlaEngine
    from tritgold_xla.processes.opening import opened
    from tritgold_xla.processes.seat import seat_of
    from tritgold_xla.runtime.flags import start_with_devices

    room = min(capacity, checkpoint.config.context)
    stored = own_kv_cache() if kv_cache is None else kv_cache

    def make(count: int) -> XlaEngine:
        _keep_programs()
        return XlaEngine(
            checkpoint.config,
            checkpoint.weights,
            room,
            kv_cache=stored,
            sequences=sequences,
            tuning="auto" if measure and _cache_is_on() else tuning_file(),
            progress=_bar(say),
            kept_weights=kept_weights(),
            devices=count,
        )

    if (seat := seat_of(os.environ)) is not None:
        about = {"positions": str(room), "KV cache": stored, "sequences": str(sequences)}
        led: Any = opened(seat, checkpoint.path, devices, about, make)
        return led
    if devices > 1:
        start_with_devices(devices)
    return make(devices)


def open_judged(
    checkpoint: Checkpoint, capacity: int, say: Callable[[str], None] | None = None, devices: int = 1
) -> JudgedXlaEngine:
    """The XLA engine as the judge asks it, for ``--engine xla``."""
    return JudgedXlaEngine(open_engine(checkpoint, capacity, say=say, devices=devices))


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
    """In XDG_CACHE_HOME/tritgold/xla; not where TRITGOLD_CACHE is off. A folder that cannot be written is said once."""
    from tritgold_xla.runtime.flags import cache_folder, keep_programs

    if not _cache_is_on():
        return
    try:
        keep_programs(cache_folder() / "xla")
    except OutputError as error:
        text = f"compiled programs are not kept: {error}"
        warnings.warn(text, TritgoldWarning, stacklevel=2)


def kept_weights() -> "KeptWeights | None":
    """In XDG_CACHE_HOME/tritgold/weights, TRITGOLD_CACHE_GB at most; None where nothing is to be kept.

    Raises EngineError ``cache-size`` where TRITGOLD_CACHE_GB is not a number of gigabytes.
    """
    from tritgold_xla.runtime.flags import cache_folder
    from tritgold_xla.weights_cache.prepared import KeptWeights

    said = os.environ.get(CACHE_GB, "")
    if said and not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", said):
        hint = "0 keeps no prepared weights; TRITGOLD_CACHE=off keeps nothing at all"
        raise EngineError(
            "is not a size", kind="cache-size", thing=CACHE_GB, got=repr(said), expected="gigabytes, 16", hint=hint
        )
    if not _cache_is_on() or (said and float(said) == 0):
        return None
    try:
        folder = cache_folder() / "weights"
    except OutputError:  # no home: said by ``_keep_programs``
        return None
    return KeptWeights(folder, int(float(said) * 1e9)) if said else KeptWeights(folder)


def _cache_is_on() -> bool:
    return os.environ.get("TRITGOLD_CACHE", "").lower() not in ("0", "off")


def tuning_file() -> Path | None:
    """The file with the choices of ``tuned``; None if there is none."""
    from tritgold_xla.ternary_matmul.tune import default_file

    try:
        file = default_file()
    except OutputError:  # no home folder, so no file
        return None
    return file if os.path.lexists(file) else None


def choices_here() -> list[str]:
    """What was measured on this machine, a line a matrix and number of tokens; empty where nothing was.

    Raises EngineError ``tuning-file``, MissingDependencyError without JAX.
    """
    file = tuning_file()
    if file is None:
        return []
    from tritgold_xla.ternary_matmul.tune import measured_here

    return [f"{one.out}x{one.in_}, {one.tokens} tokens: {one.formulation}" for one in measured_here(file)]


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
    """Block diffusion with a preset. sizes: fields of the engine's ``BlockOptions``. Raises the errors of both."""
    from tritgold_xla.decode.block_diffusion import block_diffusion
    from tritgold_xla.decode.diffusion_options import preset

    return block_diffusion(engine, prompt, tokens, preset(decode, threshold, **sizes))
