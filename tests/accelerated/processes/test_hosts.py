"""Processes on two hosts: the same tokens as one process, and what they say when the cable between them is cut."""

import json
import os
import subprocess
import sys
import time

import hosts
import pytest

from tritgold_conformance.commands.launch import two_free_ports
from tritgold_xla.processes.seat import PATIENCE

pytestmark = [
    pytest.mark.sharding,
    pytest.mark.skipif(not hosts.possible(), reason="needs root, and namespaces of Linux"),
]
WORDS = ("--prompt", "In the beginning", "--max-tokens")


def started(pair, *arguments):
    """The same command on both hosts."""
    place = f"{hosts.ADDRESSES[0]}:{two_free_ports()}"
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": path, "TRITGOLD_COORDINATOR": place, "TRITGOLD_PROCESSES": "2"}
    command = [sys.executable, "-W", "ignore", "-m", "tritgold_conformance", *arguments]
    return [
        subprocess.Popen(
            host.inside(*command),
            env={**environment, "TRITGOLD_PROCESS": str(number)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for number, host in enumerate(pair)
    ]


def test_two_hosts_answer_as_one_process(tmp_path):
    arguments = ("run", "kjv-ar", "--backend", "xla", *WORDS, "12", "--json")
    alone = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tritgold_conformance", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        check=True,
    )
    with hosts.two_hosts(tmp_path) as pair:
        one, two = started(pair, *arguments)
        out, err = one.communicate(timeout=600)
        assert one.returncode == 0, err.decode()[-3000:]
        assert two.communicate(timeout=60)[0] == b""
        assert two.returncode == 0
    assert json.loads(out)["ids"] == json.loads(alone.stdout)["ids"]


def test_a_cable_that_is_cut_ends_both(tmp_path):
    with hosts.two_hosts(tmp_path) as pair:
        one, two = started(pair, "run", "kjv-ar", "--backend", "xla", *WORDS, "200", "--decode", "ar")
        assert one.stdout.read(8), one.stderr.read().decode()[-3000:]
        pair[1].cut()
        begin = time.monotonic()
        said = [process.communicate(timeout=30)[1].decode() for process in (one, two)]
        assert PATIENCE / 2 < time.monotonic() - begin < 2 * PATIENCE
    for process, other, text in zip((one, two), (1, 0), said, strict=True):
        assert process.returncode == 3, text[-3000:]
        assert f"process {other}" in text
        assert "process-lost" in text
        assert f"silent for {PATIENCE:g} s" in text


def test_a_host_that_no_other_can_reach_by_its_name(tmp_path):
    with hosts.two_hosts(tmp_path, named=False) as pair:
        begin = time.monotonic()
        said = [
            each.communicate(timeout=60)[1].decode()
            for each in started(pair, "run", "seeded", "--backend", "xla", "--ids", "1")
        ]
        assert time.monotonic() - begin < 30
    assert "127.0.1.1" in said[0]
    assert "/etc/hosts" in said[0]
    assert all("[processes]" in text or "[process-lost]" in text for text in said)
