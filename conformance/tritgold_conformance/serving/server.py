"""The server itself: endpoints by path, uvicorn around them, a socket, and an orderly end."""

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable
from types import FrameType

import h11
import uvicorn
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from tritgold.errors import EngineError
from tritgold_conformance.serving import llama_api, openai_api
from tritgold_conformance.serving.api_errors import ApiError
from tritgold_conformance.serving.guard import Guard
from tritgold_conformance.serving.service import Service

SLACK = 5.0  # seconds to send the last responses after the last text has ended
TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
Endpoint = Callable[[Request, Service], Awaitable[Response]]

ENDPOINTS: dict[str, tuple[str, Endpoint]] = {
    "/v1/completions": ("POST", openai_api.completions),
    "/v1/chat/completions": ("POST", openai_api.chat),
    "/v1/models": ("GET", openai_api.models),
    "/v1/models/NAME": ("GET", openai_api.model),
    "/completion": ("POST", llama_api.completion),
    "/props": ("GET", llama_api.props),
    "/tokenize": ("POST", llama_api.tokenize),
    "/detokenize": ("POST", llama_api.detokenize),
    "/health": ("GET", llama_api.health),
    "/metrics": ("GET", llama_api.metrics),
}


def application(service: Service, connections: Callable[[], int] = lambda: 0) -> ASGIApp:
    """The ASGI application of one model. The guard turns exceptions of an endpoint into responses.

    connections: how many there are.
    """

    async def endpoints(scope: Scope, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        known = "/v1/models/NAME" if path.startswith("/v1/models/") else path
        if known not in ENDPOINTS:
            raise ApiError(404, f"no such path; there are {', '.join(ENDPOINTS)}", code="not_found")
        wanted, endpoint = ENDPOINTS[known]
        if method != wanted:
            raise ApiError(405, f"{path} is for {wanted}", code="method_not_allowed")
        response = await endpoint(Request(scope, receive), service)
        await response(scope, receive, send)

    return Guard(endpoints, service, frozenset(ENDPOINTS), connections)


class Server(uvicorn.Server):
    """uvicorn's server with an orderly end. grace: seconds for running texts after it is told to stop."""

    def __init__(self, service: Service, grace: float) -> None:
        super().__init__(
            uvicorn.Config(
                application(service, lambda: len(self.server_state.connections)),
                http=connection_of(service),
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=True,
                lifespan="off",
                ws="none",
                h11_max_incomplete_event_size=64 << 10,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=int(grace + SLACK),
            )
        )
        self._service, self._grace = service, grace

    def stop(self) -> None:
        """Accept no more requests, end all streams with a reason, and return from ``run``."""
        self._service.core.stop(self._grace)
        self._service.diffusion.stop(self._grace)
        self._service.log({"event": "stopping", "held": self._service.core.held + self._service.diffusion.held})
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: a server that has lost its model stops."""
        if self._service.core.lost is not None and not self.should_exit:
            self.stop()
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal: the first lets running texts end for ``grace`` seconds, the second one ends them."""
        if self.should_exit:
            self._grace = 0
            self.force_exit = sig == signal.SIGINT
        self.stop()


def listening(host: str, port: int) -> socket.socket:
    """A listening socket. Raises EngineError ``address`` if the address is not usable.

    Its protocol is given explicitly: asyncio turns Nagle's algorithm off only for sockets whose protocol is TCP, and
    with that algorithm every answer takes 40 ms more.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((host, port))
            made.listen(256)
        except BaseException:
            made.close()
            raise
        return made
    except (OSError, OverflowError) as error:
        hint = "another program may have the port; --port 0 takes a free one"
        raise EngineError(f"cannot listen: {error}", kind="address", thing=f"{host}:{port}", hint=hint) from None


def connection_of(service: Service) -> type[H11Protocol]:
    """uvicorn's connection class, with a time limit for the head of a request: ``limits.head_seconds``.

    It is based on the one of uvicorn's two protocols that limits the bytes of a head. An idle connection has uvicorn's
    own time limit; this limit starts with the first byte of a request, so that sending slowly does not extend it.
    """

    class Connection(H11Protocol):
        _head_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._wait_for_head()

        def data_received(self, data: bytes) -> None:
            if self.conn.their_state is h11.IDLE:
                self._wait_for_head()
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:
                self._stop_waiting()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def _wait_for_head(self) -> None:
            if self._head_timer is None:
                self._head_timer = self.loop.call_later(service.limits.head_seconds, self._too_slow)

        def _stop_waiting(self) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

        def _too_slow(self) -> None:
            service.log({"event": "slow_head"})
            self.transport.write(TOO_SLOW)
            self.transport.close()

    return Connection
