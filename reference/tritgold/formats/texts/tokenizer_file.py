"""tokenizer.json of the ``tokenizers`` library -> BpeTokenizer; ``texts.tokenizer_file_writer`` is the inverse.

Read strictly: anything that changes ids and that BpeTokenizer cannot express (a normaliser, a Metaspace splitter,
tokens that absorb the spaces around them) is refused, so that what is read can be written again without loss.
Ignored because they change no ids: ``trim_offsets``, the template for pairs, ``normalized`` if there is no normaliser.
"""

from typing import Any, NoReturn

from tritgold.errors import FormatError
from tritgold.formats.texts.bpe_tokenizer import MAX_TOKENS, BpeTokenizer
from tritgold.formats.texts.pre_tokenizers import (
    PRE_TOKENIZERS,
    byte_characters,
    pre_tokenizer_name,
    splits_of,
)
from tritgold.formats.texts.spm_merges import Merge
from tritgold.formats.untrusted_text import parse_json, printable

# How the library expresses SentencePiece's treatment of spaces.
SPACE = "▁"
PREPEND = {"type": "Prepend", "prepend": SPACE}
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
DECODERS = [
    {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def read_tokenizer_file(text: str, pre: str | None = None) -> BpeTokenizer:
    """Read the text of a tokenizer.json. pre: the name of its rule of splitting; None finds the name from the rule.

    Raises FormatError: ``tokenizer`` if it is not a tokenizer.json, ``tokenizer-unsupported`` for what BpeTokenizer
    cannot express, ``tokenizer-pre`` for a rule without a known name, and the kinds of BpeTokenizer.
    """
    try:
        root = parse_json(text)
    except ValueError as error:
        raise FormatError(f"is not JSON: {error}", kind="tokenizer", thing="tokenizer.json") from error
    root = _typed(root, dict, "tokenizer.json")
    model = _typed(root.get("model"), dict, "model")
    if model.get("type", "BPE") != "BPE":
        _unsupported("model", model.get("type"), "BPE")
    for key in ("truncation", "padding"):
        _neutral(root, key)
    for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        _neutral(model, key)
    ids, control, user_defined = _tokens(root, model)
    tokens: list[str | None] = [None] * (max(ids.values(), default=-1) + 1)
    for token, index in ids.items():
        tokens[index] = token
    first, last = _template(root.get("post_processor"), ids)
    merges = _merges(model)
    fields: dict[str, Any] = {"control": control, "user_defined": user_defined, "first": first, "last": last}
    if model.get("byte_fallback"):
        prefix = _llama(root)
        unknown = model.get("unk_token")
        if unknown is not None and ids.get(_typed(unknown, str, "unk_token")) not in control:
            _unsupported("unk_token", unknown, "a special token")
        unknown = None if unknown is None else ids[unknown]
        return BpeTokenizer("llama", tokens, merges, unknown=unknown, space_prefix=prefix, **fields)
    return BpeTokenizer("gpt2", tokens, merges, pre=_gpt2(root, model, merges, pre), **fields)


# ---- the parts of the file ---------------------------------------------------------------------------------------


def _tokens(root: dict[str, Any], model: dict[str, Any]) -> tuple[dict[str, int], frozenset[int], frozenset[int]]:
    """Ids by text, the ids of the control tokens, and the ids of the user-defined tokens."""
    ids: dict[str, int] = {}
    for text, token in _typed(model.get("vocab"), dict, "model.vocab").items():
        ids[text] = _id(token, text)
    control, user_defined = set[int](), set[int]()
    for added in _typed(root.get("added_tokens") or [], list, "added_tokens"):
        added = _typed(added, dict, "added_tokens")
        text = _typed(added.get("content"), str, "added_tokens: content")
        token = _id(added.get("id"), text)
        if ids.setdefault(text, token) != token:
            raise FormatError("has two ids", kind="tokenizer", thing=printable(f"token {text!r}"), got=token)
        for key in ("single_word", "lstrip", "rstrip", *(["normalized"] if model.get("byte_fallback") else [])):
            if added.get(key):
                _unsupported(printable(f"added token {text!r}: {key}"), True, False)
        (control if added.get("special") else user_defined).add(token)
    try:
        "".join(ids).encode()
    except UnicodeEncodeError as error:
        raise FormatError(
            "is not Unicode text", kind="tokenizer", thing="a token", got=ascii(error.object)[:80]
        ) from None
    if len(set(ids.values())) < len(ids):
        raise FormatError("one id has two texts", kind="tokenizer", thing="model.vocab, added_tokens")
    return ids, frozenset(control), frozenset(user_defined)


def _id(value: object, text: str) -> int:
    if type(value) is not int or not 0 <= value < MAX_TOKENS:
        thing = printable(f"id of token {text!r}")
        raise FormatError("is not an id", kind="tokenizer", thing=thing, got=printable(repr(value)))
    return value


def _merges(model: dict[str, Any]) -> list[Merge]:
    """The merges as pairs; older files write each pair as one text with a space between."""
    found: list[Merge] = []
    for merge in _typed(model.get("merges"), list, "model.merges"):
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(p, str) and p for p in parts):
            raise FormatError("is not a pair", kind="tokenizer", thing="model.merges", got=printable(repr(merge)))
        found.append((parts[0], parts[1]))
    return found


def _gpt2(root: dict[str, Any], model: dict[str, Any], merges: list[Merge], pre: str | None) -> str:
    """The name of a byte-level tokenizer's rule of splitting."""
    decoder = root.get("decoder")
    if not isinstance(decoder, dict) or decoder.get("type") != "ByteLevel":
        _unsupported("decoder", decoder, "ByteLevel, or BPE with byte_fallback")
    if model.get("unk_token") is not None and not byte_characters() <= set(model["vocab"]):
        _unsupported("unk_token", model["unk_token"], "none, or a token for each of the 256 bytes")
    if pre is not None:
        if pre not in PRE_TOKENIZERS:
            _unknown_pre(pre)
        return pre
    normalizer = root.get("normalizer")
    if isinstance(normalizer, dict) and normalizer.get("type") == "Sequence":
        inner = normalizer.get("normalizers")
        normalizer = (inner[0] if len(inner) == 1 else inner or None) if isinstance(inner, list) else inner
    if normalizer not in (None, {"type": "NFC"}):
        _unsupported("normalizer", normalizer, "none, or NFC")
    section, whole = root.get("pre_tokenizer"), bool(model.get("ignore_merges"))
    name = pre_tokenizer_name(section, whole, normalizer is not None)
    if name is None and not merges and not whole and normalizer is None and splits_of(section) is not None:
        name = "gpt-2"  # without merges every token is one byte, so the splits make no difference
    return name or _unknown_pre(section)


def _llama(root: dict[str, Any]) -> bool:
    """Whether a SentencePiece-like tokenizer puts a space before the text (``space_prefix``)."""
    normalizer, decoder = root.get("normalizer"), root.get("decoder")
    if root.get("pre_tokenizer") is not None:
        hint = "llama.cpp puts a space after every special token and before a space; Metaspace does not"
        _unsupported("pre_tokenizer", root["pre_tokenizer"], "none: Prepend and Replace as normaliser", hint)
    steps = normalizer.get("normalizers") if isinstance(normalizer, dict) else None
    if steps is None:
        steps = [normalizer]
    if steps not in ([PREPEND, REPLACE], [REPLACE]):
        _unsupported("normalizer", normalizer, "Replace of spaces, with or without Prepend")
    prefix = steps != [REPLACE]
    expected = [*DECODERS, STRIP] if prefix else DECODERS
    if not isinstance(decoder, dict) or decoder.get("decoders") != expected:
        _unsupported("decoder", decoder, "Replace, ByteFallback, Fuse" + (", Strip" if prefix else ""))
    return prefix


def _template(section: object, ids: dict[str, int]) -> tuple[int | None, int | None]:
    """The ids that a post-processor puts before and after a text."""
    steps = [section]
    if isinstance(section, dict) and section.get("type") == "Sequence":
        steps = _typed(section.get("processors"), list, "post_processor")
    around: tuple[int | None, int | None] = (None, None)
    for step in steps:
        kind = step.get("type") if isinstance(step, dict) else step
        if kind == "TemplateProcessing" and around == (None, None):
            around = _around(_typed(step, dict, "post_processor"), ids)
        elif kind not in (None, "ByteLevel"):  # ByteLevel changes only offsets
            _unsupported("post_processor", kind, "one TemplateProcessing")
    return around


def _around(step: dict[str, Any], ids: dict[str, int]) -> tuple[int | None, int | None]:
    names: list[str | None] = []  # None stands for the text
    for item in _typed(step.get("single"), list, "post_processor: single"):
        item = _typed(item, dict, "post_processor: single")
        special = item.get("SpecialToken")
        names.append(_typed(special.get("id"), str, "post_processor: id") if isinstance(special, dict) else None)
    at = names.index(None) if None in names else -1
    if names.count(None) != 1 or at > 1 or len(names) - at > 2:
        _unsupported("post_processor", names, "the text, with at most one token before and one after it")
    tokens = [None if name is None else _template_id(step, name, ids) for name in names]
    return tokens[0] if at == 1 else None, tokens[-1] if len(names) - at == 2 else None


def _template_id(step: dict[str, Any], name: str, ids: dict[str, int]) -> int:
    described = _typed(step.get("special_tokens"), dict, "post_processor: special_tokens").get(name)
    listed = described.get("ids") if isinstance(described, dict) else None
    if not isinstance(listed, list) or listed != [ids.get(name)]:
        _unsupported(printable(f"post_processor: token {name!r}"), listed, [ids.get(name)])
    return ids[name]


# ---- refusals ----------------------------------------------------------------------------------------------------


def _typed(value: object, kind: type, where: str) -> Any:
    if not isinstance(value, kind):
        thing, got = f"tokenizer.json: {where}", type(value).__name__
        raise FormatError("has the wrong type", kind="tokenizer", thing=thing, got=got, expected=kind.__name__)
    return value


def _neutral(section: dict[str, Any], key: str) -> None:
    if section.get(key):
        _unsupported(key, section[key], "none")


def _unsupported(where: str, got: object, expected: object, hint: str | None = None) -> NoReturn:
    raise FormatError(
        "is not supported",
        kind="tokenizer-unsupported",
        thing=f"tokenizer.json: {where}",
        got=printable(repr(got)),
        expected=expected,
        hint=hint,
    )


def _unknown_pre(got: object) -> NoReturn:
    raise FormatError(
        "splits text by a rule without a name that tritgold knows",
        kind="tokenizer-pre",
        thing="tokenizer.json: pre_tokenizer",
        got=printable(repr(got)),
        expected=", ".join(PRE_TOKENIZERS),
    )
