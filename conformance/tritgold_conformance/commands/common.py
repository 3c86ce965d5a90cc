"""What the commands share: options, where a model comes from, and how output and errors leave the program."""

import json
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

    from tritgold.checkpoint import Checkpoint

F = TypeVar("F", bound=Callable[..., Any])

COULD_NOT_JUDGE = 3


def json_option(function: F) -> F:
    """``--json``: one object on stdout, nothing else there."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")(function)


def model_options(function: F) -> F:
    """``--linear-class`` and ``--ignore-key``: for checkpoints whose config.json says too little or too much."""
    for option in (
        click.option(
            "--ignore-key", "ignore_keys", multiple=True, metavar="KEY", help="Pass over an unknown key of config.json."
        ),
        click.option(
            "--linear-class",
            type=click.Choice(["autobitlinear", "bitlinear"]),
            help="For packed weights without a quantization_config: scales multiply, or divide.",
        ),
    ):
        function = option(function)
    return function


def input_options(function: F) -> F:
    """``--prompt`` or ``--ids``, and where the tokenizer is."""
    for option in (
        click.option("--tokenizer", type=click.Path(path_type=Path), help="A tokenizer.json, if not beside the model."),
        click.option("--ids", type=Ids(), help="Token ids, separated by commas."),
        click.option("--prompt", help="Text; the tokenizer adds its own BOS."),
    ):
        function = option(function)
    return function


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


def open_model(path: Path, linear_class: str | None, ignore_keys: tuple[str, ...]) -> "Checkpoint":
    """Open a checkpoint with the options of ``model_options``."""
    from tritgold.checkpoint import open_checkpoint

    return open_checkpoint(path, linear_class, tuple(ignore_keys))


def tokenizer_path(model: Path, given: Path | None) -> Path:
    """The tokenizer of a model: the one given, which must be there, or tokenizer.json in its folder."""
    if given is not None and not given.is_file():
        raise click.UsageError(f"--tokenizer: no file {str(given)!r}")
    return given or (model if model.is_dir() else model.parent) / "tokenizer.json"


def token_ids(checkpoint: "Checkpoint", prompt: str | None, ids: list[int] | None, tokenizer: Path | None) -> list[int]:
    """The input of a command: exactly one of prompt and ids.

    Raises ContextError for a prompt that begins with two BOS: the text has one and the tokenizer adds another.
    """
    if (prompt is None) == (ids is None):
        raise click.UsageError("give exactly one of --prompt and --ids")
    if ids is not None:
        return ids
    from tritgold.errors import ContextError
    from tritgold.tokenizer import Tokenizer

    tokens = Tokenizer(tokenizer_path(checkpoint.path, tokenizer)).encode(prompt or "")
    bos = checkpoint.config.bos
    if bos is not None and tokens[:2] == [bos, bos]:
        hint = "leave the BOS out of the text; the tokenizer adds it"
        raise ContextError("the prompt begins with two BOS", kind="two-bos", got=tokens[:3], hint=hint)
    return tokens


def print_json(value: dict[str, Any]) -> None:
    """One JSON object on stdout. Non-finite numbers would not be JSON: they are an error here, not a surprise there."""
    click.echo(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False))


def console() -> "Console":
    """A rich console: as wide as the terminal, 120 columns where there is none."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 120, highlight=False)


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A line on stderr that says what is being done, where stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status("...") as status:
        yield status.update


@contextmanager
def errors(as_json: bool) -> Iterator[None]:
    """Typed errors end the command with exit code 3, on stderr as text or on stdout as JSON."""
    from tritgold.errors import TritgoldError

    try:
        yield
    except TritgoldError as error:
        if error.__cause__ is not None:  # somebody else's exception: its developer wants to see where
            traceback.print_exception(error.__cause__)
        _fail(f"{type(error).__name__}: {error}", error.as_dict(), as_json)
    except (click.ClickException, click.Abort):
        raise  # click's own: usage
    except MemoryError:
        fields = {"error": "MemoryError", "kind": "memory", "message": "not enough memory"}
        _fail("MemoryError: not enough memory for this model and context", fields, as_json)
    except Exception as error:
        # A bug of ours, or input that should have been refused by name. Never exit code 1: that is a verdict.
        traceback.print_exception(error)
        fields = {"error": type(error).__name__, "kind": "unexpected", "message": str(error)}
        _fail("This is a bug in tritgold: please report the lines above.", fields, as_json)


def _fail(text: str, fields: dict[str, Any], as_json: bool) -> NoReturn:
    if as_json:
        print_json({"schema": "tritgold.error/1", **fields})
    else:
        click.echo(text, err=True)
    sys.exit(COULD_NOT_JUDGE)
