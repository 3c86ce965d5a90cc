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

from tritgold.errors import ContextError, EngineError
from tritgold_conformance.commands.launch import two_free_ports
from tritgold_xla.decode.block_program import Block, fill
from tritgold_xla.decode.diffusion_options import BlockProgram
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


def asked(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    body = {"prompt": [1, 2, 3], "max_tokens": 8, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    with contextlib.closing(connection):
        return json.loads(connection.getresponse().read())["choices"][0]["token_ids"]


@pytest.mark.sharding
@pytest.mark.parametrize("dead", [0, 1])
@pytest.mark.parametrize("deed", [signal.SIGKILL, signal.SIGSTOP])
def test_a_server_over_two_processes_answers_as_one_until_either_is_lost(dead, deed, alone):
    place = f"127.0.0.1:{two_free_ports()}"
    members = [
        tritgold("serve", "seeded", "--backend", "xla", "--port", "0", stdout=subprocess.DEVNULL,
                 env={"TRITGOLD_COORDINATOR": place, "TRITGOLD_PROCESSES": "2", "TRITGOLD_PROCESS": str(n)})
        for n in range(2)
    ]  # fmt: skip
    try:
        for line in members[0].stderr:
            if "listening" in line:
                port = int(re.search(r':(\d+)"', line)[1])
                break
        assert asked(port) == alone
        members[dead].send_signal(deed)
        begin = time.monotonic()
        _, err = members[1 - dead].communicate(timeout=30)
        assert time.monotonic() - begin < 30
        assert members[1 - dead].returncode != 0
        assert f"process {dead}" in err
        assert "process-lost" in err
    finally:
        for member in members:
            member.kill()
            member.wait()
            member.stderr.close()
