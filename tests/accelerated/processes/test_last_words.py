"""A process that ends says why, and the others hear it. One process here, and the other ends of its connections."""

import os
import socket
import threading
import time
from contextlib import contextmanager

import pytest

from tritgold.errors import EngineError
from tritgold_xla.processes.led_engine import end_when_broken
from tritgold_xla.processes.peer import Peer
from tritgold_xla.processes.seat import Seat
from tritgold_xla.processes.starting import stdout_to_stderr
from tritgold_xla.processes.team import Team

PATIENCE = 1.0
GOES = 0.2  # seconds after which a thing happens that is waited for


def connected():
    """Two ends of a TCP connection: the reset of a socket that is closed with unread bytes is TCP's."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        return one, server.accept()[0]


@contextmanager
def team_of(process, *others, peer=Peer):
    """The team of one process, and the other ends of its connections."""
    pairs = [connected() for _ in others]
    team = Team(
        Seat("127.0.0.1:1", 3, process, PATIENCE),
        [peer(other, mine, PATIENCE) for other, (mine, _) in zip(others, pairs, strict=True)],
    )
    try:
        yield team, [Peer(process, theirs, 10) for _, theirs in pairs]
    finally:
        for pair in pairs:
            for end in pair:
                end.close()


def broken(team):
    """The error, and how long it took."""
    begin = time.monotonic()
    with pytest.raises(EngineError) as raised:
        team.wait(lambda: time.sleep(5))
    return raised.value, time.monotonic() - begin


def reason(peer):
    """What the other end is told last, its signs of life left out."""
    while not (message := peer.receive()):
        pass
    return message


def later(work):
    timer = threading.Timer(GOES, work)
    timer.daemon = True
    timer.start()


class SlowPeer(Peer):
    """A connection over which a reason takes its time."""

    def send(self, message):
        if message:
            time.sleep(GOES)
        super().send(message)


def test_the_others_are_told_before_a_process_sees_it_and_may_end():
    with team_of(0, 1, 2, peer=SlowPeer) as (team, (one, two)):
        one._connection.close()
        error, seconds = broken(team)
        assert error.thing == "process 1"
        assert seconds > GOES
        for peer in team.peers:
            peer._connection.close()  # as its end would
        assert reason(two) == {"broken": 1, "why": "its connection has ended"}


def test_the_others_have_the_time_to_hear_it():
    with team_of(0, 1, 2) as (team, (one, two)):
        one._connection.close()
        later(two._connection.close)
        assert GOES * 0.9 < broken(team)[1] < PATIENCE / 2


def test_one_that_does_not_hear_it_is_not_waited_for():
    with team_of(0, 1, 2) as (team, (one, _)):
        one._connection.close()
        assert broken(team)[1] < PATIENCE


def test_what_another_says_of_itself_is_passed_on():
    with team_of(0, 1, 2) as (team, (one, two)):
        one.last({"broken": 1, "why": "no memory"})
        error, _ = broken(team)
        assert (error.thing, error.got) == ("process 1", "no memory")
        assert reason(two) == {"broken": 1, "why": "no memory"}


def test_a_connection_that_takes_nothing_more_may_still_have_the_reason():
    with team_of(2, 0) as (team, (zero,)):
        team.peers[0]._connection.shutdown(socket.SHUT_WR)  # every sign of life fails now
        time.sleep(2 * PATIENCE / 10)
        assert team.broken is None
        zero.send({"broken": 1, "why": "silent"})
        assert broken(team)[0].thing == "process 1"


def test_the_end_is_heard_before_the_first_process_ends():
    with team_of(0, 1) as (team, (one,)):
        one.send({})
        later(one._connection.close)
        begin = time.monotonic()
        team.end()
        assert time.monotonic() - begin > GOES * 0.9
        assert team.broken is None


def test_another_process_that_ends_first_is_lost():
    with team_of(1, 0) as (team, (zero,)):
        team.end()
        assert reason(zero) == {"broken": 1, "why": "it has ended by itself"}
        assert broken(team)[0].thing == "process 1"


def test_a_program_that_makes_no_call_is_ended(monkeypatch, capsys):
    ended = []
    monkeypatch.setattr("os._exit", ended.append)
    with team_of(0, 1) as (team, (one,)):
        one._connection.close()
        begin = time.monotonic()
        end_when_broken(team, GOES)
        assert time.monotonic() - begin > GOES * 0.9, "it may end by itself"
    assert ended == [3]
    assert "process 1" in (said := capsys.readouterr().err)
    assert "[process-lost]" in said


def test_what_libraries_print_is_not_on_standard_output(capfd):
    with stdout_to_stderr():
        os.write(1, b"[Gloo]\n")
    os.write(1, b"result\n")
    assert capfd.readouterr() == ("result\n", "[Gloo]\n")
