"""What the commands that judge share: options of reports, and a process that an engine cannot take down."""

import functools
import secrets
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


def depth_options(function: F) -> F:
    """How much is asked, handed to the command as ``depth``; ``--seed``, a number or ``nonce``."""
    for option in (
        click.option("--one-text", "depth", flag_value="one-text", help="The text of --tokens or --ids, and no other."),
        click.option("--seed", type=Seed(), default=1, show_default=True, help="Which texts; nonce: others each time."),
        click.option("--thorough", "depth", flag_value="thorough", help="The whole context, every id."),
        click.option("--quick", "depth", flag_value="quick", help="Shorter texts; ten seconds for a small model."),
    ):
        function = option(function)
    return function


class Seed(click.ParamType[int]):
    """A seed of the judged texts."""

    name = "seed"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """A whole number; ``nonce``: one that nobody can know before."""
        if value == "nonce":
            return secrets.randbelow(2**31)
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r} is neither a whole number nor nonce", param, ctx)


def depth_words(depth: str | None, seed: int) -> tuple[str, ...]:
    """The options as they were given, for a command to paste."""
    return (*((f"--{depth}",) if depth else ()), *(("--seed", str(seed)) if seed != 1 else ()))


def require_report_files(paths: tuple[Path, ...]) -> None:
    """Before anything is computed. Raises click.UsageError for what no report can be written to."""
    from tritgold.errors import OutputError
    from tritgold_conformance.rendering.writers import require_formats

    try:
        require_formats(paths)
    except OutputError as error:
        raise click.UsageError(str(error)) from None


def guarded(function: F) -> F:
    """Run a command that judges: signals end it as Ctrl-C does, which leaves no program running.

    What cannot be judged is exit code 3, see ``printing.errors``, and the reports that were asked for say so
    (``report_files``, where the command has these).
    """

    @functools.wraps(function)
    def reporting(*args: Any, spec: str, as_json: bool, **given: Any) -> Any:
        from tritgold_conformance.commands.unjudged import write_not_judged

        failed = functools.partial(write_not_judged, spec, given)
        with printing.errors(as_json, failed), interrupted_by_signals():
            return function(*args, spec=spec, as_json=as_json, **given)

    wrapped: Any = reporting
    return wrapped


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
