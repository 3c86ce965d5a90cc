"""A connection to another process."""

import socket
import struct
import threading
from contextlib import suppress
from typing import Any

import msgspec

_LENGTH = struct.Struct("<I")

Message = dict[str, Any]


class Peer:
    """A connection to another process. patience: seconds of silence."""

    def __init__(self, process: int, connection: socket.socket, patience: float) -> None:
        self.process, self._connection, self._patience = process, connection, patience
        self._sending = threading.Lock()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, message: Message) -> None:
        """Raises OSError where the other end is gone, or takes nothing for as long as the patience lasts."""
        body = msgspec.msgpack.encode(message)
        with self._sending:
            self._connection.settimeout(self._patience)
            self._connection.sendall(_LENGTH.pack(len(body)) + body)

    def receive(self) -> Message:
        """The next message. Raises OSError where the connection ends, or is silent for so long."""
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        message: Message = msgspec.msgpack.decode(self._exactly(length))
        return message

    def _exactly(self, count: int) -> bytes:
        found = bytearray()
        while len(found) < count:
            self._connection.settimeout(self._patience)
            part = self._connection.recv(count - len(found))
            if not part:
                raise ConnectionError("the connection has ended")
            found += part
        return bytes(found)

    def last(self, message: Message | None = None) -> None:
        """Send this and nothing after it: the other end reads all of it. No error where the connection is gone."""
        with suppress(OSError):
            if message is not None:
                self.send(message)
            self._connection.shutdown(socket.SHUT_WR)
