"""What it takes to open a model of real size, in every kind of file: time, memory, and how often it is read.

    PYTHONPATH=docs/_make python -m measure.opening_speed FOLDER [--shape 2b-4t] [--kind KIND ...] [--json FILE]

FOLDER needs room for one file of it, 5 GB at most; each is removed after it was opened. Every kind is made, and is
opened as ``tritgold.open_checkpoint`` opens it, in a process of its own, from a cold cache.

``read``: bytes that the process had from the disk, over the bytes of the files. A process that has read a tensor gives
its mapped pages back; here they leave the system's cache as well, so that whatever was read a second time would come
from the disk again and count twice. Neighbouring tensors share a page, which may count for both.
"""

import argparse
import json
import mmap
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from measure.opening_kinds import KINDS
from tritgold_conformance.commands.env import environment

SCHEMA = "tritgold.opening-speed/1"


@dataclass(frozen=True)
class Opening:
    """kind: of file. size: bytes of its files. seconds, processor: of the opening alone. peak: bytes of resident memory
    of the whole process. read: bytes that came from the disk while it opened."""

    kind: str
    size: int
    seconds: float
    processor: float
    peak: int
    read: int


def measure(folder: Path, shape: str, kinds: tuple[str, ...] = KINDS) -> Iterator[Opening]:
    """A row for each kind, whose file is removed again. Raises RuntimeError where a step fails."""
    for kind in kinds:
        with tempfile.TemporaryDirectory(prefix="kind-", dir=folder) as own:
            target = Path(own) / ("model" if kind.startswith("hf") else "model.gguf")
            made = Path(json.loads(_child("measure.opening_kinds", kind, shape, str(target)).splitlines()[-1])["made"])
            files = files_of(made)
            forget(files)
            found = json.loads(_child("measure.opening_speed", "--probe", str(made)))
            yield Opening(kind, sum(path.stat().st_size for path in files), **found)


def files_of(made: Path) -> list[Path]:
    """The files of a folder; or a file, or all of its shards."""
    if made.is_dir():
        return sorted(made.iterdir())
    name, parted, _ = made.name.partition("-00001-of-")
    return sorted(made.parent.glob(f"{name}-*.gguf")) if parted else [made]


def forget(files: list[Path]) -> None:
    """Out of the system's cache, where it can be asked for that."""
    for path in files:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def probe(path: Path) -> dict[str, Any]:
    """Open it here: time, peak memory, and what came from the disk.

    Pages that the checkpoint gives back are taken out of the system's cache too, so that a second reading of them is a
    reading from the disk and counts; Linux may otherwise serve it from memory, and "read once" could not fail.
    """
    from tritgold.checkpoint import open_checkpoint
    from tritgold.formats.container import StoredTensor

    released, right = StoredTensor._release, np.memmap

    def forgetting(self: StoredTensor, begin: int, end: int) -> None:
        released(self, begin, end)
        if end > begin:
            with self.file.open("rb") as file:
                os.posix_fadvise(file.fileno(), self.offset + begin, end - begin, os.POSIX_FADV_DONTNEED)

    def sequential(*given: Any, **named: Any) -> Any:
        """Read ahead only: reading around a page would read pages again that were given back, and count them."""
        mapped: Any = right(*given, **named)
        mapped._mmap.madvise(mmap.MADV_SEQUENTIAL)
        return mapped

    StoredTensor._release, np.memmap = forgetting, sequential  # type: ignore
    before, begin, processor = _read_bytes(), time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        open_checkpoint(path)
    seconds, processor = time.perf_counter() - begin, time.process_time() - processor
    return {"seconds": seconds, "processor": processor, "peak": _peak(), "read": _read_bytes() - before}


def _read_bytes() -> int:
    """From the disk, by this process, as Linux counts it."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["read_bytes"])


def _peak() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def _child(module: str, *arguments: str) -> str:
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths}
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(f"{module} {' '.join(arguments)}: ended with {done.returncode}\n{done.stderr}")
    return done.stdout


def facts(rows: list[Opening], shape: str) -> dict[str, Any]:
    """The rows and the machine, as data."""
    machine = environment()
    return {
        "schema": SCHEMA,
        "shape": shape,
        "machine": {**machine["machine"], "numpy": machine["packages"]["numpy"]},
        "rows": [asdict(row) for row in rows],
    }


def table(rows: list[Opening]) -> str:
    """The rows as a table in Markdown."""
    lines = ["| kind of file | GB | wall s | processor s | peak GB | read |", "|---|---:|---:|---:|---:|---:|"]
    for row in rows:
        figures = f"{row.size / 1e9:.2f} | {row.seconds:.1f} | {row.processor:.1f} | {row.peak / 1e9:.2f}"
        lines.append(f"| {row.kind} | {figures} | {row.read / row.size:.3f} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shape", default="2b-4t", help="of tritgold.golden (default 2b-4t)")
    parser.add_argument("--kind", action="append", choices=KINDS, help="some kinds alone")
    parser.add_argument("--json", type=Path, help="a file for all figures")
    parser.add_argument("--probe", action="store_true", help="open FOLDER, which is a checkpoint, and say what it took")
    asked = parser.parse_args()
    if asked.probe:
        print(json.dumps(probe(asked.folder)))
        return
    asked.folder.mkdir(parents=True, exist_ok=True)
    rows: list[Opening] = []
    for row in measure(asked.folder, asked.shape, tuple(asked.kind or KINDS)):
        rows.append(row)
        print(table([row]).splitlines()[-1], file=sys.stderr, flush=True)
        if asked.json is not None:
            asked.json.write_text(json.dumps(facts(rows, asked.shape), indent=1) + "\n", encoding="utf-8")
    print(table(rows))


if __name__ == "__main__":
    main()
