"""JAX starts in this process as one of several."""

import inspect
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from tritgold.errors import EngineError
from tritgold_xla.processes.seat import Seat
from tritgold_xla.runtime.flags import cpu_device
from tritgold_xla.sharding.shards import on_every_device, spec_of
from tritgold_xla.sharding.split import AXIS, psum


def start_jax(seat: Seat) -> None:
    """Before anything else uses JAX. The processes are connected when this returns.

    Raises EngineError ``processes`` where the others could not reach this machine by its own name.
    """
    check_own_name(seat)
    set_option: Callable[[str, str], None] = jax.config.update  # untyped in some versions of JAX
    set_option("jax_cpu_collectives_implementation", "gloo")
    # JAX would look for mpirun and SLURM itself, and under Open MPI 5 ask for mpi4py; it is told everything here.
    given: dict[str, Any] = {"cluster_detection_method": "deactivate"}
    given |= {"initialization_timeout": 30, "shutdown_timeout_seconds": 10}
    if seat.on_this_machine:
        given["coordinator_bind_address"] = seat.of_jax
    known = inspect.signature(jax.distributed.initialize).parameters
    with stdout_to_stderr():
        jax.distributed.initialize(
            seat.of_jax, seat.processes, seat.process, **{name: value for name, value in given.items() if name in known}
        )
        cpu_device()
        _connect()


def check_own_name(seat: Seat) -> None:
    """Raises EngineError ``processes`` for a name of this machine that means, here, only this machine.

    gloo tells the others to connect to what the machine's own name resolves to; Debian writes 127.0.1.1 for it.
    """
    name = socket.gethostname()
    if not seat.on_this_machine and (found := _address(name)).startswith(("127.", "::1")):
        raise EngineError(
            "this machine's own name is an address that no other machine can reach",
            kind="processes",
            thing=name,
            got=found,
            expected="an address of the network between the processes",
            hint=f"write that address and {name} into /etc/hosts, before any other line with this name; if all"
            " processes are on this machine, give TRITGOLD_COORDINATOR as 127.0.0.1:PORT",
        )


def _address(name: str) -> str:
    try:
        return str(socket.getaddrinfo(name, None)[0][4][0])
    except OSError:
        return ""  # gloo has its own error for it


def _connect() -> None:
    """One sum over all devices: gloo connects with its first collective, and says so on standard output."""
    mesh = Mesh(np.array(jax.devices("cpu")), (AXIS,))
    total = on_every_device(lambda: psum(jnp.int32(1), AXIS), mesh=mesh, in_specs=(), out_specs=spec_of())
    made: jax.Array = jax.jit(total)()
    made.block_until_ready()


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """What libraries write to file descriptor 1 goes to 2, so that standard output has a command's results alone."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
