"""A folder that is written whole or not at all: what stands under its name, and beside it, after every kind of end."""

import errno
from pathlib import Path

import pytest
from plans import ENDINGS
from refusals import refusal

from tritgold.errors import OutputError
from tritgold.formats.whole_file import written_folder


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("before", ["nothing", "empty"])
def test_a_folder_appears_when_the_block_ends(tmp_path: Path, before: str) -> None:
    folder = tmp_path / "m"
    if before == "empty":
        folder.mkdir()
    with written_folder(folder) as scratch:
        assert names(scratch) == set()
        (scratch / "a").write_text("a")
        assert not folder.exists() or names(folder) == set()
    assert names(tmp_path) == {"m", "m/a"}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_two_writers_of_one_folder_the_last_to_finish_wins_whole(tmp_path: Path, order: tuple[int, int]) -> None:
    folder = tmp_path / "m"
    writers = [written_folder(folder, replace=True) for _ in range(2)]
    scratches = [writer.__enter__() for writer in writers]
    for index in order:
        (scratches[index] / f"{index}").touch()
        (scratches[index] / "both").write_text(f"{index}")
        writers[index].__exit__(None, None, None)
        assert names(folder) == {f"{index}", "both"}
        assert (folder / "both").read_text() == f"{index}"
    assert names(tmp_path) == {"m", "m/both", f"m/{order[1]}"}


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

    error = refusal(race)
    assert (error.kind, error.file) == ("exists", str(tmp_path / "m"))
    assert names(tmp_path) == {"m", "m/theirs"}


def test_a_folder_filled_by_another_writer_while_the_old_one_is_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one comes between the two renames; ours is tried again and wins, being the last."""
    folder, rename, calls = tmp_path / "m", Path.rename, []

    def racing(self: Path, target: Path) -> Path:
        done = rename(self, target)
        calls.append(self)
        if calls == [folder]:
            folder.mkdir()
            (folder / "theirs").touch()
        return done

    folder.mkdir()
    (folder / "old").touch()
    monkeypatch.setattr(Path, "rename", racing)
    with written_folder(folder, replace=True) as scratch:
        (scratch / "ours").touch()
    assert names(tmp_path) == {"m", "m/ours"}
    assert calls[1] == folder


@pytest.mark.parametrize("ending", [KeyboardInterrupt(), OSError(errno.EIO, "Input/output error")])
def test_the_old_folder_comes_back_where_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: BaseException
) -> None:
    folder, rename = tmp_path / "m", Path.rename
    folder.mkdir()
    (folder / "old").write_text("old")

    def failing(self: Path, target: Path) -> Path:
        if (self / "new").exists() and not folder.exists():
            raise ending
        return rename(self, target)

    def act() -> None:
        with written_folder(folder, replace=True) as scratch:
            (scratch / "new").touch()

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(type(ending)):
        act()
    assert names(tmp_path) == {"m", "m/old"}
