"""The YAML configuration of a block-diffusion server, read as that server reads it, but strictly.

The schema is that of WrinkleFree's ``dlm_server`` (``ServerConfig`` in dlm_server.rs, January 2026). Every key is
optional. That server ignores unknown keys, takes an unknown decode_mode for greedy, and accepts any threshold; here
these are errors. So is a repeated key, which YAML forbids and of which PyYAML takes the last value.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta, Struct

from tritgold.decode.diffusion_presets import PRESETS
from tritgold.errors import ConfigError
from tritgold.formats.untrusted_text import printable
from tritgold.golden import MODELS
from tritgold_conformance.commands.strict_yaml import load_mapping

MODEL_PATH = "MODEL_PATH"  # the environment variable of that server
# decode_mode, in any case, -> what --decode calls it. The server knows greedy, iterative, adaptive and the short forms.
MODES = {"greedy": "greedy", "iterative": "iterative", "iter": "iterative", "adaptive": "adaptive", "adapt": "adaptive"}
MODES |= {name: name for name in (*PRESETS, "ar")}
_MODE = Meta(pattern=rf"(?i)\A({'|'.join(MODES)})\Z", title=", ".join(MODES), description=", ".join(MODES))
_MOST = (1 << 31) - 1

# Keys of WrinkleFree's other files (Hydra's sparsity and attention, generation), which are options of run here.
_ELSEWHERE = {
    "sparsity": "leave it out and say it as --sparsity top_k:keep=0.7, or another rule with its options",
    **dict.fromkeys(
        ("attention", "attention_sparsity"),
        "leave it out and say it as --sparsity attention_window:window=256, or another rule of attention",
    ),
    **dict.fromkeys(
        ("generation", "temperature", "top_k", "top_p", "repetition_penalty", "max_tokens", "max_new_tokens", "seed"),
        "leave it out and say it as --temperature, --top-k, --top-p, --repetition-penalty, --max-tokens or --seed",
    ),
}
# Titles are what an error says is expected.
_Text = Annotated[str, Meta(min_length=1, title="text")]
_Switch = Annotated[bool, Meta(title="true or false")]
_Positive = Annotated[int, Meta(ge=1, le=_MOST, title=f"an integer, 1 to {_MOST}")]
_Port = Annotated[int, Meta(ge=0, le=65535, title="an integer, 0 to 65535")]
_Share = Annotated[float, Meta(gt=0, lt=1, title="a number above 0 and below 1")]
_Token = Annotated[Annotated[int, Meta(ge=0, le=_MOST)] | None, Meta(title=f"an integer, 0 to {_MOST}, or null")]


class _Dlm(Struct):
    block_size: Annotated[_Positive, Meta(description="as the model was trained")] = 32
    threshold: Annotated[_Share, Meta(description="confidence that decides a token; greedy has none")] = 0.7
    small_block_size: Annotated[_Positive, Meta(description="divides block_size; for modes with sub-blocks")] = 8
    mask_token_id: Annotated[_Token, Meta(description="null: the model's own; another than that is refused")] = None
    max_iterations_per_block: Annotated[_Positive, Meta(description="passes; for iterative and adaptive")] = 10
    decode_mode: Annotated[str, _MODE] = "greedy"


class _Scheduler(Struct):
    max_sequences: _Positive = 16
    enable_radix_cache: _Switch = True
    radix_cache_max_tokens: _Positive = 100_000


class _Benchmark(Struct):
    enabled: _Switch = False
    iterations: _Positive = 50
    max_tokens: _Positive = 64
    prompt: _Text = "What is the meaning of life?"


class _Server(Struct):
    model_path: Annotated[
        _Text, Meta(description=f"folder, file or embedded model; else {MODEL_PATH}, else kjv-dlm")
    ] = "kjv-dlm"
    host: _Text = "0.0.0.0"
    port: _Port = 30000
    dlm: _Dlm = msgspec.field(default_factory=_Dlm)
    scheduler: _Scheduler = msgspec.field(default_factory=_Scheduler)
    benchmark: _Benchmark = msgspec.field(default_factory=_Benchmark)


_SECTIONS: dict[str, type[Struct]] = {"dlm": _Dlm, "scheduler": _Scheduler, "benchmark": _Benchmark}


class Key(NamedTuple):
    """One key. default: the server's. expected, note: in words. used: whether ``tritgold run`` uses it."""

    default: Any
    expected: str
    note: str
    used: bool


def _keys(schema: type[Struct], section: str = "") -> Iterator[tuple[str, Key]]:
    for field in msgspec.structs.fields(schema):
        if field.name in _SECTIONS:
            yield from _keys(_SECTIONS[field.name], f"{field.name}.")
            continue
        expected = next(meta.title for meta in field.type.__metadata__ if meta.title)
        note = next((meta.description for meta in field.type.__metadata__ if meta.description), None)
        yield f"{section}{field.name}", Key(field.default, expected, note or "serving", note is not None)


KEYS = dict(_keys(_Server))  # by dotted key


@dataclass(frozen=True)
class ServerConfig:
    """The configuration in a file. given: the values in the file, by dotted key."""

    file: Path
    given: Mapping[str, Any]

    def __getitem__(self, key: str) -> Any:
        """The value in the file, or the server's default."""
        return self.given.get(key, KEYS[key].default)

    def model(self, environment: Mapping[str, str]) -> str:
        """The model of the file; if it has none, that of the environment; then the default.

        Raises ConfigError (``model-path``) if it does not exist; the error tells where it was named.
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

    Raises ConfigError: ``config-file`` for a file that cannot be read, is not YAML or not a mapping;
    ``config-duplicate`` for a key given twice, ``config-unknown-key``, and ``config-value`` for a value of a wrong type
    or out of range, block_size and small_block_size together included.
    """
    config = ServerConfig(path, dict(_checked(load_mapping(path), _Server, path)))
    block, small = config["dlm.block_size"], config["dlm.small_block_size"]
    if block % small:
        defaults = [key for key in ("dlm.block_size", "dlm.small_block_size") if key not in config.given]
        said = "".join(f" ({key.partition('.')[2]}: the server's default)" for key in defaults)
        raise _unusable(path, "dlm.small_block_size", small, f"a divisor of block_size = {block}{said}")
    return config


def _checked(
    found: Mapping[Any, Any], schema: type[Struct], path: Path, section: str = ""
) -> Iterator[tuple[str, Any]]:
    """Values by dotted key, checked key by key, because msgspec's errors do not give the key as data."""
    types = {field.name: field.type for field in msgspec.structs.fields(schema)}
    for name, value in found.items():
        key = f"{section}{name}" if section else name
        if name not in types:
            known = ", ".join(f"{section}{one}" for one in types)
            hint = None if section else _ELSEWHERE.get(name)
            raise ConfigError(
                "no such key", kind="config-unknown-key", file=path, got=_shown(key), expected=known, hint=hint
            )
        if name in _SECTIONS:
            if not isinstance(value, dict | None):
                raise _unusable(path, key, value, "a mapping")
            yield from _checked(value or {}, _SECTIONS[name], path, f"{name}.")
            continue
        try:
            msgspec.convert(value, types[name])
        except msgspec.ValidationError:
            raise _unusable(path, key, value, KEYS[key].expected) from None
        yield key, value


def example() -> str:
    """The defaults as YAML, with a comment for each key."""
    lines = [
        "# Block diffusion, in the schema of dlm_server: tritgold run --config FILE",
        "# Every key is optional.",
    ]
    for key, wanted in KEYS.items():
        section, _, name = key.rpartition(".")
        if section and f"{section}:" not in lines:
            lines += ["", f"{section}:"]
        setting = f"{'  ' if section else ''}{name}: {json.dumps(wanted.default)}"
        lines.append(f"{setting:<44}# {wanted.note}")
    return "\n".join(lines) + "\n"


def _unusable(path: Path, key: str, value: Any, expected: str) -> ConfigError:
    return ConfigError("is not usable", kind="config-value", file=path, thing=key, got=_shown(value), expected=expected)


def _shown(value: Any) -> str:
    """A scalar as it is; for lists, mappings and very large integers only what they are."""
    if not isinstance(value, str | int | float | None) or (isinstance(value, int) and value.bit_length() > 64):
        return f"a {type(value).__name__}" if not isinstance(value, int) else f"an integer of {value.bit_length()} bits"
    return printable(repr(value))
