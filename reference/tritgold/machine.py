"""What the system tells of the machine: the processor, what it can do, and the memory that is left to this process.

Linux tells in /proc and /sys/fs/cgroup; elsewhere little is known. Functions take the root of the file system, which
tests replace.
"""

import platform
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/")

# Prefixes of what decides which kernels are compiled: vectors, fused and dot products, bit counts, matrices.
_INSTRUCTIONS = ("avx", "amx", "fma", "popcnt", "asimd", "bf16", "i8mm", "sve", "sme")

# By version: the controller in /proc/self/cgroup, where it is mounted, limit, what is used, and of that the page cache
# which the kernel gives up first.
_CGROUPS = (
    ("", "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    ("memory", "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def processor(root: Path = _ROOT) -> str:
    """The processor's name; where the system does not tell, its architecture."""
    return next(_cpuinfo(root, "model name"), "") or platform.processor() or platform.machine()


def instructions(root: Path = _ROOT) -> str:
    """The instruction sets that matter to number crunching, sorted, between spaces; empty where unknown.

    A virtual machine may hide some of them: the processor's name alone does not say what can be used.
    """
    known = next(_cpuinfo(root, "flags"), "") or next(_cpuinfo(root, "Features"), "")  # x86; Arm
    return " ".join(sorted(name for name in known.split() if name.startswith(_INSTRUCTIONS)))


def available_memory(root: Path = _ROOT) -> int | None:
    """Bytes that this process can allocate without swapping; None where the system does not say.

    The least of MemAvailable and of what the limits of its control groups leave, those of all groups around it. Page
    cache that is not in use counts as free in both. Source: cgroup-v2 and cgroup-v1/memory of the kernel's manual.
    """
    free = [1024 * int(line.split()[1]) for line in _lines(root / "proc/meminfo") if line.startswith("MemAvailable:")]
    return min([*free, *_left_by_groups(root)], default=None)


def _left_by_groups(root: Path) -> Iterator[int]:
    for line in _lines(root / "proc/self/cgroup"):
        controllers, _, path = line.partition(":")[2].partition(":")
        group = Path(path.lstrip("/"))
        for controller, mount, limit, used, cache in _CGROUPS:
            if controller not in controllers.split(","):
                continue
            # In a container the path may be the host's, and the mount what is below it: then the mount itself counts.
            for folder in (root / mount / place for place in (group, *group.parents)):
                try:
                    most, now = (int((folder / name).read_text()) for name in (limit, used))
                except (OSError, ValueError):  # no such group, or no number: "max"
                    continue
                given_up = [line.split()[1] for line in _lines(folder / "memory.stat") if line.startswith(f"{cache} ")]
                yield max(0, most - now + sum(map(int, given_up)))


def _cpuinfo(root: Path, field: str) -> Iterator[str]:
    """The values of a field, one a processor."""
    for line in _lines(root / "proc/cpuinfo"):
        name, _, value = line.partition(":")
        if name.strip() == field:
            yield value.strip()


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []
