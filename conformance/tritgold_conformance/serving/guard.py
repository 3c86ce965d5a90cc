"""Before every endpoint: checks host, key, size and time of a request, logs it, and turns exceptions into responses."""

import asyncio
import hashlib
import hmac
import ipaddress
import secrets
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tritgold_conformance.serving.api_errors import ApiError
from tritgold_conformance.serving.service import Service
from tritgold_conformance.serving.streams import ClientGoneError, refusal

OPEN = ("/health",)  # needs no key, and is answered even if the server is busy


class Guard:
    """An ASGI application around another. ``scope["state"]`` gets ``body``, the whole body, and ``said``, a dictionary.

    Endpoints add fields of the log entry to ``said``. paths: the known ones; the log and the metrics name no others.
    connections: how many there are.
    """

    def __init__(
        self, app: ASGIApp, service: Service, paths: frozenset[str], connections: Callable[[], int] = lambda: 0
    ) -> None:
        self._app, self._service, self._paths, self._flying = app, service, paths, 0
        self._connections = connections
        self._keys = [hashlib.sha256(key.encode()).digest() for key in service.limits.keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status, metrics = time.monotonic(), [0], self._service.metrics
        said: dict[str, Any] = {}
        number = secrets.token_hex(8)

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                status[0] = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", number.encode())]
            await send(message)

        metrics.in_flight.inc()
        self._flying += 1
        try:
            await self._answer(scope, receive, counted, said)
        except ClientGoneError:
            said["gone"] = True
        except ApiError as error:
            said["error"] = error.code
            await self._refuse(error, scope, receive, counted, status)
        except Exception:
            self._service.log({"event": "error", "id": number, "traceback": traceback.format_exc()})
            failed = ApiError(500, "the server failed; its log says why", code="internal_error")
            await self._refuse(failed, scope, receive, counted, status)
        finally:
            self._flying -= 1
            metrics.in_flight.dec()
            seconds = time.monotonic() - started
            path = scope["path"] if scope["path"] in self._paths else "other"
            metrics.requests.labels(path, str(status[0])).inc()
            metrics.seconds.observe(seconds)
            fields = {"event": "request", "id": number, "method": scope["method"], "path": path, "status": status[0]}
            self._service.log({**fields, "seconds": round(seconds, 4), **said})

    async def _answer(self, scope: Scope, receive: Receive, send: Send, said: dict[str, Any]) -> None:
        headers = dict(scope["headers"])
        self._check_host(headers)
        if scope["path"] not in OPEN:
            self._check_key(headers)
            if self._connections() > self._service.limits.connections:
                raise ApiError(503, "too many connections", code="too_many_connections", retry=1)
            if self._flying > self._service.limits.requests:
                raise ApiError(429, "too many requests at once", code="too_many_requests", retry=1)
        body = b""
        if scope["method"] == "POST":
            kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
            # A page of another site can make a browser send other types without a preflight request, but not JSON.
            if kind != b"application/json":
                raise ApiError(415, "send Content-Type: application/json", code="content_type")
            body = await self._body(receive, headers)
        scope.setdefault("state", {}).update(body=body, said=said)
        await self._app(scope, receive, send)

    async def _refuse(self, error: ApiError, scope: Scope, receive: Receive, send: Send, status: list[int]) -> None:
        if not status[0]:  # otherwise the response has already begun
            with suppress(OSError):
                await refusal(error)(scope, receive, send)

    def _check_host(self, headers: dict[bytes, bytes]) -> None:
        """Refuse other host names, against DNS rebinding: a page of a site whose name resolves to this machine."""
        if not self._service.local:
            return
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = host[1 : host.find("]")] if host.startswith("[") else host.partition(":")[0]
        with suppress(ValueError):
            ipaddress.ip_address(name)
            return
        if name not in ("localhost", ""):
            raise ApiError(403, "the server answers only for localhost", code="host")

    def _check_key(self, headers: dict[bytes, bytes]) -> None:
        if not self._keys:
            return
        scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
        given = hashlib.sha256(key.strip()).digest()
        fits = [hmac.compare_digest(given, known) for known in self._keys]
        if scheme.lower() != b"bearer" or not any(fits):
            raise ApiError(401, "send Authorization: Bearer KEY, with one of the server's keys", code="invalid_api_key")

    async def _body(self, receive: Receive, headers: dict[bytes, bytes]) -> bytes:
        """The whole body. Raises ApiError 413 or 408 above the limits, ClientGoneError if the client disconnects."""
        limits = self._service.limits
        too_large = ApiError(413, f"the body has more than {limits.body} bytes", code="body_too_large")
        with suppress(ValueError):
            if int(headers.get(b"content-length", b"0")) > limits.body:
                raise too_large
        found = bytearray()
        until = time.monotonic() + limits.body_seconds
        while True:
            try:
                message = await asyncio.wait_for(receive(), max(until - time.monotonic(), 0.001))
            except TimeoutError:
                raise ApiError(408, "the body took too long", code="body_timeout") from None
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            found += message.get("body", b"")
            if len(found) > limits.body:
                raise too_large
            if not message.get("more_body"):
                return bytes(found)
