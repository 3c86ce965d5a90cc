"""How much of mapped files is in memory, as the kernel counts it for this process."""

from pathlib import Path

import pytest


def mapped_bytes() -> int:
    """Resident pages of files, those on a file system in memory included. Skips where the kernel does not say."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith(("RssFile:", "RssShmem:"))]
    if not found:
        pytest.skip("mapped memory is read from Linux's /proc")
    return sum(found)
