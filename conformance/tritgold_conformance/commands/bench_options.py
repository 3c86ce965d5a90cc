"""What tritgold bench takes for a list, a shape and a peer."""

import re
from typing import Any

import click

from tritgold.errors import ConfigError
from tritgold_conformance.bench import peer_names
from tritgold_conformance.bench.shapes import GOLDEN, NAMES, shape_of


class Listed(click.ParamType[tuple[Any, ...]]):
    """Some of the known words, or positive integers where none are known, separated by commas."""

    name = "list"

    def __init__(self, *known: str) -> None:
        self._known = known

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """``gemv,decode`` -> ("gemv", "decode"); ``1,2`` -> (1, 2)."""
        if isinstance(value, tuple):
            return value
        words = tuple(dict.fromkeys(word.strip() for word in str(value).split(",") if word.strip()))
        if not self._known:
            if not words or not all(re.fullmatch("0*[1-9][0-9]{0,8}", word) for word in words):
                self.fail(f"{value!r} is not a list of positive integers like 1,2", param, ctx)
            return tuple(dict.fromkeys(map(int, words)))
        unknown = [word for word in words if word not in self._known]
        if unknown or not words:
            self.fail(f"{', '.join(unknown) or 'nothing'} is not one of {', '.join(self._known)}", param, ctx)
        return words


class Peer(click.ParamType[str]):
    """A peer as ``peer_names`` reads it."""

    name = "peer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text itself, where it names one."""
        try:
            peer_names.peer(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return str(value)


class Shape(click.ParamType[str]):
    """A shape as ``bench.shapes`` reads it."""

    name = "shape"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text itself, where it names one."""
        try:
            if value == GOLDEN or shape_of(str(value)) is not None:
                return str(value)
        except ConfigError as error:
            self.fail(str(error), param, ctx)
        known = ", ".join(NAMES)
        return self.fail(f"{value!r} is not one of {known}, OUTxIN, or a config.json that is there", param, ctx)
