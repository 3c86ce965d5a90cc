"""Whole or not at all: what stands under the target's name, and beside it, after every kind of end."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from plans import ENDINGS, plan
from refusals import frugal, refusal

from tritgold.errors import OutputError
from tritgold.formats.container import PlannedTensor
from tritgold.formats.gguf_writer import write_gguf
from tritgold.formats.safetensors_writer import write_safetensors, write_sharded
from tritgold.formats.sglbitnt_file import write_sglbitnt
from tritgold.formats.whole_file import listed, write_chunks, written_folder, written_whole


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


# ---- a file ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [None, b"old"])
def test_a_file_appears_when_the_block_ends(tmp_path: Path, before: bytes | None) -> None:
    path = tmp_path / "m.bin"
    if before is not None:
        path.write_bytes(before)
    with written_whole(path) as scratch:
        assert scratch == tmp_path / "m.bin.part"
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


def test_a_scratch_file_of_a_killed_process_is_not_taken_over(tmp_path: Path) -> None:
    (tmp_path / "m.bin.part").write_bytes(b"longer than the new one")
    with written_whole(tmp_path / "m.bin") as scratch, scratch.open("ab") as file:
        file.write(b"new")
    assert (tmp_path / "m.bin").read_bytes() == b"new"
    assert names(tmp_path) == {"m.bin"}


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


@pytest.mark.parametrize("context", [written_whole, written_folder])
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


# ---- a folder ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", ["nothing", "empty", "part"])
def test_a_folder_appears_when_the_block_ends(tmp_path: Path, before: str) -> None:
    folder = tmp_path / "m"
    if before == "empty":
        folder.mkdir()
    if before == "part":
        (tmp_path / "m.part" / "below").mkdir(parents=True)
        (tmp_path / "m.part" / "below" / "stale").write_text("")
    with written_folder(folder) as scratch:
        assert scratch == tmp_path / "m.part"
        assert names(scratch) == set()
        (scratch / "a").write_text("a")
        assert not folder.exists() or names(folder) == set()
    assert names(tmp_path) == {"m", "m/a"}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("replace", [False, True])
def test_a_folder_that_fails_leaves_what_was_there(tmp_path: Path, ending: BaseException, replace: bool) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    if replace:
        (folder / "old").write_text("old")
    before = names(tmp_path)

    def fail() -> None:
        with written_folder(folder, replace) as scratch:
            (scratch / "half").write_text("half")
            raise ending

    with pytest.raises(type(ending)):
        fail()
    assert names(tmp_path) == before


@pytest.mark.parametrize("there", ["file", "folder"])
def test_what_is_there_is_refused_or_replaced_as_asked(tmp_path: Path, there: str) -> None:
    path = tmp_path / "m"
    if there == "folder":
        path.mkdir()
        (path / "old").write_text("old")
    else:
        path.write_text("old")
    before = names(tmp_path)
    error = refusal(lambda: written_folder(path).__enter__())
    assert (type(error), error.kind, error.file) == (OutputError, "exists", str(path))
    assert names(tmp_path) == before
    if there == "folder":
        with written_folder(path, replace=True) as scratch:
            (scratch / "new").write_text("new")
            assert names(path) == {"old"}
        assert names(tmp_path) == {"m", "m/new"}


def test_a_folder_filled_meanwhile_is_kept(tmp_path: Path) -> None:
    def race() -> None:
        with written_folder(tmp_path / "m") as scratch:
            (scratch / "ours").write_text("")
            (tmp_path / "m").mkdir()
            (tmp_path / "m" / "theirs").write_text("")

    assert refusal(race).kind == "unwritable"
    assert names(tmp_path) == {"m", "m/theirs"}


# ---- the bytes of a tensor ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "got"),
    [([], "0 bytes"), ([b"123"], "3 bytes"), ([b"12", b"345"], "at least 5 bytes"), ([b"1234", b"5"], "at least 5")],
)
def test_pieces_must_be_as_long_as_planned(tmp_path: Path, pieces: list[bytes], got: str) -> None:
    with (tmp_path / "f").open("wb") as file:
        error = refusal(lambda: write_chunks(file, PlannedTensor("a.weight", "U8", (4,), 4, lambda: pieces)))
    assert (type(error), error.kind, error.thing) == (OutputError, "planned-size", "tensor 'a.weight'")
    assert got in str(error)
    assert (tmp_path / "f").stat().st_size <= 4


def test_pieces_are_written_in_order_and_asked_for_one_at_a_time(tmp_path: Path) -> None:
    written = []

    def pieces() -> Iterator[bytes | memoryview]:
        for piece in (b"", b"12", memoryview(b"3456").cast("H"), b""):
            written.append(file.tell())
            yield piece

    with (tmp_path / "f").open("wb", buffering=0) as file:
        write_chunks(file, PlannedTensor("a", "U8", (6,), 6, pieces))  # type: ignore[arg-type]
    assert (tmp_path / "f").read_bytes() == b"123456"
    assert written == [0, 0, 2, 6]


@pytest.mark.parametrize(
    "write",
    [
        lambda folder, tensors: write_safetensors(folder / "m", tensors, {}),
        lambda folder, tensors: write_sharded(folder, tensors, {}, 10_000_000),
        lambda folder, tensors: write_gguf(folder / "m", {}, tensors),
        lambda folder, tensors: write_sglbitnt(folder / "m", {}, tensors, {}),
    ],
    ids=["safetensors", "shards", "gguf", "sglbitnt"],
)
def test_one_tensor_is_in_memory_at_a_time(
    tmp_path: Path, write: Callable[[Path, Iterator[PlannedTensor]], None]
) -> None:
    def made() -> list[bytes]:
        return [bytes(4_000_000)]

    with frugal(megabytes=9):  # the one before may live until the next is made
        write(tmp_path, (PlannedTensor(f"t{i}", "F32", (1_000_000,), 4_000_000, made) for i in range(8)))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) > 32_000_000


def test_two_tensors_of_one_name_are_refused(tmp_path: Path) -> None:
    plans = [plan("a", bytes(1)), plan("b", bytes(1)), plan("a", bytes(2))]
    error = refusal(lambda: listed(tmp_path / "m", iter(plans)))
    assert (type(error), error.kind, error.thing) == (OutputError, "duplicate-name", "tensor 'a'")
    assert listed(tmp_path, iter(plans[:2])) == plans[:2]
