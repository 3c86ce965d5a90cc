"""Types of the options of tritgold bench: lists, shapes and peers."""

import re
from collections.abc import Callable
from typing import Any

import click

from tritgold.errors import ConfigError
from tritgold_conformance.bench import peer_names
from tritgold_conformance.bench.shapes import GOLDEN, NAMES, shape_of


class Listed(click.ParamType[tuple[Any, ...]]):
    """Comma-separated words out of ``known``, or positive integers if there are none."""

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


class Checked(click.ParamType[str]):
    """A text for which ``check`` raises no ValueError or ConfigError; their message is the usage error."""

    def __init__(self, name: str, check: Callable[[str], object]) -> None:
        self.name, self._check = name, check

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text itself."""
        try:
            self._check(str(value))
        except (ValueError, ConfigError) as error:
            self.fail(str(error), param, ctx)
        return str(value)


def _known_shape(text: str) -> None:
    if text != GOLDEN and shape_of(text) is None:
        raise ValueError(f"{text!r} is not one of {', '.join(NAMES)}, OUTxIN, or an existing config.json")


PEER = Checked("peer", peer_names.peer)
SHAPE = Checked("shape", _known_shape)
