"""What the commands share: options, where a model comes from, and how output and errors leave the program."""

import errno
import functools
import io
import json
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

    from tritgold.checkpoint import Checkpoint
    from tritgold.formats.layouts import Layouts
    from tritgold.tokenizer import Tokenizer

F = TypeVar("F", bound=Callable[..., Any])

COULD_NOT_JUDGE, INTERRUPTED = 3, 130
_OF_OUTPUT = (errno.EPIPE, errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


def json_option(function: F) -> F:
    """``--json``: one object on stdout, nothing else there."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")(function)


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
    from tritgold_conformance.reports.written import require_formats

    try:
        require_formats(paths)
    except OutputError as error:
        raise click.UsageError(str(error)) from None


@dataclass(frozen=True)
class Reading:
    """What the user says of a checkpoint that it does not say itself: the options of ``model_options``.

    i2s: None where nothing is said, which reads as 128; `tritgold inspect` tells the two apart.
    """

    linear_class: str | None = None
    ignore_keys: tuple[str, ...] = ()
    i2s: Any = None
    tile: tuple[str, ...] = ()
    tile_ini: Path | None = None
    q2_0_block: str = "64"
    code3: str = "refuse"

    def layouts(self) -> "Layouts":
        """Raises PackingError for a tile that is none, FormatError for an ini that cannot be read."""
        from tritgold.formats.layouts import Layouts, parse_shape, parse_tile
        from tritgold.formats.packings.kernel_ini import tile_options

        everywhere, by_shape = None, dict(tile_options(self.tile_ini) if self.tile_ini else {})
        for text in self.tile:
            shape, named, tile = text.rpartition("=")
            if named:
                by_shape[parse_shape(shape)] = parse_tile(tile)
            else:
                everywhere = parse_tile(tile)
        return Layouts(self.i2s, everywhere, by_shape, int(self.q2_0_block), self.code3 == "zero")

    def words(self) -> tuple[str, ...]:
        """The options as they were given, for a command to paste."""
        words: list[str] = []
        for name, option in _OPTION_OF.items():
            value = getattr(self, name)
            if value != getattr(Reading, name):
                for one in value if isinstance(value, tuple) else (value,):
                    words += (option, str(one))
        return tuple(words)

    def open(self, path: Path, quantize: bool = False) -> "Checkpoint":
        """The checkpoint, read as the user says."""
        from tritgold.checkpoint import open_checkpoint

        return open_checkpoint(path, self.linear_class, self.ignore_keys, self.layouts(), quantize)


_OPTION_OF = {
    "linear_class": "--linear-class",
    "ignore_keys": "--ignore-key",
    "i2s": "--i2s",
    "tile": "--tile",
    "tile_ini": "--tile-ini",
    "q2_0_block": "--q2-0-block",
    "code3": "--code3",
}


def model_options(function: F) -> F:
    """The options of ``Reading``, handed to the command as ``reading``."""

    @functools.wraps(function)
    def with_reading(*args: Any, **given: Any) -> Any:
        reading = Reading(**{field.name: given.pop(field.name) for field in fields(Reading)})
        return function(*args, reading=reading, **given)

    wrapped: Any = with_reading
    for option in _READING_OPTIONS:
        wrapped = option(wrapped)
    return wrapped


_READING_OPTIONS = (
    click.option("--code3", type=click.Choice(["refuse", "zero"]), default="refuse", help="Codes that are no trit."),
    click.option("--q2-0-block", type=click.Choice(["64", "128"]), default="64", help="Weights a block of type 42."),
    click.option(
        "--tile-ini",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="The kernel_config.ini with which a TL1 or TL2 file was made.",
    ),
    click.option(
        "--tile", multiple=True, metavar="[OUTxIN=]BM,BK[,bm]", help="Tile sizes of TL1 and TL2, of all shapes or one."
    ),
    click.option(
        "--i2s", type=click.Choice(["128", "64", "4rows"]), help="Layout of I2_S, 128 if not said; 64 is ARM's."
    ),
    click.option(
        "--ignore-key", "ignore_keys", multiple=True, metavar="KEY", help="Pass over an unknown key of config.json."
    ),
    click.option(
        "--linear-class",
        type=click.Choice(["autobitlinear", "bitlinear"]),
        help="For packed weights without a quantization_config: scales multiply, or divide.",
    ),
)


def guarded(function: F) -> F:
    """Run a command whose engine is somebody else's class in a process that it cannot take the judge down with.

    What cannot be judged is exit code 3, see ``errors``, and the reports that were asked for say so
    (``report_files``, where the command has these).
    """

    @functools.wraps(function)
    def in_a_child(*args: Any, spec: str, as_json: bool, **given: Any) -> Any:
        from tritgold_conformance.commands.unjudged import write_not_judged
        from tritgold_conformance.guard import held, is_foreign

        failed = functools.partial(write_not_judged, spec, given)
        # A class has a parent that passes signals on and tidies up; what else runs here leaves as by Ctrl-C.
        signals = nullcontext() if is_foreign(spec) else interrupted_by_signals()
        with errors(as_json, failed), signals, held(spec, _code_of), errors(as_json, failed):
            return function(*args, spec=spec, as_json=as_json, **given)

    wrapped: Any = in_a_child
    return wrapped


def _code_of(error: BaseException) -> int:
    """The exit code of what ``errors`` lets through: Ctrl-C, an output that cannot be written, click's own."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    return error.exit_code if isinstance(error, click.ClickException) else COULD_NOT_JUDGE


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


def input_options(multiple: bool = False) -> Callable[[F], F]:
    """``--prompt`` or ``--ids``, and where the tokenizer is. multiple: they may be repeated, and are tuples."""
    more = " May be repeated." if multiple else ""

    def with_options(function: F) -> F:
        for option in (
            click.option(
                "--tokenizer", type=click.Path(path_type=Path), help="A tokenizer.json, instead of the model's own."
            ),
            click.option("--ids", type=Ids(), multiple=multiple, help=f"Token ids, separated by commas.{more}"),
            click.option("--prompt", multiple=multiple, help=f"Text; the tokenizer adds its own BOS.{more}"),
        ):
            function = option(function)
        return function

    return with_options


class Ids(click.ParamType[list[int]]):
    """Comma-separated token ids."""

    name = "ids"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """``1,2,3`` -> [1, 2, 3]."""
        if isinstance(value, list):
            return value
        try:
            return [int(part) for part in str(value).split(",") if part.strip()]
        except ValueError:
            self.fail(f"{value!r} is no list of integers like 1,2,3", param, ctx)


@contextmanager
def model_path(model: str | None) -> Iterator[Path]:
    """The checkpoint to use: the path given, or an embedded model for the duration of the block.

    The name of an embedded model is always that model; a folder of the same name is written ``./kjv-ar``.
    """
    from tritgold.golden import MODELS, embedded_model

    name = model_name(model)
    if name not in MODELS:
        yield Path(name)
        return
    with embedded_model(name) as path:
        yield path


def model_name(model: str | None) -> str:
    """What a report calls the model: as it was asked for, or the name of the embedded one."""
    from tritgold.golden import DEFAULT

    return DEFAULT if model is None else model


def open_tokenizer(checkpoint: "Checkpoint", given: Path | None) -> "Tokenizer | None":
    """The tokenizer of a model, None where it has none.

    It is the file given, which must be there; or else what belongs to the checkpoint; or else a tokenizer.json in the
    same folder.
    """
    from tritgold.tokenizer import Tokenizer

    if given is not None and not given.is_file():
        raise click.UsageError(f"--tokenizer: no file {str(given)!r}")
    if given is not None:
        return Tokenizer(given)
    if (text := checkpoint.tokenizer_json()) is not None:
        return Tokenizer.from_text(text, checkpoint.path)
    beside = checkpoint.path.parent / "tokenizer.json"
    return Tokenizer(beside) if not checkpoint.path.is_dir() and beside.is_file() else None


def token_ids(checkpoint: "Checkpoint", prompt: str | None, ids: list[int] | None, tokenizer: Path | None) -> list[int]:
    """The input of a command: exactly one of prompt and ids.

    Raises ContextError for a prompt that begins with two BOS: the text has one and the tokenizer adds another.
    """
    if (prompt is None) == (ids is None):
        raise click.UsageError("give exactly one of --prompt and --ids")
    if ids is not None:
        return ids
    from tritgold.errors import ContextError, FormatError

    opened = open_tokenizer(checkpoint, tokenizer)
    if opened is None:
        hint = "pass token ids (--ids 1,2,3), or a tokenizer.json with --tokenizer"
        raise FormatError("has no tokenizer", kind="no-tokenizer", file=checkpoint.path, hint=hint)
    tokens = opened.encode(prompt or "")
    bos = checkpoint.config.bos
    if bos is not None and tokens[:2] == [bos, bos]:
        hint = "leave the BOS out of the text; the tokenizer adds it"
        raise ContextError("the prompt begins with two BOS", kind="two-bos", got=tokens[:3], hint=hint)
    return tokens


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
