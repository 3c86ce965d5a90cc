"""The model, its layouts and the tokens of a command: options, and functions that open them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

from tritgold.checkpoint import Checkpoint, open_checkpoint
from tritgold.errors import ContextError, FormatError
from tritgold.formats.layouts import Layouts, parse_shape, parse_tile
from tritgold.formats.packings.kernel_ini import tile_options
from tritgold.golden import DEFAULT, MODELS, embedded_model
from tritgold.tokenizer import Tokenizer
from tritgold_conformance.commands.options import ANY_PATH, FILE, F, collected, together


@dataclass(frozen=True)
class Reading:
    """Facts about a checkpoint that its files do not contain: the options of ``model_options``.

    i2s: None if not given, which is read as 128; `tritgold inspect` distinguishes the two.
    """

    linear_class: str | None = None
    ignore_keys: tuple[str, ...] = ()
    i2s: Any = None
    tile: tuple[str, ...] = ()
    tile_ini: Path | None = None
    q2_0_block: str = "64"
    code3: str = "refuse"

    def layouts(self) -> Layouts:
        """Raises PackingError for a tile that cannot be parsed, FormatError for an ini that cannot be read."""
        everywhere, by_shape = None, dict(tile_options(self.tile_ini) if self.tile_ini else {})
        for text in self.tile:
            shape, named, tile = text.rpartition("=")
            if named:
                by_shape[parse_shape(shape)] = parse_tile(tile)
            else:
                everywhere = parse_tile(tile)
        return Layouts(self.i2s, everywhere, by_shape, int(self.q2_0_block), self.code3 == "zero")

    def words(self) -> tuple[str, ...]:
        """The options that differ from the defaults, as words of a command line."""
        words: list[str] = []
        for field in fields(self):
            value, option = getattr(self, field.name), f"--{field.name.replace('ignore_keys', 'ignore_key')}"
            if value != field.default:
                for one in value if isinstance(value, tuple) else (value,):
                    words += (option.replace("_", "-"), str(one))
        return tuple(words)

    def open(self, path: Path, quantize: bool = False, tokenizer: Path | None = None) -> Checkpoint:
        """The checkpoint, read with these options. tokenizer: a tokenizer.json to use instead of its own."""
        if tokenizer is not None:
            given_tokenizer(tokenizer)
        return open_checkpoint(path, self.linear_class, self.ignore_keys, self.layouts(), quantize, tokenizer)


ignore_key_option = click.option(
    "--ignore-key", "ignore_keys", multiple=True, metavar="KEY", help="Ignore this key of config.json or GGUF."
)
model_options = collected(
    "reading",
    Reading,
    (
        click.option(
            "--linear-class",
            type=click.Choice(["autobitlinear", "bitlinear"]),
            help="For a folder without quantization_config: scales of weights multiply (autobitlinear) or divide.",
        ),
        ignore_key_option,
        click.option(
            "--i2s", type=click.Choice(["128", "64", "4rows"]),
            help="Layout of I2_S, 128 by default; 64 if it was packed on ARM.",
        ),
        click.option(
            "--tile", multiple=True, metavar="[OUTxIN=]BM,BK[,bm]",
            help="Tile sizes of TL1 and TL2, for all matrices or for those of one shape.",
        ),
        click.option(
            "--tile-ini", type=FILE,
            help="The kernel_config.ini that a TL1 or TL2 file was made with.",
        ),
        click.option(
            "--q2-0-block", type=click.Choice(["64", "128"]), default="64", show_default=True,
            help="Weights in a block of GGUF type 42 (Q2_0).",
        ),
        click.option(
            "--code3", type=click.Choice(["refuse", "zero"]), default="refuse",
            help="Codes that are not trits: refuse the file (default), or read them as 0.",
        ),
    ),
)  # fmt: skip


def input_options(multiple: bool = False) -> Callable[[F], F]:
    """``--prompt``, ``--ids`` and ``--tokenizer``. multiple: they may be repeated, and their values are tuples."""
    more = " May be repeated." if multiple else ""
    return together(
        click.option("--prompt", multiple=multiple, help=f"Text; the tokenizer adds its own BOS.{more}"),
        click.option("--ids", type=Ids(), multiple=multiple, help=f"Token ids, separated by commas.{more}"),
        click.option("--tokenizer", type=ANY_PATH, help="A tokenizer.json, instead of the model's own."),
    )


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
            self.fail(f"{value!r} is not a list of integers like 1,2,3", param, ctx)


@contextmanager
def model_path(model: str | None) -> Iterator[Path]:
    """The checkpoint to use: the path given, or an embedded model for the duration of the block.

    The name of an embedded model is always that model; a folder of the same name is written ``./kjv-ar``.
    """
    name = model_name(model)
    if name not in MODELS:
        yield Path(name)
        return
    with embedded_model(name) as path:
        yield path


def model_name(model: str | None) -> str:
    """The model's name in reports: as given, or the name of the default embedded model."""
    return DEFAULT if model is None else model


def given_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer in the file of ``--tokenizer``. Raises click.UsageError if it is not a file."""
    if not path.is_file():
        raise click.UsageError(f"--tokenizer: no file {str(path)!r}")
    return Tokenizer(path)


def open_tokenizer(checkpoint: Checkpoint, given: Path | None) -> Tokenizer | None:
    """The tokenizer of a model, None if it has none.

    It is the given file, which must exist; otherwise that of the checkpoint; otherwise a tokenizer.json in the
    same folder.
    """
    if given is not None:
        return given_tokenizer(given)
    if (text := checkpoint.tokenizer_json()) is not None:
        return Tokenizer.from_text(text, checkpoint.path)
    beside = checkpoint.path.parent / "tokenizer.json"
    return Tokenizer(beside) if not checkpoint.path.is_dir() and beside.is_file() else None


def require_tokenizer(checkpoint: Checkpoint, given: Path | None) -> Tokenizer:
    """The same, or FormatError ``no-tokenizer``."""
    opened = open_tokenizer(checkpoint, given)
    if opened is None:
        hint = "pass token ids (--ids 1,2,3), or a tokenizer.json with --tokenizer"
        raise FormatError("has no tokenizer", kind="no-tokenizer", file=checkpoint.path, hint=hint)
    return opened


def token_ids(checkpoint: Checkpoint, prompt: str | None, ids: list[int] | None, tokenizer: Path | None) -> list[int]:
    """The input of a command: exactly one of prompt and ids.

    Raises ContextError for a prompt that begins with two BOS: the text has one and the tokenizer adds another.
    """
    if (prompt is None) == (ids is None):
        raise click.UsageError("give exactly one of --prompt and --ids")
    if ids is not None:
        return ids
    opened = require_tokenizer(checkpoint, tokenizer)
    tokens = opened.encode(prompt or "")
    bos = checkpoint.config.bos
    if bos is not None and tokens[:2] == [bos, bos]:
        hint = "leave the BOS out of the text; the tokenizer adds it"
        raise ContextError("the prompt begins with two BOS", kind="two-bos", got=tokens[:3], hint=hint)
    return tokens
