"""One request's answers as they grow: submits jobs to the core, and turns their events into text."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tritgold.decode.serving_options import Request
from tritgold_conformance.serving import api_errors
from tritgold_conformance.serving.api_errors import ApiError, bad
from tritgold_conformance.serving.choosing import Chooser, Choosing, Shown
from tritgold_conformance.serving.core import Event, FullError, Job, StoppingError
from tritgold_conformance.serving.diffusing import BlockJob, BlockOptions
from tritgold_conformance.serving.service import Service
from tritgold_conformance.serving.text_pieces import TextPieces

FINISHES = {"stop": "stop", "length": "length", "context_full": "length", "shutdown": "abort", "cancelled": "abort"}


@dataclass(eq=False)
class Answer:
    """One text to be generated. blocks: options of block diffusion; None: one token per pass.

    hears: whether the prompt's log-probabilities are needed. tokens, shown: of the generated text. reused, moved:
    tokens of the prompt, see ``core.Event``. reason: OpenAI's ``finish_reason``, None while it grows. why: the reason
    of the model or of the server.
    """

    prompt: list[int]
    budget: int
    choosing: Choosing
    stop_ids: tuple[int, ...]
    pieces: TextPieces
    blocks: BlockOptions | None = None
    hears: bool = False
    tokens: list[int] = field(default_factory=list)
    shown: list[Shown | None] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)  # characters of text before each token
    prompt_shown: list[Shown] = field(default_factory=list)
    reused: int = 0
    moved: int = 0
    reason: str | None = None
    why: str | None = None


class Delta(NamedTuple):
    """New text of one answer (its index), and OpenAI's ``finish_reason``, None if it goes on."""

    which: int
    text: str
    reason: str | None


class Generation:
    """The answers of one request, from ``start`` to the end of ``deltas``; ``close`` cancels what is left."""

    def __init__(self, service: Service, answers: Sequence[Answer]) -> None:
        self.answers = list(answers)
        self._service, self._loop = service, asyncio.get_running_loop()
        self._events: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
        self._early = deque[tuple[int, Event]]()
        self._jobs: list[Job | BlockJob] = []
        self._until = time.monotonic() + service.limits.seconds
        self._started, self._first = time.monotonic(), True

    async def start(self) -> None:
        """Submit the answers and wait until all are accepted. Raises ApiError, with status 429 if the queue is full."""
        early: list[tuple[int, Event]] = []
        self._jobs = [self._job(n, answer) for n, answer in enumerate(self.answers)]
        try:
            if any(isinstance(job, BlockJob) for job in self._jobs):
                self._service.diffusion.submit([job for job in self._jobs if isinstance(job, BlockJob)])
            else:
                self._service.core.submit([job for job in self._jobs if isinstance(job, Job)])
        except FullError as full:
            most = self._service.core.places
            if len(self._jobs) > most:
                raise bad("n", f"{len(self._jobs)} answers at once, and the server holds {most}") from None
            raise ApiError(429, str(full), code="queue_full", retry=full.seconds) from None
        except StoppingError:
            raise api_errors.stopping() from None
        waiting = set(range(len(self._jobs)))
        try:
            while waiting:
                n, event = await self._next()
                if event.kind == "refused" and event.error is not None:
                    raise api_errors.of(event.error)
                if event.kind == "ended" and n in waiting:
                    raise _failure(event)
                waiting.discard(n)
                if event.kind != "accepted":  # of an answer that is already being generated
                    early.append((n, event))
        except BaseException:
            self.close()
            raise
        self._early.extend(early)

    async def deltas(self) -> AsyncIterator[Delta]:
        """New text as it arrives. If the server ends an answer, raises ApiError after that answer's last delta."""
        live = set(range(len(self.answers)))
        while live:
            n, event = await self._next()
            if n not in live:
                continue
            for delta in self._told(n, event):
                if delta.reason is not None:
                    live.discard(n)
                    self._cancel(self._jobs[n : n + 1])
                yield delta
            if event.kind == "ended" and event.reason in ("failed", "crashed", "shutdown"):
                raise _failure(event)

    def close(self) -> None:
        """Cancel all answers that have not ended."""
        self._cancel([job for job, answer in zip(self._jobs, self.answers, strict=True) if answer.reason is None])

    def _cancel(self, jobs: Sequence[Job | BlockJob]) -> None:
        for job in jobs:
            job.cancelled = True
        self._service.core.cancel([job for job in jobs if isinstance(job, Job)])

    def _job(self, n: int, answer: Answer) -> Job | BlockJob:
        def hear(event: Event) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._events.put_nowait, (n, event))

        if answer.blocks is not None:
            sampling = answer.choosing.sampling
            return BlockJob(answer.prompt, answer.budget, sampling, answer.stop_ids, answer.blocks, hear)
        chooser = Chooser(answer.choosing, self._service.config, answer.prompt)
        answer.prompt_shown = chooser.read
        request = Request(
            answer.prompt,
            answer.budget,
            answer.choosing.sampling,
            answer.stop_ids,
            chooser.choose,
            chooser.hear if answer.hears else None,
        )
        return Job(request, chooser, hear)

    async def _next(self) -> tuple[int, Event]:
        if self._early:
            return self._early.popleft()
        left = self._until - time.monotonic()
        try:
            return await asyncio.wait_for(self._events.get(), max(left, 0.001))
        except TimeoutError:
            seconds = self._service.limits.seconds
            raise ApiError(504, f"the request took longer than {seconds:g} s", code="timeout") from None

    def _told(self, n: int, event: Event) -> list[Delta]:
        answer = self.answers[n]
        if event.kind == "token":
            if self._first:
                self._first = False
                self._service.metrics.first_token.observe(time.monotonic() - self._started)
            answer.offsets.append(len(answer.pieces.text))
            answer.tokens.append(event.token)
            answer.shown.append(event.shown)
            # The token that ends a text is not part of it.
            text = "" if event.token in answer.stop_ids else answer.pieces.push(event.token)
            answer.reason = "stop" if answer.pieces.stopped else None
            answer.why = "stop_text" if answer.reason else None
            return [Delta(n, text, answer.reason)]
        if event.kind == "ended":
            answer.reused, answer.moved, answer.why = event.reused, event.moved, event.reason
            answer.reason = FINISHES.get(event.reason or "", "abort")
            return [Delta(n, answer.pieces.finish(), answer.reason)]
        return []


def _failure(event: Event) -> ApiError:
    if event.error is not None:
        return api_errors.of(event.error)
    if event.reason == "shutdown":
        return api_errors.stopping()
    return ApiError(500, "the engine failed and was started again; send the request again", code="engine_failed")
