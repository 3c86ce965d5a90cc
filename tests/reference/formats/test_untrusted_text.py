"""Text files that may be anything: read up to a limit, and never opened where that could wait or have no end."""

import os
from pathlib import Path

import pytest
from refusals import frugal, refusal

from tritgold.formats.untrusted_text import read_text, require_regular


def test_a_text_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes("a\r\n\u00fc\0".encode())
    assert read_text(path, 6) == "a\r\n\u00fc\0"
    assert require_regular(path) == 6
    with pytest.raises(ValueError, match="6 bytes are too many; at most 5"):
        read_text(path, 5)
    path.write_bytes(b"\xff")
    with pytest.raises(UnicodeDecodeError):
        read_text(path, 6)
    with pytest.raises(FileNotFoundError):
        read_text(tmp_path / "none", 6)


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "t").open("wb") as file:
        file.truncate(1 << 40)
    with frugal(), pytest.raises(ValueError, match="too many"):
        read_text(tmp_path / "t", 1 << 20)


def test_a_file_that_hides_its_size_is_read_up_to_the_limit() -> None:
    path = Path("/proc/self/maps")
    if not path.is_file():
        pytest.skip("this system has no /proc")
    assert require_regular(path) == 0
    with pytest.raises(ValueError, match="101 bytes are too many"):
        read_text(path, 100)


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(IsADirectoryError):
        read_text(tmp_path, 1 << 20)
    for path in (tmp_path / "fifo", Path("/dev/zero"), Path("/dev/null")):
        error = refusal(lambda path=path: read_text(path, 9))
        assert (error.kind, error.message, error.file) == ("unreadable", "is not a regular file", str(path))
