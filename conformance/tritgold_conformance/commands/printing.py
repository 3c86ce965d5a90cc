"""Output and errors of the program: text without terminal control characters, JSON, progress, exit codes."""

import errno
import json
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TextIO

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from tritgold.errors import EngineError, TritgoldError, TritgoldWarning
from tritgold.formats.untrusted_text import printable
from tritgold_conformance.commands.leaving import COULD_NOT_JUDGE as COULD_NOT_JUDGE
from tritgold_conformance.commands.leaving import one_line

_OF_OUTPUT = (errno.EPIPE, errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object on stdout. Raises ValueError for numbers that are not finite, which are not valid JSON."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:  # a lone surrogate, or a terminal without the character: use JSON escapes
        text = json.dumps(value, indent=1, allow_nan=False)
    click.echo(text)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether this stream is a terminal; a program may be started without the stream."""
    return stream is not None and stream.isatty()


class _Console(Console):
    """Prints all text literally: terminal control characters are shown as escapes. Styles are rich's own."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """All printed output passes through this method."""
        return map(_harmless, super().render(renderable, options))

    def on_broken_pipe(self) -> None:
        """rich would exit with 1, which is a verdict; ``leaving`` exits with 3."""
        raise  # the BrokenPipeError that rich has just caught


def _harmless(segment: Segment) -> Segment:
    if segment.control or segment.text.isprintable():
        return segment
    lines = (printable(line, len(line)) for line in segment.text.split("\n"))
    return Segment("\n".join(lines), segment.style)


def console(stderr: bool = False) -> Console:
    """A rich console that shows control characters as escapes. As wide as the terminal; 120 columns without one."""
    width = None if is_terminal(sys.stderr if stderr else sys.stdout) else 120
    return _Console(width=width, highlight=False, emoji=False, stderr=stderr)


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A line on stderr with the current step, if stderr is a terminal."""
    if not is_terminal(sys.stderr):
        yield lambda _: None
        return
    with console(stderr=True).status("...") as status:
        yield status.update


Failed = Callable[[dict[str, Any]], None]


@contextmanager
def errors(as_json: bool, failed: Failed = lambda _: None) -> Iterator[None]:
    """Errors end the command with exit code 3, on stderr as text or on stdout as JSON. Never 1: that is a verdict.

    failed: called first, with the fields of ``tritgold.error/1``.
    """
    try:
        yield
    except (click.ClickException, click.Abort):
        raise  # usage errors, which click handles
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None and error.errno in _OF_OUTPUT:
            raise  # an output error, not an unreadable input: ``leaving`` reports it
        text, fields = _described(error)
        failed(fields)
        _fail(text, fields, as_json)


def _described(error: Exception) -> tuple[str, dict[str, Any]]:
    """The text for an error, and the fields of ``tritgold.error/1``."""
    name, message = type(error).__name__, str(error)
    match error:
        case TritgoldError():
            if isinstance(error, EngineError) and error.__cause__ is not None:  # for the engine's developer
                _print_traceback(error.__cause__)
            return f"{name}: {error}", error.as_dict()
        case TritgoldWarning():  # turned into an error by Python's -W or PYTHONWARNINGS
            kind = "warning"
        case OSError():
            kind = "unreadable"
        case UnicodeEncodeError():
            kind, message = "text", f"holds text that is not Unicode and cannot be written: {error.reason}"
        case MemoryError():
            fields = {"error": name, "kind": "memory", "message": "not enough memory"}
            return "MemoryError: not enough memory for this model and context", fields
        case _:  # a bug in tritgold, or input that should have been refused with a typed error
            _print_traceback(error)
            fields = {"error": name, "kind": "unexpected", "message": message}
            return "This is a bug in tritgold: please report the lines above.", fields
    return f"{name}: {message}", {"error": name, "kind": kind, "message": message}


def _print_traceback(error: BaseException) -> None:
    """Print each line after a bar, because an engine's exception may contain any text with any number of lines."""
    if sys.stderr is not None:
        for line in "".join(traceback.format_exception(error)).rstrip("\n").split("\n"):
            click.echo(f"| {one_line(line)}", err=True)


def echo(text: str) -> None:
    """Print one line on stdout; the text may be untrusted."""
    click.echo(one_line(text))


def say_error(text: str) -> None:
    """Print one line on stderr; the text may be untrusted."""
    click.echo(one_line(text), err=True)


def _fail(text: str, fields: dict[str, Any], as_json: bool) -> NoReturn:
    if as_json:
        print_json({"schema": "tritgold.error/1", **fields})
    else:
        click.echo("\n".join(one_line(line) for line in text.split("\n")), err=True)
    sys.exit(COULD_NOT_JUDGE)
