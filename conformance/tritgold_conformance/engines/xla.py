"""The JAX engine. Only the xla* modules here import ``tritgold_xla``, and only when the engine is requested."""

import inspect
import os
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import numpy as np

from tritgold.checkpoint import Checkpoint
from tritgold_conformance.comparing.activation_statistics import MOMENTS, moments
from tritgold_conformance.engines.xla_kept import cache_is_on, keep_programs, kept_weights, tuning_file

if TYPE_CHECKING:
    from tritgold_xla import XlaEngine as XlaEngine
    from tritgold_xla.decode.block_diffusion import Diffused

    XlaDiffused = Diffused

BAR = 30  # characters
MOST_SHOWN = 4096  # log-probabilities of one next token: all of a small vocabulary


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

    kv_cache: name of a KV-cache scheme; None: the engine's default. say: receives the progress of loading, a bar as
    text. sequences: texts that are decoded together. devices: over how many of JAX's devices the model is cut; if JAX
    has not started, it starts with so many devices on the processor. measure: if ``tuned`` has stored nothing for this
    machine and model, measure for two seconds, unless TRITGOLD_CACHE is off. Compiled programs and packed weights are
    kept for the next process.

    Raises MissingDependencyError without JAX, ConfigError for a scheme that the engine does not have, EngineError
    ``tuning-file`` for choices that cannot be read, ``cache-size``, and ``devices`` if JAX has started with fewer.
    """
    from tritgold_xla import XlaEngine
    from tritgold_xla.processes.opening import opened
    from tritgold_xla.processes.seat import seat_of
    from tritgold_xla.runtime.flags import start_with_devices

    room = min(capacity, checkpoint.config.context)
    stored = own_kv_cache() if kv_cache is None else kv_cache

    def make(count: int) -> XlaEngine:
        keep_programs()
        return XlaEngine(
            checkpoint.config,
            checkpoint.weights,
            room,
            kv_cache=stored,
            sequences=sequences,
            tuning="auto" if measure and cache_is_on() else tuning_file(),
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


class JudgedXlaEngine:
    """An XlaEngine with ``statistics`` and ``complete`` for the judge. All other attributes are the engine's."""

    def __init__(self, engine: "XlaEngine") -> None:
        self._engine = engine
        self._beside: XlaEngine | None = None  # made at its first use
        self._read = list[int]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def statistics(self, tokens: list[int]) -> dict[str, dict[str, float]]:
        """MOMENTS of every array of ``trace``, over all its elements; inf if one is not finite."""
        arrays = self._engine.trace(tokens).arrays
        return {name: dict(zip(MOMENTS, moments(array).tolist(), strict=True)) for name, array in arrays.items()}

    def complete(self, tokens: list[int]) -> tuple[int, dict[int, float]]:
        """(the token of the largest logit, {id: log-probability} of the MOST_SHOWN most likely); log-softmax, float64.

        Computed by steps of a fork with its own cache: tokens that are the last ones and one more need only one step.
        """
        self._beside = self._beside or self._engine.fork(1)
        known, self._read = self._read, []  # forgotten first, so that an error leaves no text to continue
        if known and tokens[:-1] == known:
            logits = self._beside.step(tokens[-1])
        else:
            self._beside.reset()
            logits = self._beside.read(tokens)
        self._read = list(tokens)
        shifted = logits.astype(np.float64) - float(logits.max())
        logprobs = shifted - np.log(np.exp(shifted).sum())
        likeliest = np.argsort(-logprobs, kind="stable")[:MOST_SHOWN]
        return int(likeliest[0]), dict(zip(likeliest.tolist(), logprobs[likeliest].tolist(), strict=True))


def open_judged(
    checkpoint: Checkpoint, capacity: int, say: Callable[[str], None] | None = None, devices: int = 1
) -> JudgedXlaEngine:
    """The XLA engine with all methods for the judge, for ``--engine xla``. Arguments as of ``open_engine``."""
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


def diffuse(engine: "XlaEngine", prompt: list[int], tokens: int, case: dict[str, Any]) -> tuple[list[int], int]:
    """(tokens, forward passes) of block diffusion; case: a preset and a threshold, or a number of ``passes`` per block.

    With ``block`` the model need not be trained for block diffusion: its last id is the mask. With ``passes`` each
    pass decides one token, and positions that are undecided after the last pass are filled.
    """
    from tritgold_xla.decode.block_diffusion import block_diffusion
    from tritgold_xla.decode.diffusion_options import BlockOptions, preset

    block, mask = case.get("block"), engine.config.vocab - 1 if "block" in case else None
    if "passes" in case:
        options = BlockOptions(True, (1.0,), block=block, max_passes=case["passes"], mask=mask)
    else:
        options = preset(case["preset"], float(case["threshold"]), block=block, mask=mask)
    done = block_diffusion(engine, prompt, tokens, options)
    return done.tokens, len(done.passes)


def blocks_of(
    engine: "XlaEngine", prompt: list[int], tokens: int, decode: str, threshold: float, **sizes: int | None
) -> "Generator[list[int], None, XlaDiffused]":
    """As ``decode_blocks``, but a generator: yields all tokens so far after each block."""
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
