"""Responds to a request of either API: one JSON object or a stream of events; counted and logged in the same way."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tritgold_conformance.serving import streams
from tritgold_conformance.serving.answering import Generation
from tritgold_conformance.serving.api_errors import ApiError
from tritgold_conformance.serving.service import Service


async def respond(
    request: Request,
    service: Service,
    generation: Generation,
    prompts: Sequence[list[int]],
    events: AsyncIterator[bytes] | None,
    whole: Callable[[], Any],
) -> Response:
    """The response. events: of a stream; None: ``whole`` makes one JSON object when all answers have ended.

    A refused request has its own HTTP status, because a stream starts only after all its answers are accepted; an
    error later in a stream is an event. Without a stream, an answer that the server cuts short is an error, because a
    client would take its text for the whole.
    """
    said = request.state.said
    said["prompt_tokens"] = sum(map(len, prompts))
    if service.prompts:
        said["prompts"] = list(prompts)
    if events is None:
        await streams.unless_gone(_finished(generation), request.receive)
        _count(said, service, generation)
        if any(answer.choosing.shown for answer in generation.answers):
            # The log-probabilities of a whole vocabulary take seconds, in which others are served.
            return await asyncio.to_thread(lambda: streams.answer(whole()))
        return streams.answer(whole())
    await streams.unless_gone(generation.start(), request.receive)

    async def with_error() -> AsyncIterator[bytes]:
        try:
            async for event in events:
                yield event
        except ApiError as error:
            said["error"] = error.code
            yield streams.event(error.body())

    def over() -> None:
        generation.close()
        _count(said, service, generation)

    return streams.EventStream(with_error(), service.limits.write_seconds, over)


async def _finished(generation: Generation) -> None:
    try:
        await generation.start()
        async for _ in generation.deltas():
            pass
    finally:
        generation.close()


def _count(said: dict[str, Any], service: Service, generation: Generation) -> None:
    """Add tokens and reasons to the log entry and to the metrics."""
    answers, metrics = generation.answers, service.metrics
    said["generated_tokens"] = sum(len(answer.tokens) for answer in answers)
    said["reasons"] = [answer.why or "gone" for answer in answers]
    metrics.prompt_tokens.inc(said["prompt_tokens"])
    metrics.tokens.inc(said["generated_tokens"])
    metrics.reused_tokens.inc(sum(answer.reused for answer in answers))
    for reason in said["reasons"]:
        metrics.ended.labels(reason).inc()
