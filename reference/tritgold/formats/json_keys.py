"""The keys of a JSON object of a configuration: each understood, or listed as one that changes nothing, or an error."""

import math
import shlex
from pathlib import Path
from typing import Any, NoReturn

from tritgold.errors import ConfigError
from tritgold.formats.untrusted_text import is_one_of, printable

NO_ARITHMETIC = "tritgold has no arithmetic for it; ignoring it would be silently wrong"


class JsonKeys:
    """The keys of one JSON object, each to be taken at most once; what is left over is unknown.

    where: the objects around it, as ``quantization_config.``. ignore: whole names of unknown keys to pass over.
    """

    def __init__(self, path: Path, values: dict[str, Any], where: str = "", ignore: frozenset[str] = frozenset()):
        self.path, self.where, self.ignore = path, where, ignore
        self.left = dict(values)

    def inside(self, name: str, values: dict[str, Any]) -> "JsonKeys":
        """The keys of the object that the key ``name`` holds."""
        return JsonKeys(self.path, values, f"{self.where}{name}.", self.ignore)

    def take(self, key: str, kind: type | tuple[type, ...], default: Any = ...) -> Any:
        """The value, of this type; a null is a missing one. ConfigError ``config-missing``, ``config-type``."""
        value = self.left.pop(key, None)
        if value is None and default is not ...:
            return default
        if value is None:
            self.refuse("is missing", "config-missing", key)
        if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool):
            names = " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))
            self.refuse("has the wrong type", "config-type", key, repr(value), names)
        return value

    def number(self, key: str, default: Any = ...) -> Any:
        """A number as a float. JSON's integers have no limit: beyond float64 it is infinity, refused by who uses it."""
        value = self.take(key, (int, float), default)
        try:
            return value if value is default else float(value)
        except OverflowError:
            return math.inf

    def neutral(self, rules: dict[str, tuple[Any, ...]]) -> None:
        """Take keys whose only supported values, the first of which is the default, leave the graph as it is."""
        for key, allowed in rules.items():
            value = self.left.pop(key, allowed[0])
            if not is_one_of(value, allowed):
                self.unsupported(key, value, allowed[0])

    def unsupported(self, key: str, value: object, expected: object) -> NoReturn:
        """A ConfigError for a value that asks for another arithmetic."""
        self.refuse("is not supported", "config-unsupported", key, repr(value), repr(expected), NO_ARITHMETIC)

    def finish(self, ignored: frozenset[str]) -> None:
        """Refuse what was not taken."""
        unknown = sorted(key for key in set(self.left) - ignored if f"{self.where}{key}" not in self.ignore)
        if unknown:
            names = " --ignore-key ".join(shlex.quote(self.where + key) for key in unknown[:8])
            hint = f"if it changes no arithmetic, pass it over with --ignore-key {names}"
            self.refuse("is unknown", "config-unknown-key", ", ".join(unknown), None, None, hint)

    def refuse(self, message: str, kind: str, key: str, *fields: object) -> NoReturn:
        """A ConfigError of what was found, expected, and a hint."""
        got, expected, hint = (*fields, None, None, None)[:3]
        thing, got = printable(f"key {self.where}{key!r}"), None if got is None else printable(got)
        text = None if hint is None else printable(str(hint), 1000)
        raise ConfigError(message, kind=kind, file=self.path, thing=thing, got=got, expected=expected, hint=text)
