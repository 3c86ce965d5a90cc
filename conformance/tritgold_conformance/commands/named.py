"""Types of options: ``NAME:option=value,option=value``, a registry entry with options; and numbers in a range."""

import math
from typing import Any

import click

Chosen = tuple[str, dict[str, Any]]  # as the registries take it: name and options


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
