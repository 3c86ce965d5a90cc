"""BpeTokenizer: a tokenizer with what both tokenizer.json and GGUF metadata can express, checked for consistency."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NoReturn

from tritgold.errors import FormatError
from tritgold.formats.texts.spm_merges import Merge
from tritgold.formats.untrusted_text import first_repeated, printable

Kind = Literal["gpt2", "llama"]
MAX_TOKENS = 1 << 20  # four times the largest vocabulary seen


@dataclass(frozen=True)
class BpeTokenizer:
    """A BPE tokenizer.

    kind: ``gpt2``, byte-level BPE, or ``llama``, SentencePiece's BPE with byte fallback (GGUF's names).
    tokens: text by id; None if the id has no token, mostly at the end of a padded vocabulary.
    control: ids of special tokens, which are found in a text first and are left out of decoded text.
    user_defined: ids of tokens that are found first as well but stay in decoded text.
    unknown: ``llama`` only, the id for text that no token covers; also in control.
    merges: best first. pre: ``gpt2`` only, a name in PRE_TOKENIZERS. space_prefix: ``llama`` only, whether a space is
    put before the text and after every special token. first, last: ids put before and after every text, or None.

    Raises FormatError: ``tokenizer-tokens`` for an id out of range, a text with two ids, or missing byte tokens;
    ``tokenizer-merges`` for a merge whose parts or result are not tokens.
    """

    kind: Kind
    tokens: Sequence[str | None]
    merges: Sequence[Merge]
    control: frozenset[int] = frozenset()
    user_defined: frozenset[int] = frozenset()
    unknown: int | None = None
    pre: str = "default"
    space_prefix: bool = False
    first: int | None = None
    last: int | None = None
    ids: dict[str, int] = field(init=False, repr=False, compare=False)  # id by text

    def __post_init__(self) -> None:
        if (twice := first_repeated(t for t in self.tokens if t is not None)) is not None:
            _refuse("tokens", f"token {printable(repr(twice))}", "occurs twice")
        object.__setattr__(self, "ids", {text: i for i, text in enumerate(self.tokens) if text is not None})
        named = (("unknown token", self.unknown), ("token before the text", self.first), ("token after", self.last))
        for what, token in (*named, *(("special token", t) for t in self.control | self.user_defined)):
            if token is not None and not (0 <= token < len(self.tokens) and self.tokens[token] is not None):
                _refuse("tokens", f"{what} {token}", "is not a token of the vocabulary", len(self.tokens))
        for merge in self.merges:
            for part in (*merge, "".join(merge)):
                if part not in self.ids:
                    _refuse("merges", f"merge {printable(merge)}", "names a token that there is not", part)
        missing = [b for b in range(256) if byte_token(b) not in self.ids] if self.kind == "llama" else []
        if missing:
            _refuse("tokens", f"byte token {byte_token(missing[0])}", "is missing")

    def normal(self) -> dict[str, int]:
        """Text -> id of the tokens that only merges produce: no special tokens and, for ``llama``, no byte tokens."""
        special = self.control | self.user_defined
        found = {text: token for text, token in self.ids.items() if token not in special}
        if self.kind == "llama":
            for byte in range(256):
                found.pop(byte_token(byte), None)
        return found


def byte_token(byte: int) -> str:
    """The token for one byte.

    >>> byte_token(10)
    '<0x0A>'
    """
    return f"<0x{byte:02X}>"


def _refuse(what: str, thing: str, message: str, got: object = None) -> NoReturn:
    shown = got if got is None or isinstance(got, int) else printable(repr(got))
    raise FormatError(message, kind=f"tokenizer-{what}", thing=thing, got=shown)
