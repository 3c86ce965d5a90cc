"""Writing that appears whole or not at all: a file, a folder, and the bytes of a planned tensor inside them.

A converter that fails must not leave half a checkpoint behind: the next program would take it for a whole one.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from tritgold.errors import OutputError, TritgoldError
from tritgold.formats.container import PlannedTensor
from tritgold.formats.untrusted_text import first_repeated, printable

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_ONLY_WRITING = (*_NO_SPACE, errno.EFBIG)  # such an error concerns what is written, whether or not it names a file
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)  # a folder is not renamed to what has something in it


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Where to write a file meanwhile: a name that does not exist yet, in a new folder beside ``path``.

    It is moved to ``path`` when the block ends, whatever stood there before. Nobody else has that folder, so of two
    writers of one file each writes its own and the last to finish wins, whole. The folder is removed at every end,
    with whatever else the block put there; that of a process that was killed, ``<name>.????????.part``, stays.

    Raises OutputError, kinds ``no-folder`` (the folder of ``path`` does not exist; none is made), ``exists`` (a folder
    or a device has that name), ``disk-full``, ``unwritable``. An error of the operating system that does not concern
    what is written leaves the block as it is.
    """
    _require_place(path)
    if os.path.exists(path) and not os.path.isfile(path):
        what = "is a folder" if os.path.isdir(path) else "is not a regular file"
        raise OutputError(what, kind="exists", file=path, expected="the name of a file")
    with _scratch(path) as scratch:
        yield scratch
        scratch.replace(path)


@contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """Where to write several files meanwhile, named after ``path``: beside the name that is given, in a new folder.

    All of them are moved to the folder of ``path`` when the block ends well, the first by name last, whatever stood
    there under their names. Otherwise as ``written_whole``.
    """
    _require_place(path)
    with _scratch(path) as scratch:
        yield scratch
        for file in sorted(scratch.parent.iterdir(), reverse=True):
            if os.path.isdir(path.with_name(file.name)):
                what = "is a folder"
                raise OutputError(what, kind="exists", file=path.with_name(file.name), expected="the name of a file")
            file.replace(path.with_name(file.name))


@contextmanager
def written_folder(folder: Path, replace: bool = False) -> Iterator[Path]:
    """Where to write a folder meanwhile: new and empty, in another new folder beside ``folder``.

    It is renamed to ``folder`` when the block ends, and removed when anything leaves the block; as with
    ``written_whole`` nobody else has it. replace: what stands at ``folder`` gives way once the new one is complete,
    and comes back where the renaming fails; without it only an empty folder does.

    Raises OutputError, kinds ``no-folder``, ``exists``, ``disk-full``, ``unwritable``.
    """
    _require_place(folder)
    try:
        if not replace and os.path.lexists(folder) and not (folder.is_dir() and not os.listdir(folder)):
            raise _exists(folder)
    except OSError as error:
        raise _unwritable(folder, error) from error
    with _scratch(folder) as scratch:
        scratch.mkdir()
        yield scratch
        _publish(scratch, folder, replace)


def write_chunks(file: BinaryIO, tensor: PlannedTensor) -> None:
    """Write a tensor's bytes as they are made. Raises OutputError (``planned-size``) where they are more or fewer
    than planned: the header, which is written already, would be wrong about every tensor after it.
    """
    written = 0
    for chunk in tensor.chunks():
        written += memoryview(chunk).nbytes
        if written > tensor.size:
            break
        try:
            file.write(chunk)
        except OSError as error:
            error.filename = file.name  # a device that fails names no file, and here it is known
            raise
    if written != tensor.size:
        raise OutputError(
            "was planned with another size",
            kind="planned-size",
            thing=printable(f"tensor {tensor.name!r}"),
            got=f"{'at least ' if written > tensor.size else ''}{written} bytes",
            expected=f"{tensor.size} bytes",
        )


def listed(path: Path, tensors: Iterable[PlannedTensor]) -> list[PlannedTensor]:
    """The plan as a list. Raises OutputError (``duplicate-name``) where two tensors have one name."""
    plan = list(tensors)
    if (twice := first_repeated(tensor.name for tensor in plan)) is not None:
        raise OutputError("is planned twice", kind="duplicate-name", file=path, thing=printable(f"tensor {twice!r}"))
    return plan


def _require_place(path: Path) -> None:
    if path.name in ("", ".."):
        raise OutputError("is a folder that is there", kind="exists", file=path, expected="the name of a new one")
    if not os.path.isdir(path.parent):
        raise OutputError(
            "is not a folder", kind="no-folder", file=path.parent, hint=f"make it first: {path.name} goes there"
        )


@contextmanager
def _scratch(path: Path) -> Iterator[Path]:
    """The name of ``path`` in a folder of our own, on the same disk. Errors that leave the block name ``path``."""
    try:
        # 32 characters are 128 bytes at most: with the ending they fit where the name itself just does.
        own = Path(tempfile.mkdtemp(prefix=f"{path.name[:32]}.", suffix=".part", dir=path.parent))
    except OSError as error:
        raise _unwritable(path, error) from error
    scratch = own / path.name
    try:
        yield scratch
    except OSError as error:
        if error.errno not in _ONLY_WRITING and not _names(error, own):
            raise
        raise _unwritable(path, error) from error
    except TritgoldError as error:
        moved = error.moved(scratch, path)
        raise moved.located(file=path) if isinstance(error, OutputError) else moved from None
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _names(error: OSError, own: Path) -> bool:
    """Whether the error is about something in the folder."""
    names = (error.filename, error.filename2)
    return any(own.name in Path(os.fsdecode(name)).parts for name in names if isinstance(name, str | bytes | Path))


def _publish(scratch: Path, folder: Path, replace: bool) -> None:
    """Rename; where another writer is first, what it has put there gives way or stays as if it had always been."""
    while not _renamed(scratch, folder):
        if not replace:
            raise _exists(folder)
        before = Path(tempfile.mkdtemp(dir=scratch.parent)) / "before"
        try:
            with suppress(FileNotFoundError):  # another writer has moved it away
                folder.rename(before)
            if _renamed(scratch, folder):
                return
        except BaseException:
            if os.path.lexists(before):
                _renamed(before, folder)
            raise


def _renamed(source: Path, folder: Path) -> bool:
    """Rename to what does not exist or is an empty folder; False where something else is there."""
    try:
        source.rename(folder)
    except OSError as error:
        if error.errno not in _TAKEN:
            raise
        return False
    return True


def _exists(folder: Path) -> OutputError:
    expected, hint = "nothing, or an empty folder", "give the name of a new folder, or remove what is there"
    return OutputError("is there already", kind="exists", file=folder, expected=expected, hint=hint)


def _unwritable(path: Path, error: OSError) -> OutputError:
    kind = "disk-full" if error.errno in _NO_SPACE else "unwritable"
    return OutputError(f"cannot be written: {error.strerror or error}", kind=kind, file=path)
