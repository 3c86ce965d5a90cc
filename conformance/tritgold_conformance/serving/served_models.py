"""The interface between the core and a model, and its two implementations: the golden model, and the JAX engine."""

from typing import Protocol

from tritgold.checkpoint import Checkpoint
from tritgold.decode.autoregressive import Step
from tritgold.decode.scheduler import Scheduler
from tritgold.decode.serving_options import Counters, Outcome, Request, Serving
from tritgold.errors import ConfigError
from tritgold.kv_cache.base import KvScheme
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC
from tritgold_conformance.engines.xla import open_engine
from tritgold_conformance.faults import fault
from tritgold_conformance.faults.fault import Mutant
from tritgold_conformance.serving.xla_scheduler import XlaScheduler

PAGE = 16  # positions


class ServedModel(Protocol):
    """Requests in, tokens out, one pass at a time; ``tritgold.decode.scheduler.Scheduler`` documents the members."""

    counters: Counters
    outcomes: dict[int, Outcome]

    def submit(self, request: Request) -> int:
        """Queue a request. Raises ContextError, and queues nothing, if it can never be served."""

    def cancel(self, number: int) -> None:
        """End a request now."""

    def step(self) -> list[tuple[int, Step]]:
        """One pass for all running requests: (number of the request, its next token)."""

    @property
    def unfinished(self) -> tuple[int, int]:
        """(waiting, running)."""

    @property
    def positions_in_use(self) -> int:
        """Positions of the KV cache that running requests hold; 0 without requests."""


class ReferenceModel(Scheduler):
    """The golden model. Pages that only its radix cache keeps do not count as in use: they are freed when needed."""

    @property
    def unfinished(self) -> tuple[int, int]:
        """(waiting, running)."""
        return len(self.waiting), len(self.running)

    @property
    def positions_in_use(self) -> int:
        """Positions of the pages that are neither free nor evictable."""
        idle = self.pool.free_pages + (0 if self.radix is None else self.radix.evictable_pages)
        return (self.pool.pages - idle) * self.pool.page_size


def positions_within(checkpoint: Checkpoint, scheme: KvScheme, sequences: int, memory: int) -> int:
    """KV-cache positions of all sequences together in ``memory`` bytes; at most the context for each sequence.

    Raises ConfigError (``kv-memory``) if that is less than one page for each sequence.
    """
    config = checkpoint.config
    a_position = config.layers * scheme.bytes_per_token(config)
    least = sequences * PAGE
    positions = min(int(memory // a_position), sequences * config.context)
    if positions < min(least, sequences * config.context):
        raise ConfigError(
            "is too little",
            kind="kv-memory",
            thing="memory of the KV cache",
            got=f"{memory:,} bytes",
            expected=f"at least {int(least * a_position):,} for {sequences} sequences",
            hint="--kv-memory gives more, --max-sequences fewer sequences",
        )
    return positions


def reference_model(
    checkpoint: Checkpoint, serving: Serving, memory: int, defects: tuple[str, ...] = ()
) -> ReferenceModel:
    """The golden model with a KV cache of ``memory`` bytes. defects: names of ``tritgold faults``.

    Raises ConfigError (``kv-memory``, ``defect``), EngineError (``unknown-fault``).
    """
    mutant = faulty(checkpoint, defects)
    positions = positions_within(checkpoint, serving.scheme, serving.max_sequences, memory)
    pages = -(-positions // PAGE)
    sized = Serving(**{**vars(serving), "pages": pages, "page_size": PAGE})
    return ReferenceModel(mutant.checkpoint.weights, mutant.config, sized, mutant.arithmetic)


def faulty(checkpoint: Checkpoint, defects: tuple[str, ...]) -> Mutant:
    """The model with faults of weights or arithmetic.

    Raises ConfigError (``defect``) for a fault of another kind, which no answer would show, and for a fault that does
    not apply to this model.
    """
    mutant = Mutant(checkpoint, GOLDEN_ARITHMETIC)
    for name in defects:
        known = fault(name)
        changed = known.apply(mutant)
        plain = changed is not None and (changed.new_cache, changed.unpack, changed.decoding, changed.text) == (
            mutant.new_cache, mutant.unpack, mutant.decoding, mutant.text,
        )  # fmt: skip
        if changed is None or not plain:
            why = "this model has no place for it" if changed is None else "no fault of weights or arithmetic"
            raise ConfigError(
                f"cannot be served: {why}", kind="defect", thing=name, hint="tritgold faults lists the others"
            )
        mutant = changed
    return mutant


def xla_model(
    checkpoint: Checkpoint,
    sequences: int,
    scheme: KvScheme,
    memory: int,
    reuse: bool = True,
    devices: int = 1,
    cache_reuse: int = 0,
) -> XlaScheduler:
    """The JAX engine over so many devices, with so many sequences, which share ``memory`` bytes of KV cache equally.

    cache_reuse: see ``XlaScheduler``. Raises MissingDependencyError without JAX, ConfigError (``cache-reuse``) if the
    engine cannot move keys, and the errors of ``positions_within`` and of the engine.
    """
    positions = positions_within(checkpoint, scheme, sequences, memory)
    positions, name = positions // sequences, scheme.name
    engine = open_engine(checkpoint, positions, name, sequences=sequences, measure=True, devices=devices)
    if cache_reuse and not engine.movable:
        what = "needs one device, and a model with the same rotary embedding in all layers"
        raise ConfigError(what, kind="cache-reuse", thing="--cache-reuse", hint="do without it")
    return XlaScheduler(engine, reuse, cache_reuse)
