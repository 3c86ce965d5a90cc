"""Whole or not at all: what stands under the target's name, and beside it, after every kind of end."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from plans import ENDINGS, plan
from refusals import refusal

from tritgold.errors import FormatError, OutputError
from tritgold.formats.whole_file import write_chunks, written_folder, written_whole

BOTH = pytest.mark.parametrize("context", [written_whole, written_folder])


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize("before", [None, b"old"])
def test_a_file_appears_when_the_block_ends(tmp_path: Path, before: bytes | None) -> None:
    path = tmp_path / "m.bin"
    if before is not None:
        path.write_bytes(before)
    with written_whole(path) as scratch:
        assert not scratch.exists()
        scratch.write_bytes(b"new")
        assert (path.read_bytes() if path.exists() else None) == before
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == {"m.bin"}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_that_fails_leaves_what_was_there(tmp_path: Path, ending: BaseException) -> None:
    path = tmp_path / "m.bin"
    path.write_bytes(b"old")

    def fail() -> None:
        with written_whole(path) as scratch:
            scratch.write_bytes(b"half")
            raise ending

    with pytest.raises(type(ending)):
        fail()
    assert names(tmp_path) == {"m.bin"}
    assert path.read_bytes() == b"old"


def test_a_file_gets_the_rights_that_the_umask_leaves(tmp_path: Path) -> None:
    with umask(0o027):
        write(tmp_path / "m.bin")
        with written_folder(tmp_path / "m"):
            pass
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("m.bin", "m")] == [0o640, 0o750]


@pytest.mark.parametrize("first_ends_first", [True, False])
def test_of_two_writers_of_one_file_the_last_to_finish_wins_whole(tmp_path: Path, first_ends_first: bool) -> None:
    """Each begins before the other ends, and writes before and after the other has begun."""
    path = tmp_path / "m.bin"
    writers = [written_whole(path), written_whole(path)]
    files = []
    for writer, half in zip(writers, (b"first", b"SECOND"), strict=True):
        files.append(writer.__enter__().open("ab"))
        files[-1].write(half)
        files[-1].flush()
    order = (0, 1) if first_ends_first else (1, 0)
    for index in order:
        files[index].write(b" whole")
        files[index].close()
        writers[index].__exit__(None, None, None)
        assert path.read_bytes() == (b"first whole", b"SECOND whole")[index]
    assert names(tmp_path) == {"m.bin"}


def test_a_writer_that_fails_leaves_the_other_alone(tmp_path: Path) -> None:
    path = tmp_path / "m.bin"

    def fail() -> None:
        with written_whole(path) as scratch:
            scratch.write_bytes(b"half")
            raise ValueError("a bug")

    with written_whole(path) as scratch:
        scratch.write_bytes(b"whole")
        with pytest.raises(ValueError, match="a bug"):
            fail()
    assert path.read_bytes() == b"whole"
    assert names(tmp_path) == {"m.bin"}


def test_what_somebody_else_has_beside_the_target_stays(tmp_path: Path) -> None:
    (tmp_path / "m.bin.part").write_bytes(b"a download")
    (tmp_path / "m.part").mkdir()
    (tmp_path / "m.part" / "below").write_text("")
    write(tmp_path / "m.bin")
    with written_folder(tmp_path / "m"):
        pass
    assert names(tmp_path) == {"m.bin", "m", "m.bin.part", "m.part", "m.part/below"}
    assert (tmp_path / "m.bin.part").read_bytes() == b"a download"


@BOTH
@pytest.mark.parametrize(
    "name",
    ["x" * 255, "\N{GRINNING FACE}" * 63, "m.part", "before", ".hidden", " "],
    ids=["ASCII", "four bytes each", "part", "before", "hidden", "space"],
)
def test_a_name_may_be_as_long_as_the_file_system_has_them(
    tmp_path: Path, context: Callable[[Path], object], name: str
) -> None:
    """255 bytes, of which a name for the meantime leaves none for an ending of its own."""
    if context is written_whole:
        write(tmp_path / name)
    else:
        for _ in range(2):
            with written_folder(tmp_path / name, replace=True) as scratch:
                (scratch / "a").touch()
    assert {found.split("/")[0] for found in names(tmp_path)} == {name}


def test_a_name_too_long_is_refused(tmp_path: Path) -> None:
    for act in (written_folder(tmp_path / ("x" * 256)).__enter__, lambda: write(tmp_path / ("x" * 256))):
        assert refusal(act).kind == "unwritable"
    assert names(tmp_path) == set()


@BOTH
@pytest.mark.parametrize("name", [".", "/", "", "..", "no/.."])
def test_a_name_that_only_a_folder_can_have_is_refused(
    tmp_path: Path, context: Callable[..., object], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an empty folder, which any other name may replace."""
    monkeypatch.chdir(tmp_path)
    error = refusal(lambda: context(Path(name)).__enter__())  # type: ignore[attr-defined]
    assert (type(error), error.kind, error.file) == (OutputError, "exists", str(Path(name)))
    assert names(tmp_path) == set()


def test_companions_lie_beside_the_scratch_file_and_vanish_with_it(tmp_path: Path) -> None:
    """As the converter has them: moved by the block, or left to be removed."""
    with written_whole(tmp_path / "m.bin") as scratch:
        scratch.write_bytes(b"x")
        moved, left = (scratch.with_name(f"{scratch.name}.{name}") for name in ("moved", "left"))
        moved.write_bytes(b"moved")
        left.write_bytes(b"left")
        moved.replace(tmp_path / "m.bin.moved")
    assert names(tmp_path) == {"m.bin", "m.bin.moved"}


def test_a_block_that_writes_nothing_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "m.bin").write_bytes(b"old")

    def nothing() -> None:
        with written_whole(tmp_path / "m.bin"):
            pass

    assert refusal(nothing).kind == "unwritable"
    assert (tmp_path / "m.bin").read_bytes() == b"old"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_full_disk_is_named(tmp_path: Path) -> None:
    def fill() -> None:
        with written_whole(tmp_path / "m.bin") as scratch:
            scratch.symlink_to("/dev/full")
            scratch.write_bytes(bytes(10))

    error = refusal(fill)
    assert (type(error), error.kind, error.file) == (OutputError, "disk-full", str(tmp_path / "m.bin"))
    assert names(tmp_path) == set()


@BOTH
@pytest.mark.parametrize("missing", ["none", "file"])
def test_no_folder_is_made_for_a_target(tmp_path: Path, context: Callable[..., object], missing: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    error = refusal(lambda: context(tmp_path / missing / "m").__enter__())  # type: ignore[attr-defined]
    assert (type(error), error.kind, error.file) == (OutputError, "no-folder", str(tmp_path / missing))
    assert names(tmp_path) == {"file"}


def test_a_file_does_not_take_the_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    assert refusal(lambda: written_whole(tmp_path / "m").__enter__()).kind == "exists"
    assert (tmp_path / "m").is_dir()


@pytest.mark.skipif(not os.path.exists("/dev/null"), reason="no device")
def test_a_file_does_not_take_the_place_of_a_device(tmp_path: Path) -> None:
    (tmp_path / "null").symlink_to("/dev/null")
    error = refusal(lambda: written_whole(tmp_path / "null").__enter__())
    assert (error.kind, error.message) == ("exists", "is not a regular file")


@BOTH
def test_a_file_that_cannot_be_read_is_not_said_to_be_written(tmp_path: Path, context: Callable[..., object]) -> None:
    """The block reads its source, too; what is wrong there is no fault of the target."""
    for error in (OSError(errno.EIO, "Input/output error"), FileNotFoundError(errno.ENOENT, "No", str(tmp_path / "m"))):

        def read(error: OSError = error) -> None:
            with context(tmp_path / "m") as scratch:  # type: ignore[attr-defined]
                scratch.exists()
                raise error

        with pytest.raises(OSError, match=str(error.strerror)) as caught:
            read()
        assert caught.value is error
    assert names(tmp_path) == set()


@BOTH
def test_a_fault_of_what_is_written_is_named_by_the_target(tmp_path: Path, context: Callable[..., object]) -> None:
    def below() -> None:
        with context(tmp_path / "m") as scratch:  # type: ignore[attr-defined]
            (scratch / "no" / "folder").write_bytes(b"x")

    def too_large() -> None:
        with context(tmp_path / "m"):  # type: ignore[attr-defined]
            raise OSError(errno.EFBIG, "File too large")

    for act in (below, too_large):
        error = refusal(act)
        assert (type(error), error.kind, error.file) == (OutputError, "unwritable", str(tmp_path / "m"))
        assert ".part" not in str(error)
    assert names(tmp_path) == set()


def test_a_device_that_fails_while_a_tensor_is_written(tmp_path: Path) -> None:
    """Such an error names no file; that it came from writing is known there alone."""

    class Broken:
        def __init__(self, name: Path) -> None:
            self.name = str(name)

        def write(self, data: bytes) -> int:
            raise OSError(errno.EIO, "Input/output error")

    def act() -> None:
        with written_whole(tmp_path / "m.bin") as scratch:
            write_chunks(Broken(scratch), plan("a", bytes(4)))  # type: ignore[arg-type]

    error = refusal(act)
    assert (error.kind, error.file) == ("unwritable", str(tmp_path / "m.bin"))


def test_an_error_about_the_scratch_names_the_target(tmp_path: Path) -> None:
    """Of a kind of its own, raised while the result is proved: the name of the meantime means nothing to anybody."""

    def prove() -> None:
        with written_folder(tmp_path / "m") as scratch:
            raise FormatError("is cut off", kind="truncated", file=scratch / "model.safetensors")

    error = refusal(prove)
    assert (type(error), error.kind, error.file) == (
        FormatError,
        "truncated",
        str(tmp_path / "m" / "model.safetensors"),
    )
    assert ".part" not in str(error)

    def read_source() -> None:
        with written_folder(tmp_path / "m"):
            raise FormatError("is cut off", kind="truncated")

    assert refusal(read_source).file is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        for act in (written_folder(tmp_path / "m").__enter__, lambda: write(tmp_path / "m.bin")):
            assert refusal(act).kind == "unwritable"
    finally:
        tmp_path.chmod(0o700)


def write(path: Path) -> None:
    with written_whole(path) as scratch:
        scratch.write_bytes(b"x")
