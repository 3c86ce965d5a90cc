"""Responses that end when the client disconnects: one JSON object, or events with a time limit for each."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tritgold_conformance.serving.api_errors import ApiError

T = TypeVar("T")
DONE = b"data: [DONE]\n\n"


def as_json(value: Any) -> bytes:
    """JSON in UTF-8. NaN and inf, which JSON does not have, raise ValueError."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """One JSON object."""
    return Response(as_json(value), status, headers, media_type="application/json")


def refusal(error: ApiError) -> Response:
    """The response for an error, in OpenAI's form."""
    headers = {} if error.retry is None else {"Retry-After": str(error.retry)}
    if error.status == 503:
        headers["Connection"] = "close"
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return answer(error.body(), error.status, headers)


class ClientGoneError(Exception):
    """The client has disconnected or takes no data."""


async def unless_gone(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    """What ``work`` returns. If the client disconnects first, cancels it and raises ClientGoneError."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGoneError
        return task.result()
    finally:
        for one in (task, gone):
            one.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """Server-sent events. The stream ends if the client has not taken an event after ``seconds``.

    closed: called when the stream is over for any reason.
    """

    def __init__(self, events: AsyncIterator[bytes], seconds: float, closed: Callable[[], None]) -> None:
        super().__init__(None, 200, {"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self.headers["Content-Type"] = "text/event-stream; charset=utf-8"
        if "content-length" in self.headers:
            del self.headers["content-length"]
        self._events, self._seconds, self._closed = events, seconds, closed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all events. Raises ClientGoneError."""
        try:
            await unless_gone(self._write(send), receive)
        finally:
            self._closed()

    async def _write(self, send: Send) -> None:
        async def timely(work: Awaitable[None]) -> None:
            try:
                await asyncio.wait_for(work, self._seconds)
            except TimeoutError:
                raise ClientGoneError from None

        await timely(send({"type": "http.response.start", "status": 200, "headers": self.raw_headers}))
        async for event in self._events:
            await timely(send({"type": "http.response.body", "body": event, "more_body": True}))
        await timely(send({"type": "http.response.body", "body": b"", "more_body": False}))


def event(value: Any) -> bytes:
    """One server-sent event with JSON data."""
    return b"data: " + as_json(value) + b"\n\n"
