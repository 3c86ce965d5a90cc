"""What the system reports about the machine: processor, instruction sets, and memory available to this process.

On Linux from /proc and /sys/fs/cgroup; on other systems little is known. Functions take the root of the file system,
which tests replace.
"""

import platform
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/")

# Prefixes of the CPU flags that matter for kernels: vectors, fused and dot products, bit counts, matrices.
_INSTRUCTIONS = ("avx", "amx", "fma", "popcnt", "asimd", "bf16", "i8mm", "sve", "sme")

# For each cgroup version: controller in /proc/self/cgroup, mount point, file of the limit, file of the used memory, and
# the field of memory.stat with the page cache that the kernel frees first.
_CGROUPS = (
    ("", "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    ("memory", "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def processor(root: Path = _ROOT) -> str:
    """The processor's name, or its architecture if the system does not report a name."""
    return next(_cpuinfo(root, "model name"), "") or platform.processor() or platform.machine()


def instructions(root: Path = _ROOT) -> str:
    """The instruction sets that matter for kernels, sorted, separated by spaces; empty if unknown.

    A virtual machine may hide some of them, so the processor's name is not enough.
    """
    known = next(_cpuinfo(root, "flags"), "") or next(_cpuinfo(root, "Features"), "")  # x86; Arm
    return " ".join(sorted(name for name in known.split() if name.startswith(_INSTRUCTIONS)))


def available_memory(root: Path = _ROOT) -> int | None:
    """Bytes that this process can allocate without swapping; None if the system does not report it.

    The minimum of MemAvailable and of the memory left by the limits of its control group and all parent groups.
    Inactive page cache counts as free in both. Source: cgroup-v2 and cgroup-v1/memory of the kernel's manual.
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
            # In a container the path may be the host's, while the mount is that group itself: then the mount counts.
            for folder in (root / mount / place for place in (group, *group.parents)):
                try:
                    most, now = (int((folder / name).read_text()) for name in (limit, used))
                except (OSError, ValueError):  # no such group, or "max" instead of a number
                    continue
                given_up = [line.split()[1] for line in _lines(folder / "memory.stat") if line.startswith(f"{cache} ")]
                yield max(0, most - now + sum(map(int, given_up)))


def _cpuinfo(root: Path, field: str) -> Iterator[str]:
    """The values of a field, one per processor."""
    for line in _lines(root / "proc/cpuinfo"):
        name, _, value = line.partition(":")
        if name.strip() == field:
            yield value.strip()


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []
