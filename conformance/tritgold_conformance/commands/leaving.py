"""How a command ends: exit codes for output that cannot be written, and warnings of one line each.

Imported for ``--help``, so it must not import rich or other slow modules: see ``printing``.
"""

import errno
import io
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import click

from tritgold.formats.untrusted_text import printable

COULD_NOT_JUDGE, INTERRUPTED = 3, 130


@contextmanager
def leaving() -> Iterator[None]:
    """Around every command: exit codes for failed output, and the format of warnings.

    Output that cannot be written gives exit code 3, never 1, which is a verdict; Ctrl-C gives 130, as in a shell.
    """
    if sys.stdout is None:
        click.echo("OutputError: there is no standard output to write to", err=True)
        sys.exit(COULD_NOT_JUDGE)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # characters that the terminal cannot show are printed as escapes
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
            if error.errno != errno.EPIPE:  # EPIPE: the reader has closed the pipe (head)
                click.echo(
                    f"OutputError: cannot write to standard output or standard error: {error.strerror}", err=True
                )
        _drop_output()
        sys.exit(COULD_NOT_JUDGE)


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Handle SIGTERM and SIGHUP like Ctrl-C: a CI time limit or a closed terminal leaves no program running."""
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # Ignored signals (nohup) stay ignored.
    before = {n: signal.getsignal(n) for n in numbers if signal.getsignal(n) is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show_once() -> Callable[..., None]:
    """A ``warnings.showwarning`` that prints each text once, as one line, without the place in the source."""
    said: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = one_line(str(message))
        if text not in said:
            said.add(text)
            click.echo(f"warning: {text}", err=True)

    return show


def _drop_output() -> None:
    """Discard buffered output: Python would write it at exit, and end with 120 if it cannot."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with suppress(OSError), open(os.devnull, "w", encoding="utf-8") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())
        except AttributeError:  # a program started without the stream
            continue


def one_line(text: str) -> str:
    """The text as one line without control characters, as it may quote a file."""
    line = " ".join(text.splitlines())
    return printable(line, len(line))
