r"""How byte-level BPE splits a text into pieces before the merges: llama.cpp's names and their rules.

GGUF has the rule's name in ``tokenizer.ggml.pre``; tokenizer.json has the rule itself. A wrong rule still gives tokens,
but not those of the training, so a name that is not in the table is refused. The rules are those of llama.cpp's
``src/llama-vocab.cpp``; the patterns are written as in the tokenizer.json files that they come from.

The table has only names used by ternary models. ``default`` is llama.cpp's rule of that name, which is not GPT-2's.
"""

from dataclasses import dataclass
from typing import Any

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


@dataclass(frozen=True)
class PreTokenizer:
    r"""A rule of splitting.

    splits: patterns, applied in order to every piece so far; each match and each text between matches becomes a piece.
    ignore_merges: a piece that is itself a token becomes that token without merges. adds_bos: the default for a file
    without ``add_bos_token``. nfc: the text is first normalised to NFC; llama.cpp does not do this.
    """

    splits: tuple[str, ...]
    ignore_merges: bool = False
    adds_bos: bool = False
    nfc: bool = False


_BY_RULE = {
    "gpt-2 phi-2 mpt olmo": PreTokenizer((_GPT2,)),
    "llama-bpe llama3 llama-v3 falcon3 falcon-h1": PreTokenizer((_LLAMA3,), ignore_merges=True, adds_bos=True),
    "smaug-bpe dbrx": PreTokenizer((_LLAMA3,)),
    "qwen2": PreTokenizer((_QWEN2,), nfc=True),
    "smollm starcoder refact command-r": PreTokenizer((r"\p{N}", _GPT2)),
    "falcon": PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]")),
    "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
}
PRE_TOKENIZERS = {name: rule for names, rule in _BY_RULE.items() for name in names.split()}


def pre_tokenizer_name(section: object, ignore_merges: bool, nfc: bool) -> str | None:
    """The first name with this rule; None if no name has it. section: ``pre_tokenizer`` of a tokenizer.json.

    >>> pre_tokenizer_name({"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}, False, False)
    'gpt-2'
    """
    splits = splits_of(section)
    if splits is None:
        return None
    for name, rule in PRE_TOKENIZERS.items():
        if (rule.splits, rule.ignore_merges, rule.nfc) == (splits, ignore_merges, nfc):
            return name
    return None


def splits_of(section: object) -> tuple[str, ...] | None:
    """The patterns of a byte-level ``pre_tokenizer``; None if it does anything other than split."""
    steps = _steps(section)
    if not steps or steps[-1].get("type") != "ByteLevel" or steps[-1].get("add_prefix_space", True) is not False:
        return None
    splits: list[str] = []
    for step in steps[:-1]:
        pattern = _pattern(step)
        if pattern is None:
            return None
        splits.append(pattern)
    return (*splits, _GPT2) if steps[-1].get("use_regex", True) else tuple(splits)


def _steps(section: object) -> list[dict[str, Any]]:
    if not isinstance(section, dict):
        return []
    inner = section.get("pretokenizers") if section.get("type") == "Sequence" else [section]
    return [step for step in inner if isinstance(step, dict)] if isinstance(inner, list) else []


def _pattern(step: dict[str, Any]) -> str | None:
    if step.get("type") == "Digits":
        return r"\p{N}" if step.get("individual_digits") else r"\p{N}+"
    if step.get("type") == "Split" and step.get("behavior") == "Isolated" and not step.get("invert"):
        pattern = step.get("pattern")
        regex = pattern.get("Regex") if isinstance(pattern, dict) else None
        return regex if isinstance(regex, str) else None
    return None


def pre_tokenizer_section(rule: PreTokenizer) -> dict[str, Any]:
    """The ``pre_tokenizer`` of a tokenizer.json that splits by the rule and then writes bytes as characters."""
    split = {"type": "Split", "behavior": "Isolated", "invert": False}
    steps: list[dict[str, Any]] = [{**split, "pattern": {"Regex": regex}} for regex in rule.splits]
    steps.append({"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False})
    return {"type": "Sequence", "pretokenizers": steps}


def byte_characters() -> frozenset[str]:
    """The 256 characters that GPT-2 uses for bytes: printable Latin-1 as it is, the other bytes from U+0100 on."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    return frozenset(map(chr, [*printable, *range(256, 256 + 256 - len(printable))]))
