"""Block diffusion as a server has it: texts take turns, a block each, with a cache of its own, beside the core.

The tokens of a block come when it is done. What is cancelled stops before its next pass. Nothing is shared between
texts but the weights: the compiled program of a block is of one text, and the golden model reads one at a time.
"""

import contextlib
import threading
import traceback
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tritgold.checkpoint import Checkpoint
from tritgold.decode.autoregressive import check_limits
from tritgold.decode.block_diffusion import block_by_block
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


Blocks = Generator[list[int], None, Done]  # all tokens so far, after each block
Decode = Callable[[BlockJob], Blocks]


def reference_blocks(checkpoint: Checkpoint, arithmetic: Arithmetic = GOLDEN_ARITHMETIC) -> Decode:
    """The golden decoder."""
    config = checkpoint.config

    def decode(job: BlockJob) -> Blocks:
        options = job.options.diffusion(job.sampling)
        capacity = min(len(job.prompt) + job.budget, config.context)
        model = reference_block_model(checkpoint.weights, config, options, capacity, None, arithmetic)

        def watched(*given: Any) -> Any:
            if job.cancelled:
                raise CancelledError
            return model(*given)

        return block_by_block(job.prompt, config, watched, job.budget, options)

    return decode


def xla_blocks(engine: "xla.XlaEngine") -> Decode:
    """The JAX engine's decoder; each text that is under way has a cache of its own, made when there is none free."""
    free: list[xla.XlaEngine] = []

    def decode(job: BlockJob) -> Blocks:
        options = job.options
        if options.decode not in XLA_WAYS or job.sampling.temperature:
            expected = f"{', '.join(XLA_WAYS)}, at temperature 0"
            raise ConfigError("the XLA engine decodes otherwise", kind="unknown-preset", got=options.decode,
                              expected=expected)  # fmt: skip
        threshold = THRESHOLD if options.threshold is None else options.threshold
        own = free.pop() if free else engine.fork(1)
        try:
            return (yield from xla.blocks_of(own, job.prompt, job.budget, options.decode, threshold, **options.sized()))
        finally:
            free.append(own)

    return decode


class BlockDiffusion:
    """A thread that decodes texts. places: jobs that it holds at once. together: of which so many take turns."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        decode: Decode,
        places: int,
        say: Callable[[str], None] = lambda _: None,
        together: int = 1,
    ) -> None:
        self._config, self._decode, self._places, self._say = checkpoint.config, decode, places, say
        self._together = together
        self._jobs: list[BlockJob] = []  # in the order in which they came
        self._live: dict[BlockJob, tuple[Blocks, int]] = {}  # and how many tokens were told
        self._changed = threading.Condition()
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
        with self._changed:
            if self._stopping:
                raise StoppingError
            if len(self._jobs) + len(jobs) > self._places:
                raise FullError(5)
            for job in jobs:
                try:
                    self.check(job)
                except TritgoldError as error:
                    _tell(job, Event("refused", error=error))
                    continue
                _tell(job, Event("accepted"))
                self._jobs.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tritgold-blocks", daemon=True)
                self._thread.start()
            self._changed.notify()

    def stop(self, seconds: float) -> None:
        """Take no more; those that are left after so many seconds are ended, and told so."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._jobs:
            timer = threading.Timer(seconds, self._end_all)
            timer.daemon = True
            timer.start()

    def _end_all(self) -> None:
        for job in list(self._jobs):
            job.cancelled = True
            self._ended(job, Event("ended", reason="shutdown"))

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs or self._stopping)
                jobs = list(self._jobs)
            for gone in [job for job in self._live if job not in jobs]:
                self._live.pop(gone)[0].close()
            if not jobs:
                if self._stopping:
                    return
                continue
            wanted = [job for job in jobs if not job.cancelled]
            for job in [*(job for job in jobs if job.cancelled), *wanted[: self._together]]:
                if (end := self._turn(job)) is not None:
                    self._ended(job, end)

    def _turn(self, job: BlockJob) -> Event | None:
        """The next block of a text; what its job hears at its end."""
        try:
            if job.cancelled:
                raise CancelledError
            blocks, told = self._live.setdefault(job, (self._decode(job), 0))
            try:
                tokens, reason = next(blocks), None
            except StopIteration as done:
                tokens, reason = done.value.tokens, done.value.reason
            for token in tokens[told:]:
                _tell(job, Event("token", token))
            self._live[job] = blocks, len(tokens)
            return None if reason is None else Event("ended", reason=reason)
        except CancelledError:
            return Event("ended", reason="cancelled")
        except TritgoldError as error:
            return Event("ended", reason="failed", error=error)
        except Exception:
            self._say(traceback.format_exc())
            return Event("ended", reason="crashed")

    def _ended(self, job: BlockJob, event: Event) -> None:
        with self._changed:
            if job not in self._jobs:
                return
            self._jobs.remove(job)
        _tell(job, event)


def _tell(job: BlockJob, event: Event) -> None:
    with contextlib.suppress(Exception):
        job.hear(event)
