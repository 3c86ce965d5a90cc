"""Agreement: the processes meet, and see that they run the same on the same before anything is computed."""

import socket
import time
from contextlib import suppress

from tritgold.errors import EngineError
from tritgold_xla.processes.peer import Message, Peer
from tritgold_xla.processes.seat import Seat
from tritgold_xla.processes.team import Team


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
