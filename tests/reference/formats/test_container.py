"""What the containers have in common: holes in a file, which read as zeros and are none; memory given back."""

import mmap
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from refusals import refusal
from resident import mapped_bytes

from tritgold.formats.container import StoredTensor, holes, map_file
from tritgold.formats.sglbitnt_file import is_sglbitnt

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


# ---- memory given back -------------------------------------------------------------------------------------------

LARGE = 64 * 2**20


def tensor(data: np.ndarray, begin: int, end: int) -> StoredTensor:
    return StoredTensor(Path("m"), "a", "U8", (end - begin,), begin, data[begin:end])


def test_what_was_read_does_not_stay_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "m"
    with path.open("wb") as file:
        file.truncate(LARGE)
    before = mapped_bytes()
    stored = tensor(map_file(path), 5, LARGE - 7)
    assert stored.data.max() == 0
    assert mapped_bytes() - before > 0.9 * LARGE  # the control
    stored.release()
    assert mapped_bytes() - before < 0.1 * LARGE


def test_a_matrix_read_slice_by_slice_is_never_in_memory_whole(tmp_path: Path) -> None:
    path = tmp_path / "m"
    with path.open("wb") as file:
        file.truncate(LARGE)
    matrix = StoredTensor(path, "a", "F16", (LARGE // 2048, 1024), 0, map_file(path))
    before, most = mapped_bytes(), 0
    for part in (slice(first, first + 1024) for first in range(0, matrix.shape[0], 1024)):
        assert not matrix.rows(part).any()
        most = max(most, mapped_bytes() - before)
    assert most < 0.1 * LARGE
    matrix.rows(np.arange(matrix.shape[0]))  # the control: of single rows nobody knows what comes next
    assert mapped_bytes() - before > 0.9 * LARGE


def test_what_a_slice_gives_back_reads_as_before(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).standard_normal((3, mmap.PAGESIZE)).astype("<f4")
    (tmp_path / "m").write_bytes(b"head" + numbers.tobytes())
    matrix = StoredTensor(tmp_path / "m", "a", "F32", (3, mmap.PAGESIZE), 4, map_file(tmp_path / "m")[4:])
    for index in [slice(0, 2), slice(2, None), slice(None, None, -1), slice(2, 0, -2), slice(1, 1), slice(9, 12)]:
        assert np.array_equal(matrix.rows(index), numbers[index])


def test_what_was_given_back_reads_as_before(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).integers(0, 256, 5 * mmap.PAGESIZE, np.uint8)
    (tmp_path / "m").write_bytes(numbers.tobytes())
    data = map_file(tmp_path / "m")
    for begin, end in [(0, 1), (3, mmap.PAGESIZE), (mmap.PAGESIZE - 1, mmap.PAGESIZE + 1), (7, numbers.size)]:
        tensor(data, begin, end).release()
        assert np.array_equal(data, numbers)


def test_nothing_to_give_back(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(bytes(mmap.PAGESIZE))
    tensor(map_file(tmp_path / "m"), mmap.PAGESIZE, mmap.PAGESIZE).release()  # no bytes, at the very end
    in_memory = np.arange(9, dtype=np.uint8)
    tensor(in_memory, 2, 5).release()
    assert in_memory.tolist() == list(range(9))


def test_a_system_without_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m").write_bytes(bytes(9))
    stored = tensor(map_file(tmp_path / "m"), 0, 9)
    monkeypatch.delattr(mmap, "MADV_DONTNEED", raising=False)
    stored.release()
    assert stored.data.tolist() == [0] * 9


# ---- what is not a regular file -------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", [map_file, holes])
def test_what_is_no_regular_file_is_not_opened(tmp_path: Path, act: Callable[[Path], object]) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path / "link", Path("/dev/zero"), Path("/dev/null")):
        error = refusal(lambda path=path: act(path))
        assert (error.kind, error.message, error.file) == ("unreadable", "is not a regular file", str(path))


def test_a_fifo_is_no_sglbitnt_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert not is_sglbitnt(tmp_path / "fifo")
