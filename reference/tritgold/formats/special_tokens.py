"""The stop ids, which end a text: one rule for every container, that of transformers' ``generate``.

If ``generation_config.json`` exists, it decides, even if it has no ``eos_token_id``: then no token ends a text.
If not, ``config.json`` decides. The ``eos_token`` of ``tokenizer_config.json`` is not a stop id in ``generate``, and
not here. Containers that are one file hold the ids that this rule gave when they were written.

Source: transformers 5.24, ``generation/utils.py`` (adjust_generation_fn, _prepare_special_tokens). llama.cpp stops at
the three ids of EOS_KEYS and also at every token with the name of an end token (``<|eot_id|>``, ``<|im_end|>``,
``<|endoftext|>``, ``<|end_of_text|>``, ``</s>``; ``src/llama-vocab.cpp``): here names do not matter.
"""

import json
import warnings
from pathlib import Path
from typing import Any

from tritgold.errors import ConfigError, TritgoldWarning
from tritgold.formats.untrusted_text import parse_json, printable, read_text

GENERATION, EOS = "generation_config.json", "eos_token_id"
_MOST_BYTES = 1 << 20


def read_generation_eos(folder: Path) -> list[int] | None:
    """The stop ids of the folder's generation_config.json, empty if it has none; None if the file does not exist.

    Raises ConfigError ``config-unreadable`` or ``config-type``.
    """
    file = folder / GENERATION
    if not file.is_file():
        return None
    try:
        text = read_text(file, _MOST_BYTES)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot be read: {error}", kind="config-unreadable", file=file) from error
    return generation_eos(text, file)


def generation_eos(text: str | None, file: Path) -> list[int] | None:
    """The same for the text of a generation_config.json; None for None. file: its path, for messages."""
    if text is None:
        return None
    try:
        values = parse_json(text)
    except ValueError as error:
        raise ConfigError(f"cannot be read: {error}", kind="config-unreadable", file=file) from error
    if not isinstance(values, dict):
        got = type(values).__name__
        raise ConfigError("is not a JSON object", kind="config-unreadable", file=file, got=got)
    found: Any = values.get(EOS)
    if found is None:
        return []
    tokens = found if isinstance(found, list) else [found]
    if not all(type(token) is int for token in tokens):
        thing, expected = f"key {EOS!r}", "int or list of int"
        got = printable(repr(found)[:200])
        raise ConfigError("has the wrong type", kind="config-type", file=file, thing=thing, got=got, expected=expected)
    return tokens


def generation_with(text: str, tokens: tuple[int, ...]) -> str:
    """The text of a generation_config.json with its stop ids replaced."""
    values = parse_json(text)
    stop: Any = tokens[0] if len(tokens) == 1 else list(tokens)
    return json.dumps({**values, EOS: stop}, indent=2) + "\n"


def stop_ids(config: Path, eos: list[int], generation_eos: list[int] | None, vocab: int) -> tuple[int, ...]:
    """The stop ids of a model.

    eos: of the config.json at ``config``. generation_eos: of the generation_config.json in the same folder, None if
    there is no such file. Warns (TritgoldWarning) if that file has no stop ids and config.json has, and as ``inside``
    does.
    """
    if generation_eos is None:
        return inside(config, EOS, eos, vocab)
    where = config.with_name(GENERATION)
    if eos and not generation_eos:
        # Path and ids are shortened separately: a long path must not cut off the sentence.
        ids = printable(str(eos), 80)
        what = f"gives no {EOS}: nothing ends a text, as in transformers; {ids} of config.json are not asked"
        warnings.warn(f"{printable(str(where), 4096)}: {what}", TritgoldWarning, stacklevel=2)
    return inside(where, EOS, generation_eos, vocab)


def inside(path: Path, key: str, tokens: list[int], vocab: int) -> tuple[int, ...]:
    """The tokens below ``vocab``, in order; the others are left out with one TritgoldWarning.

    They occur because transformers saves BitNet's 128000 and 128001 for a vocabulary of any size.
    """
    outside = [token for token in tokens if not 0 <= token < vocab]
    if outside:
        others = f" (and {len(outside) - 1} more)" if len(outside) > 1 else ""
        shown = outside[0] if outside[0].bit_length() <= 64 else f"of {outside[0].bit_length()} bits"
        what = f"{path}: {key} {shown} lies outside the vocabulary of {vocab}{others}: left out"
        warnings.warn(printable(what), TritgoldWarning, stacklevel=2)
    return tuple(token for token in tokens if 0 <= token < vocab)
