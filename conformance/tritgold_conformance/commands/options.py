"""How options become one value: a command that takes a dataclass has its fields as options, each defined once."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
Option = Callable[[Any], Any]  # what click.option makes

devices_option = click.option(
    "--devices", type=click.IntRange(1, 1024), default=1, show_default=True,
    help="JAX devices that the engine xla cuts the model over; the same bits for any number.",
)  # fmt: skip


def together(*options: Option) -> Callable[[F], F]:
    """One decorator of several, in the order of ``--help``."""

    def decorated(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorated


def collected(name: str, make: Any, options: Sequence[Option]) -> Callable[[F], F]:
    """Options whose values reach the command as one argument. make: a dataclass with fields of their names."""

    def decorated(function: F) -> F:
        @functools.wraps(function)
        def command(*args: Any, **given: Any) -> Any:
            made = make(**{field.name: given.pop(field.name) for field in fields(make) if field.name in given})
            return function(*args, **{name: made}, **given)

        wrapped: Any = together(*options)(command)
        return wrapped

    return decorated
