"""What the commands that judge share: options of reports, and a process that an engine cannot take down."""

import functools
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import click

from tritgold_conformance.commands import printing

F = TypeVar("F", bound=Callable[..., Any])


def report_option(function: F) -> F:
    """``--report FILE``, as often as there are files; handed to the command as ``report_files``."""
    return click.option(
        "--report",
        "report_files",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Write the report: .html, .md, .xml (JUnit), .json or .svg (a badge). May be repeated.",
    )(function)


def require_report_files(paths: tuple[Path, ...]) -> None:
    """Before anything is computed. Raises click.UsageError for what no report can be written to."""
    from tritgold.errors import OutputError
    from tritgold_conformance.rendering.writers import require_formats

    try:
        require_formats(paths)
    except OutputError as error:
        raise click.UsageError(str(error)) from None


def guarded(function: F) -> F:
    """Run a command whose engine is somebody else's class in a process that it cannot take the judge down with.

    What cannot be judged is exit code 3, see ``printing.errors``, and the reports that were asked for say so
    (``report_files``, where the command has these).
    """

    @functools.wraps(function)
    def in_a_child(*args: Any, spec: str, as_json: bool, **given: Any) -> Any:
        from tritgold_conformance.commands.unjudged import write_not_judged
        from tritgold_conformance.contract.guard import held, is_foreign

        failed = functools.partial(write_not_judged, spec, given)
        # A class has a parent that passes signals on and tidies up; what else runs here leaves as by Ctrl-C.
        signals = nullcontext() if is_foreign(spec) else interrupted_by_signals()
        with printing.errors(as_json, failed), signals, held(spec, _code_of), printing.errors(as_json, failed):
            return function(*args, spec=spec, as_json=as_json, **given)

    wrapped: Any = in_a_child
    return wrapped


def _code_of(error: BaseException) -> int:
    """The exit code of what ``printing.errors`` lets through: Ctrl-C, an output that cannot be written, click's own."""
    if isinstance(error, KeyboardInterrupt):
        return printing.INTERRUPTED
    return error.exit_code if isinstance(error, click.ClickException) else printing.COULD_NOT_JUDGE


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP as Ctrl-C: a time limit of a CI, or a terminal that is closed, leaves no program behind."""
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # What is ignored (nohup) stays ignored.
    before = {n: signal.getsignal(n) for n in numbers if signal.getsignal(n) is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
