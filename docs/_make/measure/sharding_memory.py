"""What each of two processes holds of a model with the widths of 30B and a few layers: beside its share of the weights.

``python -m measure.sharding_memory --layers 10 > docs/data/sharding-memory.json``: minutes, and 2 GB of disk.

The model is a GGUF file of random trits, opened by both. ``share`` is a process's part of what the whole model takes:
packed weights, embedding, head, KV cache. ``held`` is the memory of its own that a process has more than before it
loaded, ``most`` the most it had while it did (a piece of one matrix is unpacked at a time). Pages of the file, which it
maps and which the system may take back, are ``mapped``.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from measure.report import show
from tritgold.checkpoint import open_checkpoint
from tritgold_conformance.bench.shapes import ModelShape
from tritgold_conformance.bench.synthetic import synthetic_model
from tritgold_conformance.commands.launch import two_free_ports

SCHEMA = "tritgold.sharding_memory/3"
PROCESSES = 2
WIDTHS = ModelShape("30b", 10, 6656, 17_920, 52, 52, 128, 32_000, context=256)
CAPACITY = 64  # positions of the KV cache


def member(address: str, process: int, path: Path) -> dict[str, Any]:
    """In one of the processes."""
    from tritgold_xla import XlaEngine
    from tritgold_xla.kv_cache.base import cache_bytes
    from tritgold_xla.parameters import parameter_bytes
    from tritgold_xla.processes.seat import Seat
    from tritgold_xla.processes.starting import start_jax

    start_jax(Seat(address, PROCESSES, process))
    checkpoint = open_checkpoint(path)
    before, seen, loading = _memory("RssAnon"), [0], threading.Event()

    def watch() -> None:
        while not loading.wait(0.01):
            seen.append(_memory("RssAnon"))

    watching = threading.Thread(target=watch)
    watching.start()
    begin = time.monotonic()
    engine = XlaEngine(checkpoint.config, checkpoint.weights, CAPACITY, kv_cache="bf16", devices=PROCESSES)
    seconds = time.monotonic() - begin
    loading.set()
    watching.join()
    held, most, mapped = _memory("RssAnon") - before, max(seen) - before, _memory("RssFile")
    token = int(np.argmax(engine.read([1, 2, 3])))
    share = (parameter_bytes(checkpoint.config) + cache_bytes(checkpoint.config, CAPACITY, "bf16")) // PROCESSES
    return {"share": share, "held": held, "most": most, "mapped": mapped, "of_share": round(held / share, 3),
            "most_of_share": round(most / share, 3), "seconds": round(seconds, 1), "token": token}  # fmt: skip


def _memory(name: str) -> int:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{name}:")]
    return int(line.split()[1]) * 1024


def report(shape: ModelShape, folder: Path) -> dict[str, Any]:
    """Of all processes. Raises RuntimeError where one of them fails."""
    path = synthetic_model(shape, folder)
    address = f"127.0.0.1:{two_free_ports()}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-W", "ignore", "-m", "measure.sharding_memory", "--member"]
    children = [
        subprocess.Popen([*command, address, str(process), str(path)], env=environment, stdout=subprocess.PIPE)
        for process in range(PROCESSES)
    ]
    said = [child.communicate()[0] for child in children]
    if any(child.returncode for child in children):
        raise RuntimeError(f"exit codes {[child.returncode for child in children]}")
    rows = [json.loads(each) for each in said]
    sizes = {name: asdict(shape)[name] for name in ("layers", "hidden", "inter", "heads", "kv_heads", "vocab")}
    return {"schema": SCHEMA, **sizes, "file": path.stat().st_size, "processes": rows}


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=WIDTHS.layers)
    parser.add_argument("--folder", type=Path, help="Where the file is made, and kept; else it is temporary.")
    parser.add_argument("--member", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.member:
        print(json.dumps(member(given.member[0], int(given.member[1]), Path(given.member[2]))))
        sys.stdout.flush()
        return
    shape = ModelShape(**{**asdict(WIDTHS), "layers": given.layers})
    if given.folder:
        show(report(shape, given.folder))
    else:
        with tempfile.TemporaryDirectory(prefix="tritgold-") as folder:
            show(report(shape, Path(folder)))


if __name__ == "__main__":
    main()
