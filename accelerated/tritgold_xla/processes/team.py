"""Several processes, one model: who is there, whether they agree, and whether they still live.

JAX connects the processes and moves the arrays between them (``jax.distributed``, gloo). What it does not do is here:
it expects every process to make the same calls, says nothing of what differs between them, and where one dies the
others wait. Process 0 is asked; it tells the others each call of its engine over a connection of its own, on which
every process says now and then that it lives. A connection that ends, or is silent for ``Seat.patience`` seconds, ends
the call that is being waited for with an EngineError on every process.

The network between the processes is trusted, as JAX itself trusts it: nothing is encrypted or authenticated.
"""

import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from tritgold.errors import EngineError, TritgoldError

PATIENCE = 10.0  # seconds of silence that are taken for a process that is lost
_BEATS = 10  # signs of life in so many seconds
_LENGTH = struct.Struct("<I")
# What starters of processes say of themselves: the number of processes, and which of them this one is.
_COUNTED = (
    ("TRITGOLD_PROCESSES", "TRITGOLD_PROCESS"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("PMI_SIZE", "PMI_RANK"),
    ("SLURM_NTASKS", "SLURM_PROCID"),
)

Message = dict[str, Any]


@dataclass(frozen=True)
class Seat:
    """Which process this is. address: HOST:PORT of process 0; the next port is JAX's. patience: seconds."""

    address: str
    processes: int
    process: int
    patience: float = PATIENCE

    @property
    def place(self) -> tuple[str, int]:
        """Host and port."""
        host, _, port = self.address.rpartition(":")
        return host, int(port)

    @property
    def of_jax(self) -> str:
        """Address of JAX's own coordinator."""
        host, port = self.place
        return f"{host}:{port + 1}"

    @property
    def on_this_machine(self) -> bool:
        """Whether all processes are on this machine: then the port is opened for this machine alone."""
        return self.place[0] in ("127.0.0.1", "::1", "localhost")


def seat_of(environment: "os._Environ[str] | dict[str, str]") -> Seat | None:
    """The seat that the environment names, None where it names no TRITGOLD_COORDINATOR or one process.

    Raises EngineError ``processes`` if a value is not a number or not HOST:PORT.
    """
    address = environment.get("TRITGOLD_COORDINATOR", "")
    if not address:
        return None
    for size, rank in _COUNTED:
        if size in environment and rank in environment:
            said = environment[size], environment[rank]
            break
    else:
        said = "", ""
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal() and all(map(str.isdecimal, said)) and int(said[1]) < int(said[0])):
        raise EngineError(
            "does not say which process this is",
            kind="processes",
            thing="environment",
            got=f"TRITGOLD_COORDINATOR={address}, {said[0] or 'no number'} processes, {said[1] or 'no'} of them",
            expected="HOST:PORT, and TRITGOLD_PROCESSES and TRITGOLD_PROCESS, or those of mpirun or srun",
        )
    patience = float(environment.get("TRITGOLD_PATIENCE") or PATIENCE)
    return Seat(address, int(said[0]), int(said[1]), patience) if int(said[0]) > 1 else None


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

    def close(self) -> None:
        """End the connection."""
        self._connection.close()


class Team:
    """The processes of one model, as one of them sees them: process 0 has all others as peers, they have it alone."""

    def __init__(self, seat: Seat, peers: list[Peer]) -> None:
        self.seat, self.peers = seat, peers
        self.broken: EngineError | None = None
        self._ended = False
        self._calls: list[Message] = []
        self._news = threading.Condition()
        for peer in peers:
            threading.Thread(target=self._listen, args=(peer,), daemon=True).start()
        threading.Thread(target=self._beat, daemon=True).start()

    def tell(self, call: Message) -> None:
        """Process 0: every other is to make this call. Raises the EngineError of a team that is broken."""
        self.check()
        for peer in self.peers:
            self._send(peer, {"call": call})
        self.check()

    def told(self) -> Message | None:
        """Another process: the next call, None where process 0 has ended as it should. Raises as ``tell``."""
        with self._news:
            self._news.wait_for(lambda: self._calls or self.broken)
            if self._calls:
                call = self._calls.pop(0)
                return None if call.get("end") else call
        self.check()
        return None

    def end(self) -> None:
        """Process 0 needs the others no more."""
        if self.broken is None and not self._ended:
            self._ended = True
            for peer in self.peers:
                self._send(peer, {"call": {"end": True}})

    def fail(self, why: str) -> None:
        """This process cannot do what it was told: nor can the others go on."""
        if self._set(lost(self.seat.process, why)):
            for peer in self.peers:
                with suppress(OSError):
                    peer.send({"broken": self.seat.process, "why": why})

    def check(self) -> None:
        """Raises the EngineError of a team that is broken."""
        if self.broken is not None:
            raise self.broken

    def wait(self, work: Callable[[], Any]) -> Any:
        """``work()`` in a thread that is left behind where the team breaks: what waits for a peer cannot be called off.

        Raises what it raises; where the team is broken within a moment of that, the team's error, which is the cause.
        """
        done: list[tuple[Any, BaseException | None]] = []

        def run() -> None:
            outcome: tuple[Any, BaseException | None]
            try:
                outcome = work(), None
            except BaseException as error:  # handed on to the thread that waits
                outcome = None, error
            with self._news:
                done.append(outcome)
                self._news.notify_all()

        threading.Thread(target=run, daemon=True).start()
        with self._news:
            self._news.wait_for(lambda: done or self.broken)
            error = done[0][1] if done else None
            if error is not None and not isinstance(error, TritgoldError):  # of a collective, perhaps
                self._news.wait_for(lambda: self.broken, timeout=self.seat.patience)
        self.check()
        result, error = done[0]
        if error is not None:
            raise error
        return result

    def _send(self, peer: Peer, message: Message) -> None:
        try:
            peer.send(message)
        except OSError as error:
            self._break(peer.process, error)

    def _listen(self, peer: Peer) -> None:
        while self.broken is None:
            try:
                message = peer.receive()
            except OSError as error:
                self._break(peer.process, error)
                return
            if "broken" in message:
                self._set(lost(message["broken"], message["why"]))
            elif "call" in message:
                with self._news:
                    self._calls.append(message["call"])
                    self._news.notify_all()
                if message["call"].get("end"):
                    self._ended = True
                    return

    def _beat(self) -> None:
        while self.broken is None and not self._ended:
            for peer in self.peers:
                self._send(peer, {})
            time.sleep(self.seat.patience / _BEATS)

    def _break(self, process: int, error: OSError) -> None:
        if self._ended:
            return
        why = f"silent for {self.seat.patience:g} s" if isinstance(error, TimeoutError) else "its connection has ended"
        if self._set(lost(process, why)):
            for peer in self.peers:
                if peer.process != process:
                    with suppress(OSError):  # it will see for itself
                        peer.send({"broken": process, "why": why})

    def _set(self, error: EngineError) -> bool:
        with self._news:
            first = self.broken is None
            self.broken = self.broken or error
            self._news.notify_all()
        return first


def lost(process: int, why: str) -> EngineError:
    """The error of every process where one is lost."""
    return EngineError(
        "a process of this model is lost, and the others cannot go on without it",
        kind="process-lost",
        thing=f"process {process}",
        got=why,
        hint="see what it said last, and start all of them again",
    )


def join(seat: Seat, facts: dict[str, str]) -> Team:
    """Meet the other processes, and see that they run the same on the same.

    facts: what must be equal everywhere, by name. Raises EngineError on every process, before anything is computed:
    ``process-missing`` where not all come within twice the patience, ``processes-differ`` naming what differs.
    """
    deadline = time.monotonic() + 2 * seat.patience
    return _lead(seat, facts, deadline) if seat.process == 0 else _follow(seat, facts, deadline)


def _lead(seat: Seat, facts: dict[str, str], deadline: float) -> Team:
    found: dict[int, tuple[Peer, dict[str, str]]] = {}
    with socket.create_server((seat.place[0] if seat.on_this_machine else "", seat.place[1])) as server:
        while len(found) < seat.processes - 1:
            server.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                connection, _ = server.accept()
                hello = (peer := Peer(-1, connection, seat.patience)).receive()
            except TimeoutError:
                missing = [n for n in range(1, seat.processes) if n not in found]
                error = _missing(f"process {', '.join(map(str, missing))}", seat)
                _refuse(found, error)
                raise error from None
            except OSError:
                continue
            peer.process = hello["process"]
            found[peer.process] = peer, hello["facts"]
    for process, (_, theirs) in sorted(found.items()):
        if wrong := [name for name in facts if theirs.get(name) != facts[name]]:
            error = EngineError(
                "this process and process 0 do not run the same",
                kind="processes-differ",
                thing=f"process {process}, {wrong[0]}",
                got=theirs.get(wrong[0], "nothing"),
                expected=facts[wrong[0]],
                hint="give all processes the same file and the same versions",
            )
            _refuse(found, error)
            raise error
    for peer, _ in found.values():
        peer.send({"welcome": True})
    return Team(seat, [peer for peer, _ in found.values()])


def _refuse(found: dict[int, tuple[Peer, dict[str, str]]], error: EngineError) -> None:
    shown = {"message": error.message, "kind": error.kind, "thing": error.thing, "got": error.got,
             "expected": error.expected, "hint": error.hint}  # fmt: skip
    for peer, _ in found.values():
        with suppress(OSError):
            peer.send({"error": {name: None if value is None else str(value) for name, value in shown.items()}})


def _follow(seat: Seat, facts: dict[str, str], deadline: float) -> Team:
    while True:
        try:
            peer = Peer(0, socket.create_connection(seat.place, max(0.01, deadline - time.monotonic())), seat.patience)
            peer.send({"process": seat.process, "facts": facts})
            break
        except OSError:
            if time.monotonic() > deadline:
                raise _missing("process 0", seat) from None
            time.sleep(0.1)
    answer = _answer(peer, deadline + seat.patience)
    if answer is None:
        raise _missing("process 0, which does not answer", seat)
    if "error" in answer:
        raise EngineError(answer["error"].pop("message"), **answer["error"])
    return Team(seat, [peer])


def _answer(peer: Peer, deadline: float) -> Message | None:
    while time.monotonic() < deadline:
        try:
            return peer.receive()
        except TimeoutError:
            continue
        except OSError:
            return None
    return None


def _missing(who: str, seat: Seat) -> EngineError:
    return EngineError(
        "not all processes of this model have come",
        kind="process-missing",
        thing=who,
        got=f"none within {2 * seat.patience:g} s",
        expected=f"{seat.processes} processes at {seat.address}",
        hint="start all of them at the same time; the port and the one after it must be free and reachable",
    )
