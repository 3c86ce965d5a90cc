"""Block diffusion in the server: one thread, in which texts take turns, one block each.

The tokens of a block are sent when the block is complete. A cancelled text stops before its next pass. Texts share
only the weights, and each has its own cache: the compiled program of a block, like the golden model, reads one text.
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

XLA_WAYS = ("fast-dllm-v2", "fast-dllm-v2-dual", "greedy", "iterative", "adaptive", "small-block")


@dataclass(frozen=True)
class BlockOptions:
    """A preset of block diffusion, and changes to it. None: the value of the preset, or of the model."""

    decode: str = "fast-dllm-v2"
    threshold: float | None = None
    block_size: int | None = None
    sub_block: int | None = None
    max_passes: int | None = None

    def sized(self) -> dict[str, int]:
        """The sizes that are not None, by their names in ``Diffusion``."""
        sizes = {"block": self.block_size, "sub_block": self.sub_block, "max_passes": self.max_passes}
        return {name: size for name, size in sizes.items() if size is not None}

    def diffusion(self, sampling: Sampling = GREEDY) -> Diffusion:
        """The options of the golden decoder. Raises ConfigError."""
        threshold = THRESHOLD if self.threshold is None else self.threshold
        return preset(self.decode, threshold, sampling=sampling, **self.sized())


@dataclass(eq=False)
class BlockJob:
    """A text to be generated. budget: most tokens. stop: ids that end it. hear: as in ``core.Job``."""

    prompt: list[int]
    budget: int
    sampling: Sampling
    stop: tuple[int, ...]
    options: BlockOptions
    hear: Callable[[Event], None]
    cancelled: bool = field(default=False)


class Done(Protocol):
    """What both decoders return at the end of a text."""

    @property
    def tokens(self) -> list[int]:
        """All generated tokens."""

    @property
    def reason(self) -> str:
        """Why it ended."""


class CancelledError(Exception):
    """The text was cancelled."""


Blocks = Generator[list[int], None, Done]  # yields all tokens so far after each block
Decode = Callable[[BlockJob], Blocks]


def reference_blocks(checkpoint: Checkpoint, arithmetic: Arithmetic = GOLDEN_ARITHMETIC) -> Decode:
    """The golden decoder; a cancelled text ends before its next pass."""
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
    """The JAX engine's decoder. Each running text has its own cache, which later texts reuse.

    Raises ConfigError (``unknown-preset``) for a preset that the engine does not have, and for a temperature above 0.
    """
    free: list[xla.XlaEngine] = []

    def decode(job: BlockJob) -> Blocks:
        options = job.options
        if options.decode not in XLA_WAYS or job.sampling.temperature:
            expected = f"{', '.join(XLA_WAYS)}, at temperature 0"
            raise ConfigError("the XLA engine has no such decoder", kind="unknown-preset", got=options.decode,
                              expected=expected)  # fmt: skip
        threshold = THRESHOLD if options.threshold is None else options.threshold
        own = free.pop() if free else engine.fork(1)
        try:
            return (yield from xla.blocks_of(own, job.prompt, job.budget, options.decode, threshold, **options.sized()))
        finally:
            free.append(own)

    return decode


class BlockDiffusion:
    """A thread that decodes texts. places: most jobs at once. together: how many of them take turns; others wait."""

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
        self._live: dict[BlockJob, tuple[Blocks, int]] = {}  # and how many tokens its job has received
        self._changed = threading.Condition()
        self._stopping = False
        self._thread: threading.Thread | None = None

    @property
    def held(self) -> int:
        """Jobs that have not ended."""
        return len(self._jobs)

    def check(self, job: BlockJob) -> None:
        """Raises ConfigError or ContextError if the job cannot be decoded; its ``stop`` must be the model's EOS ids."""
        resolve(job.options.diffusion(job.sampling), self._config)
        check_limits(job.prompt, self._config, job.budget, job.stop, job.sampling)
        if job.stop != tuple(self._config.eos):
            raise ConfigError(
                "block diffusion ends at the model's own end of sequence", kind="block-stop", thing="stop"
            )

    def submit(self, jobs: Sequence[BlockJob]) -> None:
        """Queue all of these jobs or none. Raises FullError, StoppingError."""
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
        """Accept no more jobs; those that are left after so many seconds are ended with ``shutdown``."""
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
        """Decode the next block of a text. Returns the ``ended`` event if it was the last one."""
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
