"""A tokenizer in GGUF metadata, both directions: tokenizer.json -> ``tokenizer.`` keys -> tokenizer.json.

It writes llama.cpp's keys, and the whole tokenizer.json as ``tokenizer.huggingface.json`` (a key of the GGUF
specification), so that reading gives the same bytes again. For a file with only llama.cpp's keys, a tokenizer.json is
built from them that gives the same ids.

Source: ggml's docs/gguf.md, llama.cpp's src/llama-vocab.cpp.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from tritgold.errors import FormatError, TritgoldWarning
from tritgold.formats.gguf_special_tokens import BOS_KEY, EOS_KEYS
from tritgold.formats.texts.bpe_tokenizer import BpeTokenizer, byte_token
from tritgold.formats.texts.pre_tokenizers import PRE_TOKENIZERS
from tritgold.formats.texts.spm_merges import merges_of, scores_of
from tritgold.formats.texts.tokenizer_file import read_tokenizer_file
from tritgold.formats.texts.tokenizer_file_writer import write_tokenizer_file
from tritgold.formats.untrusted_text import first_repeated, printable

TEXT_KEY, TEMPLATE_KEY = "tokenizer.huggingface.json", "tokenizer.chat_template"
MODEL_KEY, TOKENS_KEY = "tokenizer.ggml.model", "tokenizer.ggml.tokens"
_GGML = "tokenizer.ggml."
# Values of tokenizer.ggml.token_type.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
NO_TOKENIZER = ("none", "no_vocab")


def tokenizer_metadata(
    tokenizer_json: str,
    bos: int | None,
    eos: Sequence[int],
    chat_template: str | None,
    rows: int | None = None,
    pre: str | None = None,
) -> dict[str, Any]:
    """The ``tokenizer.`` keys of a GGUF file: bool, int, str, list of str, arrays (types int32, scores float32).

    bos, eos: of the model's configuration. rows: of the embedding; ids without a token get unused tokens named
    ``[PAD<id>]``, because llama.cpp requires a token for every row. pre: see read_tokenizer_file.

    Raises FormatError: ``tokenizer-...`` of read_tokenizer_file and scores_of for a tokenizer that the keys cannot
    express, ``tokenizer-tokens`` for one with more tokens than rows, ``tokenizer-template`` if it puts other tokens
    than bos and eos around a text.
    """
    tokenizer = read_tokenizer_file(tokenizer_json, pre)
    rows = len(tokenizer.tokens) if rows is None else rows
    if len(tokenizer.tokens) > rows:
        _refuse("tokens", "the tokenizer", "has more tokens than the embedding has rows", len(tokenizer.tokens), rows)
    for what, token, named in (("before", tokenizer.first, bos), ("after", tokenizer.last, next(iter(eos), None))):
        if token is not None and token != named:
            which = f"the token {what} every text"
            _refuse("template", which, "is not the model's BOS or EOS", token, named)
    padded = [*tokenizer.tokens, *[None] * (rows - len(tokenizer.tokens))]
    names = [f"[PAD{index}]" if text is None else text for index, text in enumerate(padded)]
    if (twice := first_repeated(names)) is not None:
        _refuse("tokens", f"token {printable(repr(twice))}", "has the name of the padding at its place")
    keys: dict[str, Any] = {
        "model": tokenizer.kind,
        "pre": tokenizer.pre,
        "tokens": names,
        "token_type": np.array([_type(tokenizer, i, text) for i, text in enumerate(padded)], np.int32),
    }
    if tokenizer.kind == "llama":
        scores = scores_of(tokenizer.merges, tokenizer.normal())
        keys["scores"] = np.array([0.0 if text is None else scores.get(text, 0.0) for text in padded], np.float32)
        keys["add_space_prefix"] = tokenizer.space_prefix
        keys["unknown_token_id"] = tokenizer.unknown
    else:
        keys["merges"] = [" ".join(merge) for merge in tokenizer.merges]
    keys |= {"add_bos_token": tokenizer.first is not None, "add_eos_token": tokenizer.last is not None}
    found = {f"{_GGML}{key}": value for key, value in keys.items()}
    found |= {BOS_KEY: bos, EOS_KEYS[0]: next(iter(eos), None), TEMPLATE_KEY: chat_template, TEXT_KEY: tokenizer_json}
    return {key: value for key, value in found.items() if value is not None}


def _type(tokenizer: BpeTokenizer, token: int, text: str | None) -> int:
    if text is None:
        return UNUSED
    if token == tokenizer.unknown:
        return UNKNOWN
    if token in tokenizer.control:
        return CONTROL
    if token in tokenizer.user_defined:
        return USER_DEFINED
    return BYTE if tokenizer.kind == "llama" and text in _BYTES else NORMAL


def tokenizer_json(metadata: Mapping[str, Any]) -> str | None:
    """The tokenizer of a GGUF file as the text of a tokenizer.json; None if the file has no tokenizer.

    It is ``tokenizer.huggingface.json`` if that key exists. Otherwise it is built: unused tokens are left out; control
    tokens become special tokens, user-defined tokens become added tokens that are not special; BOS and EOS are put
    around a text as ``add_bos_token`` and ``add_eos_token`` say, without these keys as llama.cpp assumes. A byte-level
    file without ``pre`` is read as ``llama-bpe`` with a TritgoldWarning if its tokens 128000 and 128001 are Llama 3's,
    as in the published GGUF of BitNet 2B-4T; any other is refused.

    Raises FormatError: ``tokenizer-model`` and ``tokenizer-pre`` for unknown kinds of tokenizer, ``tokenizer-key`` for
    a key that is missing or has the wrong type, length or value, and the kinds of BpeTokenizer.
    """
    keys = _Keys(metadata)
    if (text := keys.take(TEXT_KEY, str)) is not None:
        return str(text)
    model = keys.take(MODEL_KEY, str)
    if model is None or model in NO_TOKENIZER:
        return None
    if model not in ("gpt2", "llama"):
        _refuse("model", f"key {MODEL_KEY!r}", "names a tokenizer that tritgold cannot build", model, "gpt2 or llama")
    return write_tokenizer_file(_gpt2(keys) if model == "gpt2" else _llama(keys))


class _Keys:
    """Access to the metadata that checks the type of every value; FormatError ``tokenizer-key``."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = metadata

    def take(self, key: str, kind: type, required: bool = False) -> Any:
        value = self._metadata.get(key)
        if value is None and not required:
            return None
        if type(value) is not kind:
            found = None if value is None else printable(repr(value))
            message = "is missing" if value is None else "has the wrong type"
            _refuse("key", f"key {key!r}", message, found, kind.__name__)
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.take(_GGML + key, bool)
        return default if value is None else bool(value)

    def texts(self, key: str) -> list[str]:
        value = self.take(key, list, required=True)
        if (odd := next((item for item in value if not isinstance(item, str)), None)) is not None:
            _refuse("key", f"key {key!r}", "holds an item of the wrong type", printable(repr(odd)), "str")
        return list(value)

    def numbers(self, key: str, kinds: str, count: int) -> np.ndarray | None:
        value = self.take(key, np.ndarray)
        if value is not None and (value.dtype.kind not in kinds or value.shape != (count,)):
            found, wanted = f"{value.dtype} {list(value.shape)}", f"{count} numbers, one a token"
            _refuse("key", f"key {key!r}", "has the wrong type or length", found, wanted)
        return value

    def tokens(self) -> dict[str, Any]:
        """The arguments of BpeTokenizer that both kinds have, except first and last."""
        texts = self.texts(TOKENS_KEY)
        key = _GGML + "token_type"
        types = self.numbers(key, "iu", len(texts))
        types = np.full(len(texts), NORMAL) if types is None else types
        if (odd := types[(types < NORMAL) | (types > BYTE)]).size:
            _refuse("key", f"key {key!r}", "holds no token type", int(odd[0]), f"{NORMAL} to {BYTE}")
        kept = (None if kind == UNUSED else text for text, kind in zip(texts, types.tolist(), strict=True))
        special = np.flatnonzero((types == CONTROL) | (types == UNKNOWN))
        return {
            "tokens": list(kept),
            "control": frozenset(special.tolist()),
            "user_defined": frozenset(np.flatnonzero(types == USER_DEFINED).tolist()),
        }

    def around(self, adds_bos: bool) -> dict[str, Any]:
        """The arguments first and last. adds_bos: used if the file has no ``add_bos_token``."""
        bos, eos = self.flag("add_bos_token", adds_bos), self.flag("add_eos_token", False)
        return {
            "first": self.take(BOS_KEY, int, required=True) if bos else None,
            "last": self.take(EOS_KEYS[0], int, required=True) if eos else None,
        }


def _gpt2(keys: _Keys) -> BpeTokenizer:
    fields = keys.tokens()
    merges = []
    for text in keys.texts(_GGML + "merges"):
        left, space, right = text.partition(" ")
        if not (left and space and right) or " " in right:
            _refuse(
                "merges", f"merge {printable(repr(text))}", "is not a pair of tokens", None, "two tokens and a space"
            )
        merges.append((left, right))
    pre = _pre(keys, fields["tokens"])
    return BpeTokenizer("gpt2", merges=merges, pre=pre, **fields, **keys.around(PRE_TOKENIZERS[pre].adds_bos))


def _pre(keys: _Keys, tokens: list[str | None]) -> str:
    name = keys.take(_GGML + "pre", str)
    thing, known = f"key '{_GGML}pre'", ", ".join(PRE_TOKENIZERS)
    if name is None:
        if tokens[128_000:128_002] != ["<|begin_of_text|>", "<|end_of_text|>"]:
            _refuse("pre", thing, "is missing, and a guess would give other tokens", None, known)
        what = f"{thing} is missing; taken for llama-bpe, because the tokens are Llama 3's"
        warnings.warn(what, TritgoldWarning, stacklevel=2)
        return "llama-bpe"
    if name not in PRE_TOKENIZERS:
        _refuse("pre", thing, "names a rule of splitting that tritgold does not know", printable(repr(name)), known)
    return str(name)


def _llama(keys: _Keys) -> BpeTokenizer:
    fields = keys.tokens()
    tokens, special = fields["tokens"], fields["control"] | fields["user_defined"]
    key = _GGML + "scores"
    scores = keys.numbers(key, "f", len(tokens))
    if scores is None:
        _refuse("key", f"key {key!r}", "is missing", None, "a score for every token")
    normal: dict[str, float] = {}
    for index, (text, score) in enumerate(zip(tokens, scores.tolist(), strict=True)):
        if not math.isfinite(score):
            _refuse("key", f"key {key!r}", f"has no number for token {index}", score, "a finite number")
        if text is not None and index not in special and text not in _BYTES:
            normal[text] = score
    unknown = keys.take(_GGML + "unknown_token_id", int)
    if unknown is not None and unknown not in fields["control"]:
        _refuse("key", f"key '{_GGML}unknown_token_id'", "is not a control token", unknown)
    prefix = keys.flag("add_space_prefix", True)
    around = keys.around(adds_bos=True)
    return BpeTokenizer("llama", merges=merges_of(normal), unknown=unknown, space_prefix=prefix, **fields, **around)


_BYTES = frozenset(byte_token(byte) for byte in range(256))


def _refuse(what: str, thing: str, message: str, got: object = None, expected: object = None) -> NoReturn:
    hint = "give the model's tokenizer.json (--tokenizer FILE), or token ids (--ids)"
    got = printable(got) if isinstance(got, str) else got
    raise FormatError(message, kind=f"tokenizer-{what}", thing=thing, got=got, expected=expected, hint=hint)
