"""Block diffusion as a server has it: one text after the other, each with a cache of its own, beside the core.

A text is known when its blocks are, so its tokens come together, at its end. What is cancelled stops before its next
pass. Nothing is shared between texts but the weights.
"""

import contextlib
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Protocol

from tritgold.checkpoint import Checkpoint
from tritgold.decode.autoregressive import check_limits
from tritgold.decode.block_diffusion import block_diffusion
from tritgold.decode.block_model import reference_block_model
from tritgold.decode.diffusion_options import Diffusion, resolve
from tritgold.decode.diffusion_presets import preset
from tritgold.decode.sampling import GREEDY, Sampling
from tritgold.errors import ConfigError, TritgoldError
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC, Arithmetic
from tritgold.options import THRESHOLD
from tritgold_conformance.engines import xla
from tritgold_conformance.serving.core import Event, FullError, StoppingError

XLA_WAYS = ("fast-dllm-v2", "greedy", "iterative", "adaptive")


@dataclass(frozen=True)
class BlockOptions:
    """A way of block diffusion by its preset; None: as the preset, or the model, says."""

    decode: str = "fast-dllm-v2"
    threshold: float | None = None
    block_size: int | None = None
    sub_block: int | None = None
    max_passes: int | None = None

    def sized(self) -> dict[str, int]:
        """The sizes that are given, by the names of ``Diffusion``."""
        sizes = {"block": self.block_size, "sub_block": self.sub_block, "max_passes": self.max_passes}
        return {name: size for name, size in sizes.items() if size is not None}

    def diffusion(self, sampling: Sampling = GREEDY) -> Diffusion:
        """As the golden decoder takes it. Raises ConfigError."""
        threshold = THRESHOLD if self.threshold is None else self.threshold
        return preset(self.decode, threshold, sampling=sampling, **self.sized())


@dataclass(eq=False)
class BlockJob:
    """A text to be generated; ``hear`` as of the core's jobs."""

    prompt: list[int]
    budget: int
    sampling: Sampling
    stop: tuple[int, ...]
    options: BlockOptions
    hear: Callable[[Event], None]
    cancelled: bool = field(default=False)


class Done(Protocol):
    """What both decoders return of a text."""

    @property
    def tokens(self) -> list[int]:
        """Generated."""

    @property
    def reason(self) -> str:
        """Why it ended."""


class CancelledError(Exception):
    """The text is not wanted any more."""


Decode = Callable[[BlockJob], Done]


def reference_blocks(checkpoint: Checkpoint, arithmetic: Arithmetic = GOLDEN_ARITHMETIC) -> Decode:
    """The golden decoder."""
    config = checkpoint.config

    def decode(job: BlockJob) -> Done:
        options = job.options.diffusion(job.sampling)
        capacity = min(len(job.prompt) + job.budget, config.context)
        model = reference_block_model(checkpoint.weights, config, options, capacity, None, arithmetic)

        def watched(*given: Any) -> Any:
            if job.cancelled:
                raise CancelledError
            return model(*given)

        return block_diffusion(job.prompt, config, watched, job.budget, options)

    return decode


class _Watched:
    """An engine that stops before a block where its job is cancelled."""

    def __init__(self, engine: Any, job: BlockJob) -> None:
        self._engine, self._job = engine, job

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def run_on_cache(self, *given: Any, **more: Any) -> Any:
        """As the engine's."""
        if self._job.cancelled:
            raise CancelledError
        return self._engine.run_on_cache(*given, **more)


def xla_blocks(engine: "xla.XlaEngine") -> Decode:
    """The JAX engine's decoder, on a cache of its own for one text."""
    beside: list[xla.XlaEngine] = []

    def decode(job: BlockJob) -> Done:
        if not beside:
            beside.append(engine.fork(1))
        options = job.options
        if options.decode not in XLA_WAYS or job.sampling.temperature:
            expected = f"{', '.join(XLA_WAYS)}, at temperature 0"
            raise ConfigError("the XLA engine decodes otherwise", kind="unknown-preset", got=options.decode,
                              expected=expected)  # fmt: skip
        threshold = THRESHOLD if options.threshold is None else options.threshold
        watched: Any = _Watched(beside[0], job)
        return xla.decode_blocks(watched, job.prompt, job.budget, options.decode, threshold, **options.sized())

    return decode


class BlockDiffusion:
    """A thread that decodes one text after the other. places: jobs that it holds at once."""

    def __init__(
        self, checkpoint: Checkpoint, decode: Decode, places: int, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self._config, self._decode, self._places, self._say = checkpoint.config, decode, places, say
        self._inbox, self._lock = SimpleQueue[BlockJob | None](), threading.Lock()
        self._jobs: list[BlockJob] = []
        self._stopping = False
        self._thread: threading.Thread | None = None

    @property
    def held(self) -> int:
        """Jobs that have not ended."""
        return len(self._jobs)

    def check(self, job: BlockJob) -> None:
        """Raises ConfigError or ContextError for what cannot be decoded."""
        resolve(job.options.diffusion(job.sampling), self._config)
        check_limits(job.prompt, self._config, job.budget, job.stop, job.sampling)
        if job.stop != tuple(self._config.eos):
            raise ConfigError(
                "block diffusion ends at the model's own end of sequence", kind="block-stop", thing="stop"
            )

    def submit(self, jobs: Sequence[BlockJob]) -> None:
        """Hand over jobs, all or none. Raises as the core does."""
        with self._lock:
            if self._stopping:
                raise StoppingError
            if len(self._jobs) + len(jobs) > self._places:
                raise FullError(5)
            self._jobs += jobs
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tritgold-blocks", daemon=True)
                self._thread.start()
        for job in jobs:
            try:
                self.check(job)
            except TritgoldError as error:
                self._ended(job, Event("refused", error=error))
                continue
            _tell(job, Event("accepted"))
            self._inbox.put(job)

    def stop(self, seconds: float) -> None:
        """Take no more; those that are left after so many seconds are ended, and told so."""
        self._stopping = True
        self._inbox.put(None)
        if self._jobs:
            timer = threading.Timer(seconds, self._end_all)
            timer.daemon = True
            timer.start()

    def _end_all(self) -> None:
        for job in list(self._jobs):
            job.cancelled = True
            self._ended(job, Event("ended", reason="shutdown"))

    def _run(self) -> None:
        while (job := self._inbox.get()) is not None:
            event = Event("ended", reason="cancelled")
            try:
                if job.cancelled:
                    raise CancelledError
                done = self._decode(job)
                for token in done.tokens:
                    _tell(job, Event("token", token))
                reason: Any = done.reason
                event = Event("ended", reason=reason)
            except CancelledError:
                pass
            except TritgoldError as error:
                event = Event("ended", reason="failed", error=error)
            except Exception:
                self._say(traceback.format_exc())
                event = Event("ended", reason="crashed")
            self._ended(job, event)

    def _ended(self, job: BlockJob, event: Event) -> None:
        with self._lock:
            if job not in self._jobs:
                return
            self._jobs.remove(job)
        _tell(job, event)


def _tell(job: BlockJob, event: Event) -> None:
    with contextlib.suppress(Exception):
        job.hear(event)
