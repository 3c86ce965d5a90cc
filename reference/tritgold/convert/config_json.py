"""config.json of the result: the source's text if it describes the result, else with as few changes as possible."""

import json
from typing import Any

from tritgold.convert.wanted import Wanted
from tritgold.errors import ConfigError
from tritgold.formats.gguf_file import GgufFile
from tritgold.formats.hf_config import IGNORED_KEYS, parse_hf_config
from tritgold.formats.hf_config_writer import hf_config
from tritgold.formats.sglbitnt_file import SglbitntFile
from tritgold.formats.special_tokens import generation_eos
from tritgold.formats.texts.side_texts import CONFIG, PADDING_KEY
from tritgold.formats.untrusted_text import parse_json

_DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


def config_json(wanted: Wanted, texts: dict[str, str], floats: str, generation: str | None = None) -> str:
    """The text of config.json.

    texts: of the source. floats: dtype of the unpacked tensors, BF16, F16 or F32. generation: the text of the
    generation_config.json beside the result. If the source's configuration has another scale rule, mode or dtype, the
    keys that change no arithmetic are kept (``pad_token_id`` ...) and the others are written new.
    """
    original, text = _original(wanted, texts), texts.get(CONFIG)
    if text is not None and _says(wanted, original, floats, generation):
        return text
    kept = {k: v for k, v in original.items() if k in IGNORED_KEYS | set(wanted.ignore_keys) and k != "torch_dtype"}
    return json.dumps({**kept, **hf_config(wanted.config, dtype=_DTYPES[floats])}, indent=2) + "\n"


def _original(wanted: Wanted, texts: dict[str, str]) -> dict[str, Any]:
    """The Hugging Face keys of the source's configuration, for any container."""
    container = wanted.source.container
    if isinstance(container, SglbitntFile):
        return dict(container.config)
    if CONFIG in texts:
        try:
            found = parse_json(texts[CONFIG])
        except ValueError:  # possible for a text in a GGUF file, which has not been parsed before
            found = None
        if isinstance(found, dict):
            return found
    padding = container.metadata.get(PADDING_KEY) if isinstance(container, GgufFile) else None
    return {"pad_token_id": padding} if type(padding) is int else {}


def _says(wanted: Wanted, values: dict[str, Any], floats: str, generation: str | None) -> bool:
    try:
        eos = generation_eos(generation, wanted.source.path)
        read = parse_hf_config(wanted.source.path, values, None, wanted.ignore_keys, eos)
    except ConfigError:
        return False
    dtype = values.get("dtype", values.get("torch_dtype", _DTYPES[floats]))
    return read.model == wanted.config and read.mode == "offline" and dtype == _DTYPES[floats]
