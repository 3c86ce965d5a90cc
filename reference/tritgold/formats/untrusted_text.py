"""Text out of files that may be damaged or hostile: JSON whose names are unique, and strings fit to be printed."""

import json
from collections.abc import Iterable
from typing import Any

_SHOWN = 200


class RepeatedNameError(ValueError):
    """A JSON object gives a name twice; which of the two values counts is anybody's guess."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"{printable(repr(name))} occurs twice")


def parse_json(text: str) -> Any:
    """``json.loads``, except that a name given twice is refused and that every failure is a ValueError.

    >>> parse_json('{"theta": 1e4, "theta": 5e5}')
    Traceback (most recent call last):
    tritgold.formats.untrusted_text.RepeatedNameError: 'theta' occurs twice
    """
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        raise RepeatedNameError(first_repeated(name for name, _ in pairs) or "")
    return unique


def is_one_of(value: object, allowed: Iterable[object]) -> bool:
    """Whether the value equals one of the allowed, its type included: true is not 1, and an array is no number.

    >>> is_one_of(1, (1, None)), is_one_of(True, (1, None))
    (True, False)
    """
    return any(type(value) is type(other) and value == other for other in allowed)


def first_repeated(names: Iterable[Any]) -> Any:
    """The first item that occurred before, or None. Linear: a file may hold a million names."""
    seen = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def printable(value: object) -> str:
    r"""A value as text for a message: terminal escapes shown instead of obeyed, and cut where it is endless.

    >>> printable("\x1b[2J"), printable("x" * 300)[197:]
    ('\\x1b[2J', 'xxx...')
    """
    text = str(value)
    if len(text) <= _SHOWN and text.isprintable():
        return text
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[:_SHOWN])
    return shown + "..." if len(text) > _SHOWN else shown
