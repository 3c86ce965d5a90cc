"""The core: one thread that owns a model and steps all live requests together.

Other threads submit jobs and receive events; only this thread touches the model. A job that is refused or fails does
not affect the others. After an unexpected exception every live job receives ``ended``, and the model is made again.
If it cannot be made again, the core stops: waiting jobs receive ``ended``, and later ones are refused.
"""

import contextlib
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Literal, NamedTuple

from tritgold.decode.serving_options import Ending, Request
from tritgold.errors import TritgoldError
from tritgold_conformance.serving.choosing import Chooser, Shown
from tritgold_conformance.serving.served_models import ServedModel

# ``shutdown``: the server stops. ``crashed``: an unforeseen error.
Reason = Ending | Literal["shutdown", "crashed"]


class Event(NamedTuple):
    """What a job receives: first ``accepted`` or ``refused``; then ``token`` for each; at last ``ended``.

    token, shown: only for ``token``. error: why it was refused or failed. reason: why it ended. reused: tokens of the
    prompt that were in the cache; moved: tokens of the prompt whose keys are those of another text.
    """

    kind: Literal["accepted", "refused", "token", "ended"]
    token: int = -1
    shown: Shown | None = None
    reason: Reason | None = None
    error: TritgoldError | None = None
    reused: int = 0
    moved: int = 0


@dataclass(eq=False)
class Job:
    """A text to be continued. hear: called with each event by the core's thread; it must not block.

    since: when it was accepted, by ``time.monotonic``.
    """

    request: Request
    chooser: Chooser
    hear: Callable[[Event], None]
    cancelled: bool = False
    since: float = 0.0


class FullError(Exception):
    """The queue is full. seconds: after which a client may try again."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"the queue is full; try again in {seconds} s")
        self.seconds = seconds


class StoppingError(Exception):
    """The server is stopping and accepts no more requests."""


class Core:
    """The thread. made: makes the model, and again after a crash. places: most jobs at once, waiting ones included.

    say: receives the traceback of a crash.
    """

    def __init__(
        self, made: Callable[[], ServedModel], places: int, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self._made, self.places, self._say = made, places, say
        self.model = made()
        self._inbox = SimpleQueue[Callable[[], None] | None]()
        self._lock = threading.Lock()
        self._held = 0  # submitted jobs that have not ended
        self._live = dict[int, Job]()
        self._stop_at: float | None = None
        self.crashes = 0
        self.lost: Exception | None = None  # why the model could not be made again; then the core has stopped
        self.seconds_a_job = 1.0  # a moving average
        self._thread = threading.Thread(target=self._run, name="tritgold-core", daemon=True)
        self._thread.start()

    @property
    def held(self) -> int:
        """Jobs that have not ended."""
        return self._held

    @property
    def stopping(self) -> bool:
        """Whether new jobs are refused."""
        return self._stop_at is not None

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue all of these jobs or none. Raises FullError, StoppingError."""
        with self._lock:
            if self.stopping:
                raise StoppingError
            if self._held + len(jobs) > self.places:
                raise FullError(max(1, min(60, round(self.seconds_a_job))))
            self._held += len(jobs)
            for job in jobs:
                self._inbox.put(lambda job=job: self._accept(job))  # type: ignore[misc]

    def cancel(self, jobs: Sequence[Job]) -> None:
        """End jobs after the current pass; each receives ``ended``. Nothing happens to jobs that have ended."""
        for job in jobs:
            job.cancelled = True
        self._inbox.put(None)  # wake up

    def stop(self, seconds: float) -> None:
        """Accept no more jobs; live ones may go on for so many seconds and are then ended with ``shutdown``."""
        with self._lock:
            until = time.monotonic() + seconds
            self._stop_at = until if self._stop_at is None else min(until, self._stop_at)
        self._inbox.put(None)

    def join(self, seconds: float) -> None:
        """Wait at most so many seconds until the thread has ended."""
        self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            try:
                for act in self._commands():
                    act()
                self._cancel_gone()
                if self._stop_at is not None and (not self._live or time.monotonic() >= self._stop_at):
                    self._end_all("shutdown")
                    if self._inbox.empty():
                        return
                if self._live:
                    self._step()
            except Exception:
                self._crashed()

    def _commands(self) -> Iterator[Callable[[], None]]:
        """All commands in the inbox; waits for one if no job is live."""
        wait = not self._live and self._stop_at is None
        with contextlib.suppress(Empty):
            while True:
                act = self._inbox.get(block=wait)
                wait = False
                if act is not None:
                    yield act

    def _accept(self, job: Job) -> None:
        try:
            number = self.model.submit(job.request)
        except TritgoldError as error:
            self._tell(job, Event("refused", error=error))
            self._release()
            return
        except Exception:
            self._tell(job, Event("ended", reason="crashed"))
            self._release()
            raise
        self._live[number], job.since = job, time.monotonic()
        self._tell(job, Event("accepted"))

    def _cancel_gone(self) -> None:
        for number, job in list(self._live.items()):
            if job.cancelled:
                self.model.cancel(number)
        self._settle()

    def _step(self) -> None:
        for number, step in self.model.step():
            if (job := self._live.get(number)) is not None:
                self._tell(job, Event("token", step.token, job.chooser.newest))
        self._settle()

    def _settle(self) -> None:
        """Tell jobs that have ended."""
        for number, outcome in list(self.model.outcomes.items()):
            del self.model.outcomes[number]
            if (job := self._live.pop(number, None)) is None:
                continue
            self._release()
            self.seconds_a_job += 0.1 * (time.monotonic() - job.since - self.seconds_a_job)
            reason, error, reused, moved = outcome.reason, outcome.error, outcome.reused, outcome.moved
            self._tell(job, Event("ended", reason=reason, error=error, reused=reused, moved=moved))

    def _end_all(self, reason: Reason) -> None:
        for number, job in list(self._live.items()):
            self.model.cancel(number)
            del self._live[number]
            self._release()
            self._tell(job, Event("ended", reason=reason))
        self.model.outcomes.clear()

    def _crashed(self) -> None:
        self.crashes += 1
        self._say(traceback.format_exc())
        for job in list(self._live.values()):
            self._release()
            self._tell(job, Event("ended", reason="crashed"))
        self._live.clear()
        try:
            self.model = self._made()
        except Exception as error:
            self._say(traceback.format_exc())
            with self._lock:
                self.lost, self._stop_at = error, time.monotonic()

    def _release(self) -> None:
        with self._lock:
            self._held -= 1

    def _tell(self, job: Job, event: Event) -> None:
        with contextlib.suppress(Exception):  # its client may be gone, which must not affect other jobs
            job.hear(event)
