"""Writing that appears whole or not at all: a file, a folder, and the bytes of a planned tensor inside them.

A converter that fails must not leave half a checkpoint behind: the next program would take it for a whole one.
"""

import errno
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tritgold.errors import OutputError
from tritgold.formats.container import PlannedTensor
from tritgold.formats.untrusted_text import first_repeated, printable

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Where to write a file meanwhile: ``<name>.part`` beside ``path``, which does not exist yet.

    It is moved to ``path`` when the block ends, whatever stood there before, and removed when anything leaves the
    block. A ``.part`` file left by a process that was killed is removed first.

    Raises OutputError, kinds ``no-folder`` (the folder of ``path`` does not exist; none is made), ``exists`` (a folder
    has that name), ``disk-full``, ``unwritable``.
    """
    _require_parent(path)
    if path.is_dir():
        raise OutputError("is a folder", kind="exists", file=path, expected="the name of a file")
    scratch = path.with_name(path.name + ".part")
    with _typed(path):
        scratch.unlink(missing_ok=True)
    try:
        with _typed(path):
            yield scratch
            scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


@contextmanager
def written_folder(folder: Path, replace: bool = False) -> Iterator[Path]:
    """Where to write a folder meanwhile: ``<name>.part`` beside ``folder``, new and empty.

    It is renamed to ``folder`` when the block ends, and removed when anything leaves the block. One left by a process
    that was killed is removed first. replace: what stands at ``folder`` gives way once the new one is complete;
    without it only an empty folder does.

    Raises OutputError, kinds ``no-folder``, ``exists``, ``disk-full``, ``unwritable``.
    """
    _require_parent(folder)
    if not replace and folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        expected, hint = "nothing, or an empty folder", "give the name of a new folder, or remove what is there"
        raise OutputError("is there already", kind="exists", file=folder, expected=expected, hint=hint)
    scratch = folder.with_name(folder.name + ".part")
    with _typed(folder):
        if scratch.exists():
            shutil.rmtree(scratch)
        scratch.mkdir()
    try:
        with _typed(folder):
            yield scratch
            if folder.exists() and replace:
                shutil.rmtree(folder)
            elif folder.exists():
                folder.rmdir()  # fails where somebody has put something there meanwhile
            scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def write_chunks(file: BinaryIO, tensor: PlannedTensor) -> None:
    """Write a tensor's bytes as they are made. Raises OutputError (``planned-size``) where they are more or fewer
    than planned: the header, which is written already, would be wrong about every tensor behind it.
    """
    written = 0
    for chunk in tensor.chunks():
        written += memoryview(chunk).nbytes
        if written > tensor.size:
            break
        file.write(chunk)
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


def _require_parent(path: Path) -> None:
    if not path.parent.is_dir():
        raise OutputError(
            "is no folder", kind="no-folder", file=path.parent, hint=f"make it first: {path.name} goes there"
        )


@contextmanager
def _typed(path: Path) -> Iterator[None]:
    """Names the target in an error of the operating system."""
    try:
        yield
    except OSError as error:
        kind = "disk-full" if error.errno in _NO_SPACE else "unwritable"
        raise OutputError(f"cannot be written: {error}", kind=kind, file=path) from error
    except OutputError as error:
        raise error.located(file=path) from None
