"""From a process that knows its seat to an engine over all of them."""

import atexit
import hashlib
import threading
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import jax

from tritgold.errors import EngineError
from tritgold_xla.engine import XlaEngine
from tritgold_xla.processes import led_engine
from tritgold_xla.processes.joining import join
from tritgold_xla.processes.led_engine import LedEngine
from tritgold_xla.processes.seat import Seat
from tritgold_xla.processes.starting import start_jax
from tritgold_xla.runtime.flags import ask_for_devices

_READ = 1 << 20
# What process 0 has opened: the facts, and the first engine.
_opened: list[tuple[dict[str, str], LedEngine]] = []


def opened(seat: Seat, path: Path, devices: int, about: dict[str, str], make: Callable[[int], XlaEngine]) -> LedEngine:
    """Process 0: the engine, which the others follow. In the others this does not return: they end when it has.

    path: of the checkpoint, whose bytes are compared. devices: of all processes together; at least one each. about:
    what else must be equal, by name. make: opens the engine on so many devices. Raises EngineError ``devices`` for a
    number that the processes cannot share equally, ``processes`` for a second model, and as ``join`` does. The
    same model may be opened again.
    """
    total = max(devices, seat.processes)
    if total % seat.processes:
        raise EngineError(
            "the processes cannot share the devices equally",
            kind="devices",
            thing="devices",
            got=total,
            expected=f"a multiple of {seat.processes}, the number of processes",
        )
    facts = {**_versions(), **about, "devices": str(total), "bytes of the model": file_digest(path)}
    if _opened:
        return _again(facts, lambda: make(total))
    team = join(seat, facts)
    atexit.register(led_engine.leave, team)
    ask_for_devices(total // seat.processes)

    def made() -> XlaEngine:
        start_jax(seat)
        return make(total)

    try:
        engine: XlaEngine = team.wait(made)
    except Exception as error:  # of this process alone, perhaps: the others would wait for it
        if team.broken is None:
            team.fail(str(error))
        raise
    if seat.process == 0:
        threading.Thread(target=led_engine.end_when_broken, args=(team,), daemon=True).start()
        _opened.append((facts, LedEngine(team, engine)))
        return _opened[0][1]
    led_engine.follow(team, engine, lambda: make(total))
    raise SystemExit(0)


def _again(facts: dict[str, str], make: Callable[[], XlaEngine]) -> LedEngine:
    known, led = _opened[0]
    if wrong := [name for name in facts if facts[name] != known[name]]:
        raise EngineError(
            "the other processes have opened another model, and have this one process to follow",
            kind="processes",
            thing=wrong[0],
            got=facts[wrong[0]],
            expected=known[wrong[0]],
            hint="start the processes again for it",
        )
    return led.beside(make)


def file_digest(path: Path) -> str:
    """SHA-256 of a checkpoint's bytes, a piece at a time: of a file, or of a folder's files by name."""
    found = hashlib.sha256()
    for file in [path] if path.is_file() else sorted(path.iterdir()):
        found.update(f"{file.name if path.is_dir() else ''}\0{file.stat().st_size}\0".encode())
        if file.is_file():
            for piece in _pieces(file):
                found.update(piece)
    return found.hexdigest()


def _pieces(file: Path) -> Iterable[bytes]:
    with file.open("rb") as stream:
        while piece := stream.read(_READ):
            yield piece


def _versions() -> dict[str, str]:
    """Of what decides results."""
    found = {"jax": jax.__version__}
    for name in ("jaxlib", "numpy", "tritgold"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
