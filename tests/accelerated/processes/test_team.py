"""What breaks between processes ends in an error of ours on all of them, in time. Real processes, no arithmetic."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tritgold.errors import EngineError
from tritgold_xla.processes.seat import PATIENCE, Seat, seat_of

MEMBER = Path(__file__).parent.parent / "helpers" / "team_member.py"
SHORT = 1.5  # seconds of patience
SAME = {"jax": "1", "bytes of the model": "abc"}


def started(deeds, facts=None, patience=SHORT, processes=None):
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    facts = facts or [SAME] * len(deeds)
    return [
        subprocess.Popen(
            [
                sys.executable,
                str(MEMBER),
                address,
                str(processes or len(deeds)),
                str(number),
                str(patience),
                json.dumps(facts[number]),
                deed,
            ],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number, deed in enumerate(deeds)
    ]


def ended(members, seconds):
    """(exit code, last line) of each, all of them within so many seconds."""
    limit = time.monotonic() + seconds
    found = []
    for member in members:
        out, _ = member.communicate(timeout=max(0.1, limit - time.monotonic()))
        found.append((member.returncode, out.strip().splitlines()[-1]))
    return found


def errors(found):
    assert [code for code, _ in found] == [3] * len(found)
    return [json.loads(line) for _, line in found]


def test_all_meet_and_end_when_the_first_ends():
    assert ended(started(["lead", "wait", "wait"]), 30) == [(0, "met")] * 3


@pytest.mark.parametrize("dead", [0, 1])
def test_a_process_that_dies_ends_the_others(dead):
    deeds = ["hang", "hang", "wait"]
    deeds[dead] = "die"
    members = started(deeds)
    found = ended(members, 30)
    assert found.pop(dead)[0] == 9
    assert {(e["kind"], e["thing"], e["got"]) for e in errors(found)} == {
        ("process-lost", f"process {dead}", "its connection has ended")
    }


def test_a_process_that_is_silent_ends_the_others():
    members = started(["hang", "hang", "hang"])
    for member in members:
        assert member.stdout.readline() == "met\n"
    members[1].send_signal(signal.SIGSTOP)  # a host that does not answer
    begin = time.monotonic()
    try:
        found = errors(ended([members[0], members[2]], 30))
    finally:
        members[1].kill()
        members[1].communicate()
    assert time.monotonic() - begin < 4 * SHORT
    assert {(e["kind"], e["thing"], e["got"]) for e in found} == {
        ("process-lost", "process 1", f"silent for {SHORT} s")
    }


@pytest.mark.parametrize(("fact", "value"), [("bytes of the model", "abd"), ("jax", "2")])
def test_what_differs_is_named_on_every_process_before_anything_is_computed(fact, value):
    found = errors(ended(started(["lead", "wait", "wait"], [SAME, SAME, SAME | {fact: value}]), 30))
    expected = {"kind": "processes-differ", "thing": f"process 2, {fact}", "got": value}
    assert found == [expected] * 3


def test_a_process_that_does_not_come():
    found = errors(ended(started(["lead", "wait"], processes=3), 30))
    assert [e["kind"] for e in found] == ["process-missing"] * 2
    assert [e["thing"] for e in found] == ["process 2"] * 2


def test_the_stated_time():
    assert 2 * PATIENCE <= 30  # for all to come; a lost one is seen in half of that


@pytest.mark.parametrize(
    ("environment", "seat"),
    [
        ({}, None),
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "1"}, None),  # of a job that is nothing of ours
        ({"TRITGOLD_COORDINATOR": "h:1", "TRITGOLD_PROCESSES": "1", "TRITGOLD_PROCESS": "0"}, None),
        ({"TRITGOLD_COORDINATOR": "h:1", "TRITGOLD_PROCESSES": "2", "TRITGOLD_PROCESS": "1"}, Seat("h:1", 2, 1)),
        ({"TRITGOLD_COORDINATOR": "h:1", "SLURM_NTASKS": "4", "SLURM_PROCID": "3"}, Seat("h:1", 4, 3)),
        (
            {"TRITGOLD_COORDINATOR": "h:1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0",
             "TRITGOLD_PATIENCE": "3"},
            Seat("h:1", 2, 0, 3.0),
        ),
    ],
)  # fmt: skip
def test_the_seat_that_an_environment_names(environment, seat):
    assert seat_of(environment) == seat


@pytest.mark.parametrize(
    "environment",
    [
        {"TRITGOLD_COORDINATOR": "h:1"},
        {"TRITGOLD_COORDINATOR": "h", "TRITGOLD_PROCESSES": "2", "TRITGOLD_PROCESS": "1"},
        {"TRITGOLD_COORDINATOR": "h:1", "TRITGOLD_PROCESSES": "2", "TRITGOLD_PROCESS": "2"},
        {"TRITGOLD_COORDINATOR": "h:1", "TRITGOLD_PROCESSES": "two", "TRITGOLD_PROCESS": "0"},
    ],
)
def test_an_environment_that_names_none(environment):
    with pytest.raises(EngineError) as raised:
        seat_of(environment)
    assert raised.value.kind == "processes"
