"""Finds processes that programs and engines have left running."""

import contextlib
import subprocess
from pathlib import Path


def sleeping(number: str) -> list[str]:
    """Command lines of running processes with this number as an argument: programs and their sleeping children."""
    if Path("/proc/self/cmdline").exists():
        lines = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                lines.append(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    else:
        lines = subprocess.run(["ps", "-axwwo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [line for line in lines if number in line.split() and "tritgold_conformance" not in line]
