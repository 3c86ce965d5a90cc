"""Atomic writing, completely or not at all: of a file, of a folder, and the bytes of a planned tensor.

A converter that fails must not leave half a checkpoint: the next program would take it for a complete one.
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
_ONLY_WRITING = (*_NO_SPACE, errno.EFBIG)  # such an error comes from the writing, even if it names no file
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)  # rename of a folder: the target exists and is not empty


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """The temporary path at which to write a file: a name that does not exist yet, in a new folder beside ``path``.

    When the block ends, the file is moved to ``path`` and replaces an existing file. Each writer has its own folder,
    so of two writers of one file the last to finish wins, with a complete file. The folder and its content are always
    removed at the end; only a killed process leaves its folder, ``<name>.????????.part``.

    Raises OutputError, kinds ``no-folder`` (the folder of ``path`` does not exist; it is not created), ``exists`` (a
    folder or a device has that name), ``disk-full``, ``unwritable``. An OSError from the block that is not about the
    written files is passed on unchanged.
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
    """The temporary path for several files with names like ``path``: write them all into its folder.

    If the block ends without an error, all are moved to the folder of ``path`` and replace existing files; the first
    by name is moved last. Otherwise as ``written_whole``.
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
    """The temporary path of a folder to write into: it is empty, inside another new folder beside ``folder``.

    It is renamed to ``folder`` when the block ends, and removed if the block raises. As in ``written_whole``, each
    writer has its own. replace: an existing ``folder`` is replaced once the new one is complete, and restored if the
    renaming fails; without ``replace`` only an empty folder is replaced.

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
    """Write a tensor's bytes as they are made.

    Raises OutputError (``planned-size``) if they are more or fewer than planned: the header is written already, and
    its offsets of all later tensors would be wrong.
    """
    written = 0
    for chunk in tensor.chunks():
        written += memoryview(chunk).nbytes
        if written > tensor.size:
            break
        try:
            file.write(chunk)
        except OSError as error:
            error.filename = file.name  # write() does not set it
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
    """The planned tensors as a list. Raises OutputError (``duplicate-name``) if two tensors have the same name."""
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
    """A path with the name of ``path``, in a new folder on the same disk. Errors from the block name ``path``."""
    try:
        # 32 characters are at most 128 bytes: the folder's name fits into the file system's limit if ``path``'s does.
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
    """Whether the error names a file in the folder ``own``."""
    names = (error.filename, error.filename2)
    return any(own.name in Path(os.fsdecode(name)).parts for name in names if isinstance(name, str | bytes | Path))


def _publish(scratch: Path, folder: Path, replace: bool) -> None:
    """Rename to ``folder``. If another writer was faster, its folder is treated like one that existed before."""
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
    """Rename if the target does not exist or is an empty folder; False if something else exists there."""
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
