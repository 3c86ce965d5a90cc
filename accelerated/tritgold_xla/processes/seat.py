"""Who is there: how many processes there are, and which of them this one is."""

import os
from dataclasses import dataclass

from tritgold.errors import EngineError

PATIENCE = 10.0  # seconds of silence that are taken for a process that is lost
# What starters of processes say of themselves: the number of processes, and which of them this one is.
_COUNTED = (
    ("TRITGOLD_PROCESSES", "TRITGOLD_PROCESS"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("PMI_SIZE", "PMI_RANK"),
    ("SLURM_NTASKS", "SLURM_PROCID"),
)


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
