"""How output and errors leave the program: text that no terminal obeys, JSON, progress, exit codes."""

import errno
import io
import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console


F = TypeVar("F", bound=Callable[..., Any])

COULD_NOT_JUDGE, INTERRUPTED = 3, 130
_OF_OUTPUT = (errno.EPIPE, errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


def json_option(function: F) -> F:
    """``--json``: one object on stdout, nothing else there."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")(function)


def print_json(value: dict[str, Any]) -> None:
    """One JSON object on stdout. Non-finite numbers would not be JSON: they are an error here, not a surprise there."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:  # half a character, or a terminal without them: JSON's own escapes
        text = json.dumps(value, indent=1, allow_nan=False)
    click.echo(text)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether somebody watches; a program may be started without the stream."""
    return stream is not None and stream.isatty()


def console(stderr: bool = False) -> "Console":
    """A rich console: as wide as the terminal, 120 columns where there is none.

    Text is text there, whoever wrote it: what a terminal would obey is shown as an escape. Styles are rich's own.
    """
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    from tritgold.formats.untrusted_text import printable

    def harmless(segment: Segment) -> Segment:
        if segment.control or segment.text.isprintable():
            return segment
        lines = (printable(line, len(line)) for line in segment.text.split("\n"))
        return Segment("\n".join(lines), segment.style)

    class Ours(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
            """What everything that is printed goes through."""
            return map(harmless, super().render(renderable, options))

        def on_broken_pipe(self) -> None:
            """rich itself exits with 1 here, which is a verdict: ``leaving`` knows better."""
            raise  # the BrokenPipeError that rich has just caught

    width = None if is_terminal(sys.stderr if stderr else sys.stdout) else 120
    return Ours(width=width, highlight=False, emoji=False, stderr=stderr)


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A line on stderr that says what is being done, where stderr is a terminal."""
    if not is_terminal(sys.stderr):
        yield lambda _: None
        return
    with console(stderr=True).status("...") as status:
        yield status.update


Failed = Callable[[dict[str, Any]], None]


@contextmanager
def errors(as_json: bool, failed: Failed = lambda _: None) -> Iterator[None]:
    """Typed errors end the command with exit code 3, on stderr as text or on stdout as JSON.

    failed: told the error first, as the fields of ``tritgold.error/1``.
    """
    from tritgold.errors import EngineError, TritgoldError, TritgoldWarning

    def fail(text: str, fields: dict[str, Any]) -> NoReturn:
        failed(fields)
        _fail(text, fields, as_json)

    try:
        yield
    except TritgoldError as error:
        if isinstance(error, EngineError) and error.__cause__ is not None:  # its developer wants to see where
            _print_traceback(error.__cause__)
        fail(f"{type(error).__name__}: {error}", error.as_dict())
    except TritgoldWarning as warning:  # made an error by Python's own -W or PYTHONWARNINGS
        fields = {"error": "TritgoldWarning", "kind": "warning", "message": str(warning)}
        fail(f"TritgoldWarning: {warning}", fields)
    except OSError as error:
        if error.filename is None and error.errno in _OF_OUTPUT:
            raise  # nothing of ours was unreadable: stdout cannot be written, and ``leaving`` says so
        fields = {"error": type(error).__name__, "kind": "unreadable", "message": str(error)}
        fail(f"{type(error).__name__}: {error}", fields)
    except UnicodeEncodeError as error:
        what = f"holds text that is no Unicode and cannot be written: {error.reason}"
        fields = {"error": "UnicodeEncodeError", "kind": "text", "message": what}
        fail(f"UnicodeEncodeError: {what}", fields)
    except (click.ClickException, click.Abort):
        raise  # click's own: usage
    except MemoryError:
        fields = {"error": "MemoryError", "kind": "memory", "message": "not enough memory"}
        fail("MemoryError: not enough memory for this model and context", fields)
    except Exception as error:
        # A bug of ours, or input that should have been refused by name. Never exit code 1: that is a verdict.
        _print_traceback(error)
        fields = {"error": type(error).__name__, "kind": "unexpected", "message": str(error)}
        fail("This is a bug in tritgold: please report the lines above.", fields)


@contextmanager
def leaving() -> Iterator[None]:
    """Around every command: what its exit code must not say, and how warnings are shown.

    Output that cannot be written ends with 3, never with 1, which is a verdict; Ctrl-C with 130, as in a shell.
    """
    if sys.stdout is None:
        click.echo("OutputError: there is no standard output to write to", err=True)
        sys.exit(COULD_NOT_JUDGE)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal without the letter shows its number
            stream.reconfigure(errors="backslashreplace")
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_once()
            try:
                yield
            finally:
                sys.stdout.flush()
    except KeyboardInterrupt:
        _drop_output()
        sys.exit(INTERRUPTED)
    except OSError as error:
        with suppress(OSError):
            if error.errno != errno.EPIPE:  # whoever reads has read enough (head)
                click.echo(
                    f"OutputError: cannot write to standard output or standard error: {error.strerror}", err=True
                )
        _drop_output()
        sys.exit(COULD_NOT_JUDGE)


def _show_once() -> Callable[..., None]:
    """A ``warnings.showwarning`` that prints one line a text, without the place in our source."""
    said: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = _one_line(str(message))
        if text not in said:
            said.add(text)
            click.echo(f"warning: {text}", err=True)

    return show


def _drop_output() -> None:
    """Send what the streams still hold nowhere: Python writes it at its end, and would exit with 120 if it cannot."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with suppress(OSError), open(os.devnull, "w", encoding="utf-8") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())
        except AttributeError:  # a program started without the stream
            continue


def _print_traceback(error: BaseException) -> None:
    """Behind a bar, for an exception of an engine's holds text of the engine's, of as many lines as it likes."""
    if sys.stderr is not None:
        for line in "".join(traceback.format_exception(error)).rstrip("\n").split("\n"):
            click.echo(f"| {_one_line(line)}", err=True)


def echo(text: str) -> None:
    """One line on stdout, of text that may be a stranger's."""
    click.echo(_one_line(text))


def say_error(text: str) -> None:
    """The same on stderr."""
    click.echo(_one_line(text), err=True)


def _one_line(text: str) -> str:
    """Text that may quote a file: nothing in it moves the cursor."""
    from tritgold.formats.untrusted_text import printable

    line = " ".join(text.splitlines())
    return printable(line, len(line))


def _fail(text: str, fields: dict[str, Any], as_json: bool) -> NoReturn:
    if as_json:
        print_json({"schema": "tritgold.error/1", **fields})
    else:
        click.echo("\n".join(_one_line(line) for line in text.split("\n")), err=True)
    sys.exit(COULD_NOT_JUDGE)
