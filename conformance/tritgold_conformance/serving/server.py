"""The server itself: a socket, uvicorn around the application, and an end at which everybody is told."""

import signal
import socket
from types import FrameType

import uvicorn

from tritgold.errors import EngineError
from tritgold_conformance.serving.app import application
from tritgold_conformance.serving.connections import connection_of
from tritgold_conformance.serving.service import Service

SLACK = 5.0  # seconds for the last words after the last text has ended


class Server(uvicorn.Server):
    """Serves until it is told to stop. grace: seconds that texts under way may still take."""

    def __init__(self, service: Service, grace: float) -> None:
        limits = service.limits
        super().__init__(
            uvicorn.Config(
                application(service),
                http=connection_of(service),
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=True,
                lifespan="off",
                ws="none",
                limit_concurrency=limits.connections,
                h11_max_incomplete_event_size=64 << 10,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=int(grace + SLACK),
            )
        )
        self._service, self._grace = service, grace

    def stop(self) -> None:
        """Take no more requests, end the streams with a reason, and return from ``run``."""
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
        """A signal: the first lets texts end, the second one ends them."""
        if self.should_exit:
            self._grace = 0
            self.force_exit = sig == signal.SIGINT
        self.stop()


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises EngineError ``address`` for one that cannot.

    Its protocol is named: asyncio turns Nagle's algorithm off for TCP alone, and with it every answer takes 40 ms more.
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
