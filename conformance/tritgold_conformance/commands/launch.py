"""tritgold launch: runs one command as several processes on this machine, without mpirun or Kubernetes."""

import os
import socket
import subprocess
import sys
import time

import click

from tritgold_conformance.commands import printing
from tritgold_conformance.commands.leaving import interrupted_by_signals

# Seconds for the others to end after one process has failed; they need less to notice that it is gone.
GRACE = 30.0


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--processes", type=click.IntRange(2, 1024), required=True, help="Number of processes, all on this machine."
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def launch(processes: int, command: tuple[str, ...]) -> None:
    """Run COMMAND as several processes that share one model.

    For example: tritgold launch --processes 2 run kjv-ar --backend xla --prompt "In the beginning". Each process holds
    its part of the model. The first process reads the input, computes the answers and prints; the others print nothing.
    The exit code is that of the first, or 3 if another process fails. To use several machines, start the processes with
    mpirun, srun or Kubernetes (docs/sharding.md).
    """
    port = two_free_ports()
    with printing.errors(as_json=False), interrupted_by_signals():
        children = [_started(process, processes, port, command) for process in range(processes)]
        try:
            sys.exit(_ended(children))
        finally:
            for child in children:
                child.kill()
                child.wait()


def _started(process: int, processes: int, port: int, command: tuple[str, ...]) -> "subprocess.Popen[bytes]":
    seat = {"COORDINATOR": f"127.0.0.1:{port}", "PROCESSES": str(processes), "PROCESS": str(process)}
    return subprocess.Popen(
        [sys.executable, "-m", "tritgold_conformance", *command],
        env={**os.environ, **{f"TRITGOLD_{name}": value for name, value in seat.items()}},
        stdin=None if process == 0 else subprocess.DEVNULL,
        stdout=None if process == 0 else subprocess.DEVNULL,
    )


def _ended(children: "list[subprocess.Popen[bytes]]") -> int:
    """The exit code, once all have ended; those that do not within GRACE seconds of a failure are ended."""
    deadline = None
    while any(child.poll() is None for child in children):
        if deadline is None and any(child.poll() for child in children):
            deadline = time.monotonic() + GRACE
        if deadline is not None and time.monotonic() > deadline:
            break
        time.sleep(0.05)
    first, *others = (child.poll() for child in children)
    return first or (printing.COULD_NOT_JUDGE if any(code != 0 for code in others) or first is None else 0)


def two_free_ports() -> int:
    """The lower of two neighbouring free ports."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as one:
            port: int = one.getsockname()[1]
            try:
                with socket.create_server(("127.0.0.1", port + 1)):
                    return port
            except OSError:
                continue
