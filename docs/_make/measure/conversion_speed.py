"""What it takes to convert a model of real size, HF -> I2_S -> TQ2_0 -> HF: time, memory, and the same bytes.

    PYTHONPATH=docs/_make python -m measure.conversion_speed FOLDER [--shape 2b-4t] [--json FILE]

FOLDER is made for it, needs 5 GB and can be removed afterwards. Every step is the command a user types, in a process of
its own; its peak memory is what the kernel counted for it, mapped pages of files included.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tritgold_conformance.commands.env import environment

SCHEMA = "tritgold.conversion-speed/1"
STEPS = (("source", "i2_s.gguf", "i2_s"), ("i2_s.gguf", "tq2_0.gguf", "tq2_0"), ("tq2_0.gguf", "back", "hf"))


@dataclass(frozen=True)
class Step:
    """what: in words. seconds: wall time. processor: seconds of user and system. peak: bytes of resident memory."""

    what: str
    seconds: float
    processor: float
    peak: int


def measure(folder: Path, shape: str) -> list[Step]:
    """Make the model, convert it three times. Raises RuntimeError where a step fails."""
    folder.mkdir(parents=True)
    done = [_run(f"write the {shape} model", "tritgold.golden", str(folder / "source"), shape)]
    for source, target, to in STEPS:
        paths = str(folder / source), str(folder / target)
        done.append(_run(f"{source} -> {target}", "tritgold_conformance", "convert", *paths, "--to", to))
    return done


def _run(what: str, module: str, *arguments: str) -> Step:
    begin = time.perf_counter()
    child = subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - begin
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{what}: ended with {child.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss
    return Step(what, seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit)


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file by its name."""
    found = {}
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def facts(steps: list[Step], folder: Path) -> dict[str, Any]:
    """The steps, the machine, and the files at both ends. equal: the same files came back byte for byte."""
    machine, source, back = environment(), digests(folder / "source"), digests(folder / "back")
    return {
        "schema": SCHEMA,
        "machine": {**machine["machine"], "numpy": machine["packages"]["numpy"]},
        "variables": {key: value for key, value in machine["variables"].items() if value is not None},
        "steps": [asdict(step) for step in steps],
        "bytes": {path.name: path.stat().st_size for path in (folder / "source").iterdir()},
        "source": source,
        "back": back,
        "equal": source == back,
    }


def table(steps: list[Step]) -> str:
    """The steps as a table in Markdown."""
    lines = ["| step | wall s | processor s | peak GB |", "|---|---:|---:|---:|"]
    rows = [f"| {s.what} | {s.seconds:.1f} | {s.processor:.1f} | {s.peak / 1e9:.2f} |" for s in steps]
    return "\n".join([*lines, *rows])


def main() -> int:
    """Measure, print; 1 where the model that came back is another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shape", default="2b-4t", help="of tritgold.golden (default 2b-4t)")
    parser.add_argument("--json", type=Path, help="a file for all figures")
    asked = parser.parse_args()
    steps = measure(asked.folder, asked.shape)
    found = facts(steps, asked.folder)
    print(table(steps))
    print("every file came back byte for byte" if found["equal"] else "NOT EQUAL: another model came back")
    if asked.json is not None:
        asked.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0 if found["equal"] else 1


if __name__ == "__main__":
    sys.exit(main())
