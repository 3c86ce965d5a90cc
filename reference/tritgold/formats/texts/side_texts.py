"""The text files of a model in any container, under the names that they have in a Hugging Face folder.

- Hugging Face folder: the files themselves.
- GGUF: tokenizer and chat template from the metadata, and a tokenizer_config.json made for transformers; in files
  written by tritgold also the other texts of the source, from the keys ``tritgold.text.<name>``.
- A container without texts (SGLBITNT): ``<file>.tokenizer.json`` and ``<file>.chat_template.jinja`` beside the file.

Texts are read byte for byte: newlines are not changed.
"""

import json
import os.path
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tritgold.config import ModelConfig
from tritgold.errors import FormatError, TritgoldWarning
from tritgold.formats.container import Container
from tritgold.formats.gguf_file import GgufFile
from tritgold.formats.gguf_special_tokens import BOS_KEY, EOS_KEYS
from tritgold.formats.texts.gguf_tokenizer import (
    MODEL_KEY,
    NO_TOKENIZER,
    TEMPLATE_KEY,
    TEXT_KEY,
    TOKENS_KEY,
    tokenizer_json,
    tokenizer_metadata,
)
from tritgold.formats.untrusted_text import parse_json, printable, read_text

CONFIG, TOKENIZER, TOKENIZER_CONFIG = "config.json", "tokenizer.json", "tokenizer_config.json"
TEMPLATE = "chat_template.jinja"
BESIDE = (TOKENIZER, TEMPLATE)
# Texts that GGUF has no key for: stored under tritgold's own keys, so that converting back gives the same folder.
KEPT_KEY = "tritgold.text."
KEPT = (CONFIG, "generation_config.json", TOKENIZER_CONFIG, "special_tokens_map.json", "added_tokens.json")
TEXTS = (
    CONFIG,
    "generation_config.json",
    TOKENIZER,
    TOKENIZER_CONFIG,
    "special_tokens_map.json",
    "added_tokens.json",
    TEMPLATE,
)

# Other files of a Hugging Face folder, mostly tokenizers of other software: only copied to another such folder.
OTHER_FILES = (
    *("tokenizer.model", "vocab.json", "merges.txt", "vocab.txt", "spiece.model", "sentencepiece.bpe.model"),
    *("chat_template.json", "LICENSE", "LICENSE.md", "NOTICE"),
)
_MOST_BYTES = 1 << 28  # the tokenizer.json of a large vocabulary has about 20 MB
PADDING_KEY = "tokenizer.ggml.padding_token_id"


def other_files(path: Path) -> list[Path]:
    """The existing files of OTHER_FILES in a Hugging Face folder; empty if ``path`` is a file."""
    return [path / name for name in OTHER_FILES if os.path.isdir(path) and os.path.isfile(path / name)]


def side_texts(
    path: Path, container: Container, names: Sequence[str] = TEXTS, tokenizer: str | None = None
) -> dict[str, str]:
    """The existing ones of the named texts, name -> text.

    path: of the checkpoint. container: opened from it. tokenizer: a text that replaces its tokenizer.json.
    Raises FormatError: ``unreadable`` or ``not-utf8`` for a file, and as ``tokenizer_json`` does for GGUF metadata.
    """
    if isinstance(container, GgufFile):
        try:
            own = {} if tokenizer is None else {TEXT_KEY: tokenizer}
            return _gguf_texts({**container.metadata, **own}, names)
        except FormatError as error:
            raise error.located(file=path) from error.__cause__
    found: dict[str, str] = {}
    for name in names:
        if os.path.isdir(path):
            file = path / name
        elif name in BESIDE:
            file = path.with_name(f"{path.name}.{name}")
        else:
            continue
        if os.path.isfile(file):
            found[name] = read_side_text(file)
    if tokenizer is not None and TOKENIZER in names:
        found[TOKENIZER] = tokenizer
    return found


def template_of(texts: Mapping[str, str], path: Path) -> str | None:
    """The chat template: chat_template.jinja, else the one in tokenizer_config.json, as in transformers; None if none.

    Of several named templates it is the one called ``default``; without that, None. Raises FormatError
    ``chat-template`` if the key has another type.
    """
    if TEMPLATE in texts:
        return texts[TEMPLATE]
    if TOKENIZER_CONFIG not in texts:
        return None
    try:
        config = parse_json(texts[TOKENIZER_CONFIG])
    except ValueError as error:
        raise FormatError(f"is not JSON: {error}", kind="chat-template", file=path / TOKENIZER_CONFIG) from error
    found = config.get("chat_template") if isinstance(config, dict) else None
    if isinstance(found, list):
        named = [item for item in found if isinstance(item, dict) and item.get("name") == "default"]
        found = named[0].get("template") if named else None
    if found is None or isinstance(found, str):
        return found
    raise FormatError(
        "holds no text",
        kind="chat-template",
        file=path / TOKENIZER_CONFIG,
        thing="key 'chat_template'",
        got=printable(repr(found)),
    )


def side_files(texts: Mapping[str, str]) -> dict[str, str]:
    """The texts to write beside a container without texts, by the ending of the file name: those of ``BESIDE``.

    >>> side_files({"config.json": "{}", "tokenizer_config.json": '{"chat_template": "{{ bos }}"}'})
    {'chat_template.jinja': '{{ bos }}'}
    """
    found = {TOKENIZER: texts.get(TOKENIZER), TEMPLATE: template_of(texts, Path())}
    return {name: text for name, text in found.items() if text is not None}


def texts_as_metadata(texts: Mapping[str, str], config: ModelConfig) -> dict[str, Any]:
    """The ``tokenizer.`` and ``tritgold.text.`` keys of a GGUF file for these texts.

    A tokenizer that llama.cpp's keys cannot express is written only as ``tokenizer.huggingface.json``, with a
    TritgoldWarning: llama.cpp then loads the model without a tokenizer instead of splitting text wrongly.
    """
    template, text = template_of(texts, Path()), texts.get(TOKENIZER)
    kept: dict[str, Any] = {KEPT_KEY + name: texts[name] for name in KEPT if name in texts}
    kept |= _padding(texts, config)
    if text is not None:
        try:
            return kept | tokenizer_metadata(text, config.bos, config.eos, template, rows=config.vocab)
        except FormatError as error:
            if error.kind == "tokenizer":
                raise
            what = f"the tokenizer is kept as {TEXT_KEY} alone, for llama.cpp has no keys for it: {error}"
            warnings.warn(what, TritgoldWarning, stacklevel=2)
    found = {MODEL_KEY: NO_TOKENIZER[0], TEMPLATE_KEY: template, TEXT_KEY: text}
    return kept | {key: value for key, value in found.items() if value is not None}


def _padding(texts: Mapping[str, str], config: ModelConfig) -> dict[str, int]:
    """The key for ``pad_token_id`` of config.json, which is not in ModelConfig because it changes no arithmetic."""
    try:
        values = parse_json(texts.get(CONFIG, "{}"))
    except ValueError:
        return {}
    token = values.get("pad_token_id") if isinstance(values, dict) else None
    return {PADDING_KEY: token} if type(token) is int and 0 <= token < config.vocab else {}


def _gguf_texts(metadata: Mapping[str, Any], names: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    if TOKENIZER in names and (text := tokenizer_json(metadata)) is not None:
        found[TOKENIZER] = text
    template = metadata.get(TEMPLATE_KEY)
    if TEMPLATE in names and template is not None:
        if not isinstance(template, str):
            got = printable(repr(template))
            raise FormatError("has the wrong type", kind="chat-template", thing=f"key {TEMPLATE_KEY!r}", got=got)
        found[TEMPLATE] = template
    found |= {n: kept for n in names if n in KEPT and isinstance(kept := metadata.get(KEPT_KEY + n), str)}
    elsewhere = {name: text for name, text in found.items() if name != TEMPLATE}
    if TEMPLATE in found and template_of(elsewhere, Path()) == template:
        del found[TEMPLATE]  # the source had it in tokenizer_config.json, which is among the found texts
    ours = KEPT_KEY + CONFIG in metadata  # written by tritgold: no tokenizer_config.json here means none in the source
    if TOKENIZER_CONFIG in names and TOKENIZER in found and TOKENIZER_CONFIG not in found and not ours:
        found[TOKENIZER_CONFIG] = json.dumps(_tokenizer_config(metadata), indent=2, ensure_ascii=False) + "\n"
    return found


def _tokenizer_config(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What transformers needs in addition to a tokenizer.json: the tokenizer class and the special tokens as texts."""
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    tokens = metadata.get(TOKENS_KEY)
    for name, key in (("bos_token", BOS_KEY), ("eos_token", EOS_KEYS[0])):
        token = metadata.get(key)
        if isinstance(tokens, list) and type(token) is int and 0 <= token < len(tokens):
            config[name] = tokens[token]
    return config


def read_side_text(file: Path) -> str:
    """A text file, byte for byte. Raises FormatError ``unreadable`` or ``not-utf8``."""
    try:
        return read_text(file, _MOST_BYTES)
    except OSError as error:
        raise FormatError(f"cannot be read: {error.strerror}", kind="unreadable", file=file) from error
    except UnicodeDecodeError as error:
        raise FormatError(f"is not UTF-8: {error.reason}", kind="not-utf8", file=file) from error
    except ValueError as error:
        raise FormatError(f"cannot be read: {error}", kind="unreadable", file=file) from error
