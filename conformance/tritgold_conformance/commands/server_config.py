"""The YAML configuration of a block-diffusion server, read as that server reads it, but strictly: the door to PyYAML.

The schema is that of WrinkleFree's ``dlm_server`` (``ServerConfig`` in dlm_server.rs, January 2026). Every key is
optional. There an unknown key is passed over, an unknown decode_mode is greedy, and a threshold may be anything; here
they are errors. So is a key given twice, of which YAML says that it may not be and PyYAML takes the last.
"""

import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tritgold.decode.diffusion_presets import PRESETS
from tritgold.errors import ConfigError
from tritgold.formats.untrusted_text import first_repeated, printable
from tritgold.golden import MODELS

MODEL_PATH = "MODEL_PATH"  # the environment variable of that server
LARGEST = 1 << 20  # bytes; such a file has a few hundred
# decode_mode, in any case, -> what --decode calls it. The server knows greedy, iterative, adaptive and the short forms.
MODES = {"greedy": "greedy", "iterative": "iterative", "iter": "iterative", "adaptive": "adaptive", "adapt": "adaptive"}
MODES |= {name: name for name in (*PRESETS, "ar")}


@dataclass(frozen=True)
class Key:
    """One key. default: the server's. usable: whether a value is. used: by ``tritgold run``, which serves nobody."""

    default: Any
    expected: str
    usable: Callable[[Any], bool]
    note: str
    used: bool = True


def _integer(least: int, most: int = (1 << 31) - 1) -> dict[str, Any]:
    return {"expected": f"an integer, {least} to {most}", "usable": lambda v: type(v) is int and least <= v <= most}


_TEXT: dict[str, Any] = {"expected": "text", "usable": lambda v: isinstance(v, str) and v != ""}
_SWITCH: dict[str, Any] = {"expected": "true or false", "usable": lambda v: isinstance(v, bool)}
_SERVING: dict[str, Any] = {"note": "serving", "used": False}
KEYS: dict[str, Key] = {
    "model_path": Key("kjv-dlm", **_TEXT, note=f"folder, file or embedded model; else {MODEL_PATH}, else kjv-dlm"),
    "host": Key("0.0.0.0", **_TEXT, **_SERVING),
    "port": Key(30000, **_integer(0, 65535), **_SERVING),
    "dlm.block_size": Key(32, **_integer(1), note="as the model was trained"),
    "dlm.threshold": Key(
        0.7,
        "a number above 0 and below 1",
        lambda v: type(v) in (int, float) and 0 < v < 1,
        note="confidence that decides a token; greedy has none",
    ),
    "dlm.small_block_size": Key(8, **_integer(1), note="divides block_size; for modes with sub-blocks"),
    "dlm.mask_token_id": Key(
        None,
        f"an integer, 0 to {(1 << 31) - 1}, or null",
        lambda v: v is None or (type(v) is int and 0 <= v < 1 << 31),
        note="null: the model's own; another than that is refused",
    ),
    "dlm.max_iterations_per_block": Key(10, **_integer(1), note="passes; for iterative and adaptive"),
    "dlm.decode_mode": Key(
        "greedy", ", ".join(MODES), lambda v: isinstance(v, str) and v.lower() in MODES, note=", ".join(MODES)
    ),
    "scheduler.max_sequences": Key(16, **_integer(1), **_SERVING),
    "scheduler.enable_radix_cache": Key(True, **_SWITCH, **_SERVING),
    "scheduler.radix_cache_max_tokens": Key(100_000, **_integer(1), **_SERVING),
    "benchmark.enabled": Key(False, **_SWITCH, **_SERVING),
    "benchmark.iterations": Key(50, **_integer(1), **_SERVING),
    "benchmark.max_tokens": Key(64, **_integer(1), **_SERVING),
    "benchmark.prompt": Key("What is the meaning of life?", **_TEXT, **_SERVING),
}
SECTIONS = ("dlm", "scheduler", "benchmark")


@dataclass(frozen=True)
class ServerConfig:
    """What a file says. given: by dotted key, what it says itself."""

    file: Path
    given: Mapping[str, Any]

    def __getitem__(self, key: str) -> Any:
        """Of the file, or else the server's default."""
        return self.given.get(key, KEYS[key].default)

    def model(self, environment: Mapping[str, str]) -> str:
        """Which model: the file's, or else that of the environment, or else the default.

        Raises ConfigError (``model-path``) where there is none, saying who named it.
        """
        named: str | None = self.given.get("model_path", environment.get(MODEL_PATH))
        if not named:
            return str(KEYS["model_path"].default)
        if named not in MODELS and not os.path.exists(named):
            file, thing = (
                (self.file, "model_path") if "model_path" in self.given else (None, f"environment: {MODEL_PATH}")
            )
            expected = f"a folder, a file or {', '.join(MODELS)}"
            raise ConfigError(
                "no such model", kind="model-path", file=file, thing=thing, got=_shown(named), expected=expected
            )
        return named

    @property
    def mode(self) -> str:
        """The decode_mode as --decode calls it."""
        return MODES[self["dlm.decode_mode"].lower()]

    @property
    def unused(self) -> tuple[str, ...]:
        """Keys of the file that are for serving."""
        return tuple(key for key in self.given if not KEYS[key].used)


def load(path: Path) -> ServerConfig:
    """The configuration in a file.

    Raises ConfigError: ``config-file`` for a file that cannot be read, is no YAML or is no mapping;
    ``config-duplicate`` for a key given twice, ``config-unknown-key``, and ``config-value`` for a value of a wrong type
    or out of range, block_size and small_block_size together included.
    """
    given: dict[str, Any] = {}
    for key, value in _flat(_mapping(path), path):
        wanted = KEYS[key]
        if not wanted.usable(value):
            raise _unusable(path, key, value, wanted.expected)
        given[key] = value
    config = ServerConfig(path, given)
    block, small = config["dlm.block_size"], config["dlm.small_block_size"]
    if block % small:
        defaults = [key for key in ("dlm.block_size", "dlm.small_block_size") if key not in given]
        said = "".join(f" ({key.partition('.')[2]}: the server's default)" for key in defaults)
        raise _unusable(path, "dlm.small_block_size", small, f"a divisor of block_size = {block}{said}")
    return config


def example() -> str:
    """The defaults as YAML, every key with a comment."""
    lines = [
        "# Block diffusion, in the schema of dlm_server: tritgold run --config FILE",
        "# Each key may be left out.",
    ]
    for key, wanted in KEYS.items():
        section, _, name = key.rpartition(".")
        if section and f"{section}:" not in lines:
            lines += ["", f"{section}:"]
        setting = f"{'  ' if section else ''}{name}: {json.dumps(wanted.default)}"
        lines.append(f"{setting:<44}# {wanted.note}")
    return "\n".join(lines) + "\n"


_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


class _UniqueLoader(yaml.SafeLoader):
    """``safe_load`` that refuses a key given twice."""

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
        """1:30 is the text that it is in YAML 1.2, as that server reads it, and no number of base 60.

        And what cannot be made of a node is an error with a line, where PyYAML has bare ones of every kind.
        """
        if node.tag in _NUMBERS and ":" in node.value:
            return node.value
        try:
            return super().construct_object(node, deep)
        except (AttributeError, IndexError, KeyError, OverflowError, ValueError):
            why = f"no {node.tag.rpartition(':')[2]} that can be read"
            raise yaml.constructor.ConstructorError(None, None, why, node.start_mark) from None

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """No merge keys: that server has none, and a few dozen of them, nested, would fill the memory."""
        if any(key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value):
            raise ConfigError("no such key", kind="config-unknown-key", got="'<<'", hint="write the keys out")


def _mapping(path: Path) -> dict[Any, Any]:
    """The file as YAML; an empty one is an empty mapping."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for; /dev/stdin is one, or a file like any
            raise _unreadable(path, "no regular file")
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise _unreadable(path, f"more than {LARGEST} bytes")
        found = yaml.load(data.decode("utf-8"), Loader=_UniqueLoader)
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from None
    except UnicodeDecodeError:
        raise _unreadable(path, "no UTF-8") from None
    except RecursionError:
        raise _unreadable(path, "nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a path with a zero byte
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark else ""
        problem = str(getattr(error, "problem", None) or error).removeprefix("found ")  # as ours begins
        raise _unreadable(path, printable(problem) + where) from None
    except ConfigError as error:
        raise error.located(file=path) from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise _unreadable(path, f"a {type(found).__name__} instead of a mapping")
    return found


def _flat(found: dict[Any, Any], path: Path) -> Iterator[tuple[str, Any]]:
    """Values by dotted key, every key known. A section without anything is null in YAML, and nothing here."""
    tops = tuple(dict.fromkeys(key.split(".")[0] for key in KEYS))
    for name, value in found.items():
        if name not in tops:
            raise _unknown(path, name, tops)
        if name not in SECTIONS:
            yield name, value
            continue
        if value is not None and not isinstance(value, dict):
            raise _unusable(path, name, value, "a mapping")
        for inner, inner_value in (value or {}).items():
            if f"{name}.{inner}" not in KEYS:
                raise _unknown(path, f"{name}.{inner}", [key for key in KEYS if key.startswith(f"{name}.")])
            yield f"{name}.{inner}", inner_value


def _unreadable(path: Path, why: str) -> ConfigError:
    return ConfigError("is no readable YAML configuration", kind="config-file", file=path, got=why)


def _unknown(path: Path, key: Any, known: Any) -> ConfigError:
    return ConfigError("no such key", kind="config-unknown-key", file=path, got=_shown(key), expected=", ".join(known))


def _unusable(path: Path, key: str, value: Any, expected: str) -> ConfigError:
    return ConfigError("is not usable", kind="config-value", file=path, thing=key, got=_shown(value), expected=expected)


def _shown(value: Any) -> str:
    """A scalar as it is; of lists, mappings and integers without end what they are."""
    if not isinstance(value, str | int | float | None) or (isinstance(value, int) and value.bit_length() > 64):
        return f"a {type(value).__name__}" if not isinstance(value, int) else f"an integer of {value.bit_length()} bits"
    return printable(repr(value))
