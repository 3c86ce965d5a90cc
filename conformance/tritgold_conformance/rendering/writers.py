"""Reports as files: the suffix selects the format; each file is written completely or not at all."""

import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tritgold.errors import OutputError
from tritgold.formats.whole_file import written_whole
from tritgold_conformance.rendering.badge import badge
from tritgold_conformance.rendering.html import to_html
from tritgold_conformance.rendering.junit import junit
from tritgold_conformance.rendering.markdown import to_markdown
from tritgold_conformance.results.report import Report, to_json

FORMATS: dict[str, Callable[[Report], str]] = {
    ".json": lambda report: to_json(report).decode() + "\n",
    ".xml": junit,
    ".md": to_markdown,
    ".html": to_html,
    ".svg": badge,
}


def require_formats(paths: Sequence[Path]) -> None:
    """Check the paths before anything is computed.

    Raises OutputError for a suffix that is not in FORMATS, a folder that does not exist or cannot be written to, a path
    that is not a regular file, and a path that is given twice.
    """
    for n, path in enumerate(paths):
        if path.suffix.lower() not in FORMATS:
            what, kind = "no format has this suffix", "report-suffix"
            raise OutputError(what, kind=kind, file=path, got=repr(path.suffix), expected=", ".join(FORMATS))
        if not path.parent.is_dir():
            raise OutputError("its folder does not exist", kind="no-folder", file=path, hint="make it first")
        if path.exists() and not path.is_file():
            raise OutputError("is not a regular file", kind="exists", file=path, expected="the name of a file")
        if path in paths[:n]:
            raise OutputError("is named twice", kind="report-twice", file=path)
        try:
            with tempfile.TemporaryDirectory(prefix=".tritgold-", dir=path.parent):
                pass  # a test write: permissions alone do not show whether writing works
        except OSError as error:
            raise OutputError(
                f"its folder cannot be written to: {error.strerror}", kind="unwritable", file=path
            ) from None


def remove_old(paths: Sequence[Path]) -> None:
    """Delete reports of an earlier run, so that they are not mistaken for the result of a run that fails.

    Raises OutputError (``unwritable``).
    """
    for path in paths:
        try:
            with suppress(FileNotFoundError):
                path.unlink()
        except OSError as error:
            raise OutputError(f"cannot be replaced: {error.strerror}", kind="unwritable", file=path) from error


def write_reports(report: Report, paths: Sequence[Path]) -> None:
    """Write each report in the format of its suffix. Raises OutputError if one cannot be written."""
    for path in paths:
        text = FORMATS[path.suffix.lower()](report)
        with written_whole(path) as scratch:
            scratch.write_text(text, "utf-8", newline="\n")
