"""Every call of process 0's engine is made by the others: here without JAX's processes, which ``make sharding`` has."""

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field

import numpy as np
import pytest
from streaming_clients import Client, told_rightly

from tritgold.errors import ContextError, EngineError
from tritgold_conformance.commands.launch import two_free_ports
from tritgold_xla.decode.block_program import fill
from tritgold_xla.decode.block_reads import Block
from tritgold_xla.decode.diffusion_options import BlockProgram
from tritgold_xla.processes import opening, starting
from tritgold_xla.processes.led_engine import CALLS, LedEngine, follow, packed, unpacked
from tritgold_xla.processes.opening import file_digest, opened
from tritgold_xla.processes.seat import Seat

PROGRAM = BlockProgram(True, 4, 4, 5, 3, (2,))


@dataclass
class FakeTeam:
    """Calls that are told, told again."""

    calls: list = field(default_factory=list)
    broken: EngineError | None = None
    failed: list = field(default_factory=list)

    def tell(self, call):
        self.calls.append(call)

    def told(self):
        return self.calls.pop(0) if self.calls else None

    def wait(self, work):
        return work()

    def check(self):
        if self.broken:
            raise self.broken

    def fail(self, why):
        self.failed.append(why)
        self.broken = EngineError(why, kind="process-lost")


class FakeEngine:
    """Writes down what it is asked."""

    capacity = 7

    def __init__(self, said):
        self.said = said

    def __getattr__(self, name):
        if name not in CALLS:
            raise AttributeError(name)

        def method(*args, **kwargs):
            self.said.append((name, args, kwargs))
            if args and isinstance(args[0], list) and not args[0]:
                raise ContextError("none", kind="no-tokens")

        return method

    def unheard_of(self):
        pytest.fail("called on one process alone")

    def fork(self, sequences, capacity=None):
        return FakeEngine([*self.said, ("fork", sequences, capacity)])

    def run_on_cache(self, compiled, inputs, block, thing, *, program):
        assert compiled is fill
        self.said.append(("fill", [np.asarray(each).tolist() for each in inputs], block, thing, program))


def test_the_others_make_the_same_calls():
    team, mine, theirs = FakeTeam(), [], []
    led = LedEngine(team, FakeEngine(mine))
    led.reset()
    led.read([1, 2], block=4)
    with pytest.raises(ContextError):
        led.read([])  # refused on all, and nobody ends
    led.step(np.int64(3))
    block = Block(*(np.arange(3, dtype=np.int32) + n for n in range(9)))
    led.run_on_cache(fill, block, None, "a block", program=PROGRAM)
    assert led.capacity == 7  # not a call
    with pytest.raises(AttributeError, match="the others would not call it"):
        led.unheard_of()
    assert len(team.calls) == 5
    follow(team, FakeEngine(theirs), None)
    assert theirs == mine != []


def test_forks_have_numbers_of_their_own():
    team, led = FakeTeam(), None
    led = LedEngine(team, FakeEngine([]))
    one, two = led.fork(2), led.fork(3, 9)
    two.step(1)
    one.step(2)
    three = led.beside(lambda: FakeEngine([]))
    three.step(3)
    assert [call["engine"] for call in team.calls] == [0, 0, 2, 1, 0, 3]
    said = []
    follow(team, FakeEngine([]), lambda: FakeEngine(said))
    assert said == [("step", (3,), {})]


def test_what_another_process_cannot_do_ends_all():
    class Short(FakeEngine):
        def fork(self, sequences, capacity=None):
            raise EngineError("too little", kind="memory")

    team = FakeTeam()
    LedEngine(team, FakeEngine([])).fork(2)
    with pytest.raises(EngineError, match="memory"):
        follow(team, Short([]), None)
    assert len(team.failed) == 1


@pytest.mark.parametrize(
    "value",
    [1, 2.5, None, "a", [1, [2]], {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "c": np.zeros((0, 2), np.int8)}],
)
def test_arguments_survive(value):
    import msgspec

    back = unpacked(msgspec.msgpack.decode(msgspec.msgpack.encode(packed(value))))
    np.testing.assert_equal(back, value)


def test_files_are_compared_by_their_bytes(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"abc")
    (tmp_path / "b.bin").write_bytes(b"")
    whole = file_digest(tmp_path)
    assert file_digest(tmp_path / "a.bin") != whole == file_digest(tmp_path)
    (tmp_path / "a.bin").write_bytes(b"abd")
    assert file_digest(tmp_path) != whole


def test_devices_that_processes_cannot_share(tmp_path):
    with pytest.raises(EngineError, match="a multiple of 2") as raised:
        opened(Seat("127.0.0.1:1", 2, 0), tmp_path, 3, {}, lambda _: None)
    assert raised.value.kind == "devices"


def test_an_engine_that_one_process_cannot_open_ends_all(tmp_path, monkeypatch):
    def make(devices):
        raise EngineError("too little", kind="memory", got=devices)

    team = FakeTeam()
    monkeypatch.setattr(opening, "join", lambda seat, facts: team)
    monkeypatch.setattr(opening, "start_jax", lambda seat: None)
    monkeypatch.setattr("atexit.register", lambda *_: None)
    with pytest.raises(EngineError, match="memory"):
        opened(Seat("127.0.0.1:1", 2, 1), tmp_path, 2, {}, make)
    assert ["too little" in why for why in team.failed] == [True]


def named(monkeypatch, address):
    monkeypatch.setattr(starting.socket, "getaddrinfo", lambda *_: [(0, 0, 0, "", (address, 0))])


@pytest.mark.parametrize("address", ["127.0.1.1", "::1"])
def test_a_machine_whose_name_only_itself_can_reach(monkeypatch, address):
    named(monkeypatch, address)
    with pytest.raises(EngineError, match="/etc/hosts") as raised:
        starting.check_own_name(Seat("host0:7000", 2, 1))
    assert (raised.value.kind, raised.value.got) == ("processes", address)


@pytest.mark.parametrize(("place", "address"), [("host0:7000", "10.0.0.1"), ("127.0.0.1:7000", "127.0.1.1")])
def test_a_machine_that_all_processes_can_reach(monkeypatch, place, address):
    named(monkeypatch, address)
    starting.check_own_name(Seat(place, 2, 1))


RUN = ("run", "seeded", "--backend", "xla", "--ids", "1,2,3", "--json")


def tritgold(*arguments, **options):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environment |= options.pop("env", {})
    command = [sys.executable, "-W", "ignore", "-m", "tritgold_conformance", *arguments]
    return subprocess.Popen(command, env=environment, text=True, stderr=subprocess.PIPE, **options)


def answer(*arguments):
    out, err = (child := tritgold(*arguments, stdout=subprocess.PIPE)).communicate(timeout=1200)
    assert child.returncode == 0, err[-3000:]
    return json.loads(out)


@pytest.mark.sharding
@pytest.mark.parametrize("processes", [2, 4])
def test_processes_answer_as_one(processes):
    alone = answer(*RUN, "--max-tokens", "6")
    together = answer("launch", "--processes", str(processes), *RUN, "--max-tokens", "6")
    assert together["ids"] == alone["ids"]


@pytest.mark.sharding
def test_another_file_is_named_by_both_processes():
    place = f"127.0.0.1:{two_free_ports()}"
    members = [
        tritgold("run", model, *RUN[2:], stdout=subprocess.PIPE,
                 env={"TRITGOLD_COORDINATOR": place, "TRITGOLD_PROCESSES": "2", "TRITGOLD_PROCESS": str(n)})
        for n, model in enumerate(("seeded", "kjv-ar"))
    ]  # fmt: skip
    begin = time.monotonic()
    said = [member.communicate(timeout=60) for member in members]
    assert time.monotonic() - begin < 30
    for member, (out, err) in zip(members, said, strict=True):
        assert member.returncode == 3, err[-3000:]
        assert "processes-differ" in out + err
        assert "process 1, bytes of the model" in out + err


@pytest.fixture(scope="module")
def alone():
    """Eight greedy tokens of one process."""
    from tritgold.checkpoint import open_checkpoint
    from tritgold.golden import embedded_model
    from tritgold_xla import XlaEngine

    with embedded_model("seeded") as path:
        checkpoint = open_checkpoint(path)
        engine = XlaEngine(checkpoint.config, checkpoint.weights, 64)
        tokens = [engine.greedy([1, 2, 3])]
        while len(tokens) < 8:
            tokens.append(engine.greedy(tokens[-1:]))
    return tokens


def sent(port):
    """A connection on which eight tokens are asked for."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    body = {"prompt": [1, 2, 3], "max_tokens": 8, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    return contextlib.closing(connection)


def asked(port):
    with sent(port) as connection:
        return json.loads(connection.getresponse().read())["choices"][0]["token_ids"]


@contextlib.contextmanager
def serving(processes):
    """(members, port) of a server over so many processes."""
    place = f"127.0.0.1:{two_free_ports()}"
    members = [
        tritgold("serve", "seeded", "--backend", "xla", "--port", "0", stdout=subprocess.DEVNULL,
                 env={"TRITGOLD_COORDINATOR": place, "TRITGOLD_PROCESSES": str(processes), "TRITGOLD_PROCESS": str(n)})
        for n in range(processes)
    ]  # fmt: skip
    try:
        lines = (line for line in members[0].stderr if "listening" in line)
        yield members, int(re.search(r':(\d+)"', next(lines))[1])
    finally:
        for member in members:
            member.kill()
            member.wait()
            member.stderr.close()


def ends_with_process_lost(member, dead):
    begin = time.monotonic()
    _, err = member.communicate(timeout=30)
    assert time.monotonic() - begin < 30
    assert member.returncode == 3, err[-3000:]
    assert f"process {dead}" in err
    assert "process-lost" in err


@pytest.mark.sharding
@pytest.mark.parametrize("dead", [0, 1])
@pytest.mark.parametrize("deed", [signal.SIGKILL, signal.SIGSTOP])
def test_a_server_over_two_processes_answers_as_one_until_either_is_lost(dead, deed, alone):
    with serving(2) as (members, port):
        assert asked(port) == alone
        members[dead].send_signal(deed)
        ends_with_process_lost(members[1 - dead], dead)


@pytest.mark.sharding
def test_a_process_killed_under_answers_leaves_none_untold_and_none_wrong():
    """kill -9 of the second process while four streams and two whole answers are under way."""
    streams, body = [True] * 4 + [False] * 2, {"max_tokens": 200, "temperature": 0, "ignore_eos": True}
    with serving(2) as (members, port):
        right = [Client(port, body | {"prompt": [1, 2, n]}, False).wait().tokens for n in range(6)]
        assert [len(tokens) for tokens in right] == [200] * 6
        made = [Client(port, body | {"prompt": [1, 2, n]}, stream) for n, stream in enumerate(streams)]
        until = time.monotonic() + 60
        while not made[0].tokens and time.monotonic() < until:
            time.sleep(0.002)
        members[1].kill()
        told = told_rightly(made, right, streams)
        assert set(told) <= {"error", "broken", "done"}
        assert {"error", "broken"} & set(told)
        ends_with_process_lost(members[0], 1)


@pytest.mark.sharding
def test_where_the_first_process_dies_its_client_hears_it_and_all_others_end(alone):
    with serving(4) as (members, port):
        assert asked(port) == alone
        members[3].send_signal(signal.SIGSTOP)  # so that an answer is under way, and stays so
        with sent(port) as connection:
            time.sleep(1)
            members[0].kill()
            with pytest.raises(ConnectionError):
                connection.getresponse()
        members[3].send_signal(signal.SIGCONT)
        for member in members[1:]:
            ends_with_process_lost(member, 0)
