"""Connections to the server: the head of a request has to come within a time, as its body has."""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from tritgold_conformance.serving.service import Service

TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def connection_of(service: Service) -> type[H11Protocol]:
    """uvicorn's connection, ended where a request's head is not whole ``limits.head_seconds`` after it could begin.

    Of uvicorn's two protocols the one that counts the bytes of a head. A connection that is kept for the next request
    is ended by uvicorn's own time, from the first byte of that request on by this one: a byte at a time gains nothing.
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
