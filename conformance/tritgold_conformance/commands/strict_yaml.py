"""Reads YAML strictly: no repeated keys, no merge keys, only YAML's own tags. The only module that imports PyYAML."""

import stat
from pathlib import Path
from typing import Any

import yaml

from tritgold.errors import ConfigError
from tritgold.formats.untrusted_text import first_repeated, printable

LARGEST = 1 << 20  # bytes; a configuration has a few hundred
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


class _UniqueLoader(yaml.SafeLoader):
    """``safe_load`` that refuses a repeated key."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = (key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        if (twice := first_repeated(names)) is not None:
            line = node.start_mark.line + 1
            raise ConfigError(
                "a key is given twice",
                kind="config-duplicate",
                got=printable(twice),
                hint=f"in the mapping at line {line}",
            )
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """1:30 is text, as in YAML 1.2 and in that server, not a number in base 60.

        A node that cannot be constructed gives an error with a line number; PyYAML raises various bare exceptions.
        """
        if node.tag in _NUMBERS and ":" in node.value:
            return node.value
        try:
            return super().construct_object(node, deep)
        except (AttributeError, IndexError, KeyError, OverflowError, ValueError):
            why = f"not a {node.tag.rpartition(':')[2]} that can be read"
            raise yaml.constructor.ConstructorError(None, None, why, node.start_mark) from None

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Refuse merge keys: that server has none, and a few dozen nested ones would fill the memory."""
        if any(key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value):
            raise ConfigError("no such key", kind="config-unknown-key", got="'<<'", hint="write the keys out")


def load_mapping(path: Path) -> dict[Any, Any]:
    """The mapping in a file; empty for an empty file.

    Raises ConfigError: ``config-file`` if it is not a regular UTF-8 file with one YAML mapping,
    ``config-duplicate`` for a repeated key, ``config-unknown-key`` for a merge key.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe could block; /dev/stdin is a pipe, or a regular file
            raise _unreadable(path, "not a regular file")
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise _unreadable(path, f"more than {LARGEST} bytes")
        found = yaml.load(data.decode("utf-8"), Loader=_UniqueLoader)
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from None
    except UnicodeDecodeError:
        raise _unreadable(path, "not UTF-8") from None
    except RecursionError:
        raise _unreadable(path, "nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a path with a zero byte
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark else ""
        problem = str(getattr(error, "problem", None) or error).removeprefix("found ")  # for the style of our messages
        raise _unreadable(path, printable(problem) + where) from None
    except ConfigError as error:
        raise error.located(file=path) from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise _unreadable(path, f"a {type(found).__name__} instead of a mapping")
    return found


def _unreadable(path: Path, why: str) -> ConfigError:
    return ConfigError("is not a readable YAML configuration", kind="config-file", file=path, got=why)
