"""Signs of life: several processes, one model, and each of them knows when one is lost, and which.

JAX connects the processes and moves the arrays between them (``jax.distributed``, gloo). What it does not do is in this
folder: it expects every process to make the same calls, says nothing of what differs between them, and where one dies
the others wait. Process 0 is asked; it tells the others each call of its engine over a connection of its own, on which
every process says now and then that it lives. A connection that ends, or is silent for ``Seat.patience`` seconds, ends
the call that is being waited for with an EngineError on every process. Process 0 hears it first, for the others have a
connection to it alone, and it does not end before they have heard which one is lost.

The network between the processes is trusted, as JAX itself trusts it: nothing is encrypted or authenticated.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

from tritgold.errors import EngineError, TritgoldError
from tritgold_xla.processes.peer import Message, Peer
from tritgold_xla.processes.seat import Seat

_BEATS = 10  # signs of life in the time that the patience lasts
_FAREWELL = 1.0  # seconds, at most, that the others are given to take the reason before this process may end


class Team:
    """The processes of one model, as one of them sees them: process 0 has all others as peers, they have it alone."""

    def __init__(self, seat: Seat, peers: list[Peer]) -> None:
        self.seat, self.peers = seat, peers
        self.broken: EngineError | None = None
        self._ended = self._breaking = False
        self._calls: list[Message] = []
        self._news = threading.Condition()
        self._listeners = {peer.process: self._thread(self._listen, peer) for peer in peers}
        self._beaters = [self._thread(self._beat, peer) for peer in peers]  # one each: one that takes nothing is alone
        for thread in (*self._listeners.values(), *self._beaters):
            thread.start()

    @staticmethod
    def _thread(work: Callable[[Peer], None], peer: Peer) -> threading.Thread:
        return threading.Thread(target=work, args=(peer,), daemon=True)

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
        """Process 0 needs the others no more; another process that ends before it is lost to all."""
        if self.broken is not None or self._ended:
            return
        if self.seat.process != 0:
            self.fail("it has ended by itself")
        else:
            self._ended = True
            self._part({peer.process: {"call": {"end": True}} for peer in self.peers})

    def fail(self, why: str) -> None:
        """This process cannot do what it was told: nor can the others go on."""
        self._break(self.seat.process, why)

    def check(self) -> None:
        """Raises the EngineError of a team that is broken."""
        if self.broken is not None:
            raise self.broken

    def until_broken(self) -> EngineError:
        """Wait until a process is lost. Returns the error of it."""
        with self._news:
            self._news.wait_for(lambda: self.broken)
        assert self.broken is not None
        return self.broken

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
        except TimeoutError:
            self._break(peer.process, self._silent)
        except OSError:
            pass  # the last message of the other end may still be unread; _listen reads it and names the cause

    @property
    def _silent(self) -> str:
        return f"silent for {self.seat.patience:g} s"

    def _listen(self, peer: Peer) -> None:
        while True:
            try:
                message = peer.receive()
            except TimeoutError:
                return self._break(peer.process, self._silent)
            except OSError:
                return self._break(peer.process, "its connection has ended")
            if "broken" in message:
                self._break(message["broken"], message["why"], heard_from=peer.process)
            elif "call" in message:
                if message["call"].get("end"):
                    self._ended = True
                with self._news:
                    self._calls.append(message["call"])
                    self._news.notify_all()
                if self._ended:
                    return peer.last()

    def _beat(self, peer: Peer) -> None:
        while not (self._breaking or self._ended):
            self._send(peer, {})
            time.sleep(self.seat.patience / _BEATS)

    def _break(self, process: int, why: str, heard_from: int | None = None) -> None:
        """The first of all reasons counts. This process sees it when the others have been told."""
        with self._news:
            if self._ended or self._breaking:
                return
            self._breaking = True
        knowing = (process, heard_from)
        self._part({p.process: {"broken": process, "why": why} for p in self.peers if p.process not in knowing})
        with self._news:
            self.broken = lost(process, why)
            self._news.notify_all()

    def _part(self, words: dict[int, Message]) -> None:
        """Say the last words to these and nothing more to any, and wait until these have heard them.

        Where a socket is closed with something unread, or its process ends, what was sent may never arrive. So this
        process listens until the others have closed their ends, which they do when they have read the last word.
        """
        for peer in self.peers:
            peer.last(words.get(peer.process))
        until = time.monotonic() + min(_FAREWELL, self.seat.patience / 2)
        for process in words:
            if (thread := self._listeners[process]) is not threading.current_thread():
                thread.join(max(0.0, until - time.monotonic()))


def lost(process: int, why: str) -> EngineError:
    """The error of every process where one is lost."""
    return EngineError(
        "a process of this model is lost, and the others cannot go on without it",
        kind="process-lost",
        thing=f"process {process}",
        got=why,
        hint="see what it said last, and start all of them again",
    )
