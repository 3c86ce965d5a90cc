"""Types of options, options of several commands, and functions that combine options into one value."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
Option = Callable[[Any], Any]  # the result of click.option
Chosen = tuple[str, dict[str, Any]]  # as the registries take it: name and options

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
ANY_PATH = click.Path(path_type=Path)  # need not exist
POSITIVE = click.IntRange(1)


class Named(click.ParamType[Chosen]):
    """Name and options. The registry checks whether they exist, and knows the valid names."""

    name = "NAME[:OPTION=VALUE,...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Chosen:
        """``kivi2:window=64`` -> ("kivi2", {"window": 64})."""
        if isinstance(value, tuple):
            return value
        name, colon, rest = str(value).partition(":")
        options: dict[str, Any] = {}
        for part in rest.split(",") if colon else ():
            option, equals, text = (piece.strip() for piece in part.partition("="))
            if not (option and equals and text):
                self.fail(f"{part!r} in {value!r} is not OPTION=VALUE", param, ctx)
            if option in options:
                self.fail(f"{option!r} is given twice in {value!r}", param, ctx)
            options[option] = value_of(text)
        return name.strip(), options


class Within(click.FloatRange):
    """A finite number in a range. click's own FloatRange accepts NaN."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number, or a usage error."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return number


def value_of(text: str) -> Any:
    """The value of a word: a boolean, None, a number, or the text itself.

    >>> [value_of(word) for word in ("true", "none", "8", "0.5", "q4_0")]
    [True, None, 8, 0.5, 'q4_0']
    """
    words = {"true": True, "false": False, "none": None}
    if text in words:
        return words[text]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            pass
    return text


devices_option = click.option(
    "--devices", type=click.IntRange(1, 1024), default=1, show_default=True,
    help="JAX devices that the engine xla cuts the model over; the same bits for any number.",
)  # fmt: skip


def together(*options: Option) -> Callable[[F], F]:
    """Several option decorators as one, in the order of ``--help``."""

    def decorated(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorated


def collected(name: str, make: Any, options: Sequence[Option]) -> Callable[[F], F]:
    """Options that the command receives as one argument. make: a dataclass with fields of the options' names."""

    def decorated(function: F) -> F:
        @functools.wraps(function)
        def command(*args: Any, **given: Any) -> Any:
            made = make(**{field.name: given.pop(field.name) for field in fields(make) if field.name in given})
            return function(*args, **{name: made}, **given)

        wrapped: Any = together(*options)(command)
        return wrapped

    return decorated
