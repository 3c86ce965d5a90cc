"""What the system tells, asked of made-up folders; and that this machine's own are understood."""

import os
import platform
from pathlib import Path

import pytest

from tritgold.machine import available_memory, instructions, processor

GB = 10**9
X86 = """processor	: 0
model name	: Some CPU: 4 GHz
flags		: fpu popcnt sse2 avx fma avx2 avx512f avx512_vpopcntdq amx_int8 hypervisor

processor	: 1
model name	: Another
flags		: fpu
"""
ARM = "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd asimddp i8mm crc32\n"
V2 = {"max": "memory.max", "used": "memory.current", "stat": "inactive_file"}
V1 = {"max": "memory.limit_in_bytes", "used": "memory.usage_in_bytes", "stat": "total_inactive_file"}


def system(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / "proc" / name.replace("self_", "self/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def group(folder: Path, names: dict[str, str], most: object, used: int, cache: int | None = None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names["max"]).write_text(f"{most}\n")
    (folder / names["used"]).write_text(f"{used}\n")
    if cache is not None:
        (folder / "memory.stat").write_text(f"anon 5\n{names['stat']} {cache}\n{names['stat']}_other 7\n")


def test_the_name_of_the_processor(tmp_path: Path) -> None:
    system(tmp_path, cpuinfo=X86)
    assert processor(tmp_path) == "Some CPU: 4 GHz"
    for text in ("", "model name\t:\n", ARM):
        system(tmp_path, cpuinfo=text)
        assert processor(tmp_path) == (platform.processor() or platform.machine())
    assert processor(tmp_path / "nothing") == (platform.processor() or platform.machine())


def test_the_instruction_sets_are_those_of_the_first_processor_that_matter(tmp_path: Path) -> None:
    system(tmp_path, cpuinfo=X86)
    assert instructions(tmp_path) == "amx_int8 avx avx2 avx512_vpopcntdq avx512f fma popcnt"
    system(tmp_path, cpuinfo=ARM)
    assert instructions(tmp_path) == "asimd asimddp i8mm"
    assert instructions(tmp_path / "nothing") == ""


def test_memory_where_no_group_limits_it(tmp_path: Path) -> None:
    assert available_memory(tmp_path) is None
    system(tmp_path, meminfo=f"MemTotal: 99 kB\nMemAvailable:   {8 * GB // 1000} kB\n")
    free = 8 * GB // 1000 * 1024
    assert available_memory(tmp_path) == free
    for text in ("0::/a\n", "no group at all\n", "4:memory:/a\n0::/\n", ""):
        system(tmp_path, self_cgroup=text)
        assert available_memory(tmp_path) == free
    group(tmp_path / "sys/fs/cgroup/a", V2, "max", GB, 0)
    group(tmp_path / "sys/fs/cgroup/memory/a", V1, 9223372036854771712, GB, 0)
    for text in ("0::/a\n", "4:memory:/a\n"):
        system(tmp_path, self_cgroup=text)
        assert available_memory(tmp_path) == free


@pytest.mark.parametrize(
    ("text", "mount", "names"),
    [
        ("0::/one/two\n", "sys/fs/cgroup", V2),
        ("5:cpu,memory:/one/two\n1:name=systemd:/x\n", "sys/fs/cgroup/memory", V1),
    ],
)
def test_the_tightest_group_counts_and_its_idle_page_cache_is_free(
    tmp_path: Path, text: str, mount: str, names: dict[str, str]
) -> None:
    system(tmp_path, meminfo="MemAvailable: 8000000 kB\n", self_cgroup=text)
    inner = tmp_path / mount / "one" / "two"
    group(inner, names, 3 * GB, 2 * GB)
    assert available_memory(tmp_path) == GB
    group(inner, names, 3 * GB, 2 * GB, GB // 2)
    assert available_memory(tmp_path) == GB * 3 // 2
    group(inner.parent, names, 4 * GB, 4 * GB - 5, 3)
    assert available_memory(tmp_path) == 8, "the group around it is nearly full"
    group(tmp_path / mount, names, GB, 2 * GB)
    assert available_memory(tmp_path) == 0, "no less than nothing"
    group(tmp_path / mount / "other", names, 1, 1)
    system(tmp_path, meminfo="MemAvailable: 0 kB\n")
    assert available_memory(tmp_path) == 0


def test_other_groups_and_other_controllers_do_not_count(tmp_path: Path) -> None:
    system(tmp_path, meminfo="MemAvailable: 1 kB\n", self_cgroup="4:cpu:/a\n0::/b\n")
    group(tmp_path / "sys/fs/cgroup/a", V2, 10, 5)
    group(tmp_path / "sys/fs/cgroup/memory/a", V1, 10, 5)
    assert available_memory(tmp_path) == 1024


@pytest.mark.parametrize(
    ("text", "mount", "names"),
    [("0::/host/path\n", "sys/fs/cgroup", V2), ("4:memory:/host/path\n", "sys/fs/cgroup/memory", V1)],
)
def test_in_a_container_the_mount_is_the_group(tmp_path: Path, text: str, mount: str, names: dict[str, str]) -> None:
    system(tmp_path, self_cgroup=text)
    group(tmp_path / mount, names, 10, 4)
    assert available_memory(tmp_path) == 6


@pytest.mark.skipif(not os.path.isfile("/proc/meminfo"), reason="the system does not tell")
def test_this_machine_tells() -> None:
    assert (available_memory() or 0) > 1_000_000
    assert processor()
    assert instructions() or platform.machine() not in ("x86_64", "aarch64")
