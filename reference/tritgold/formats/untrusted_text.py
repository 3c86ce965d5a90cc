"""Text from files that may be damaged or hostile: size limits, JSON with unique names, printable strings."""

import errno
import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tritgold.errors import FormatError

_SHOWN = 200


class RepeatedNameError(ValueError):
    """A JSON object has a name twice; it is undefined which of the two values counts."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"{printable(repr(name))} occurs twice")


def require_regular(path: Path) -> int:
    """The size in bytes of a regular file, links followed; call it before the file is opened.

    Opening a FIFO waits for a writer, and a device may give bytes without end although its size is 0. Raises
    FormatError ``unreadable`` for these and for sockets, OSError as ``open`` does for a folder or a missing file.
    """
    found = path.stat()
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(found.st_mode):
        raise FormatError("is not a regular file", kind="unreadable", file=path)
    return found.st_size


def read_text(path: Path, limit: int) -> str:
    """The text of a small UTF-8 file, its line ends unchanged. At most ``limit`` + 1 bytes are read.

    Raises FormatError ``unreadable`` if it is not a regular file, OSError as ``open`` does, and ValueError for a file
    that is larger than ``limit`` or not UTF-8 (UnicodeDecodeError).
    """
    size = require_regular(path)
    if size <= limit:
        with path.open("rb") as file:
            content = file.read(size)  # not read(limit): Python would allocate a buffer of that size
            # Files of /proc have a size of 0, and a file may grow.
            while len(content) <= limit and (more := file.read(min(limit + 1 - len(content), 1 << 16))):
                content += more
        if len(content) <= limit:
            return content.decode("utf-8")
        size = len(content)
    raise ValueError(f"{size} bytes are too many; at most {limit} are read")


def parse_json(text: str) -> Any:
    """``json.loads``, but a repeated name is refused (RepeatedNameError) and every failure is a ValueError.

    >>> parse_json('{"theta": 1e4, "theta": 5e5}')
    Traceback (most recent call last):
    tritgold.formats.untrusted_text.RepeatedNameError: 'theta' occurs twice
    """
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        raise RepeatedNameError(first_repeated(name for name, _ in pairs) or "")
    return unique


def is_one_of(value: object, allowed: Iterable[object]) -> bool:
    """Whether the value equals one of the allowed values and has its type: True is not 1, an array is not a number.

    >>> is_one_of(1, (1, None)), is_one_of(True, (1, None))
    (True, False)
    """
    return any(type(value) is type(other) and value == other for other in allowed)


def first_repeated(names: Iterable[Any]) -> Any:
    """The first item that is a repetition, or None. Linear time: a file may hold a million names."""
    seen = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def printable(value: object, most: int = _SHOWN) -> str:
    r"""A value as text for a message: control characters are escaped, and it is cut after ``most`` characters.

    >>> printable("\x1b[2J"), printable("x" * 300)[197:]
    ('\\x1b[2J', 'xxx...')
    """
    text = str(value)
    if len(text) <= most and text.isprintable():
        return text
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[:most])
    return shown + "..." if len(text) > most else shown
