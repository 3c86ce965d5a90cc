"""What the containers have in common: holes in a file, which read as zeros and are none."""

import os
from pathlib import Path

import pytest

from tritgold.formats.container import holes

BLOCK = 1 << 16  # a multiple of every file system's block


@pytest.fixture
def sparse(tmp_path: Path) -> Path:
    """Data, a hole, data, and a hole up to the end."""
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.write(b"x" * BLOCK)
        file.seek(3 * BLOCK)
        file.write(b"y" * BLOCK)
        file.truncate(6 * BLOCK)
    if path.stat().st_blocks * 512 >= 6 * BLOCK:
        pytest.skip("this file system stores holes as zeros")
    return path


def test_holes_are_what_was_never_written(sparse: Path) -> None:
    assert holes(sparse) == [(BLOCK, 3 * BLOCK), (4 * BLOCK, 6 * BLOCK)]
    os.truncate(sparse, 4 * BLOCK)
    assert holes(sparse) == [(BLOCK, 3 * BLOCK)]


@pytest.mark.parametrize("content", [b"", b"a", bytes(3 * BLOCK)])
def test_written_zeros_are_no_hole(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m").write_bytes(content)
    assert holes(tmp_path / "m") == []


def test_a_file_that_was_only_given_its_length(tmp_path: Path, sparse: Path) -> None:
    (tmp_path / "m").touch()
    os.truncate(tmp_path / "m", BLOCK)
    assert holes(tmp_path / "m") == [(0, BLOCK)]


def test_a_file_system_that_keeps_no_account(sparse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "SEEK_HOLE")
    assert holes(sparse) == []
