"""Types of options: ``NAME:option=value,option=value``, a thing of a registry in one word; numbers in a range."""

import math
from typing import Any

import click

Chosen = tuple[str, dict[str, Any]]  # what the registries take: name and options


class Named(click.ParamType[Chosen]):
    """Name and options. Whether they exist is the registry's business, which knows the valid list."""

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
    """A finite number in a range. click's own lets NaN through, which is in no range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number, or a usage error."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return number


def value_of(text: str) -> Any:
    """What a word means: a switch, nothing, a number, or itself.

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
