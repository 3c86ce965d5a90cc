"""Text to ids and back with the ``tokenizers`` library, and a text stream that never splits a character."""

from pathlib import Path
from typing import Self

from tokenizers import Tokenizer as _Tokenizer

from tritgold.errors import ContextError, FormatError

LONG = 10_000  # characters of a text that takes milliseconds


class Tokenizer:
    """A tokenizer.json. Raises FormatError if the file is missing (``no-tokenizer``) or invalid (``tokenizer``)."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise FormatError(
                "does not exist",
                kind="no-tokenizer",
                file=path,
                hint="pass token ids (--ids 1,2,3), or a tokenizer.json with --tokenizer",
            )
        try:
            self._tokenizer = _Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise FormatError(f"is not a tokenizer: {_printable(error)}", kind="tokenizer", file=path) from error

    @classmethod
    def from_text(cls, text: str, file: Path | None = None) -> Self:
        """A Tokenizer from the text of a tokenizer.json. file: the text's source, for messages."""
        made = cls.__new__(cls)
        try:
            made._tokenizer = _Tokenizer.from_str(text)
        except Exception as error:  # the library raises bare Exception
            raise FormatError(f"holds no tokenizer: {_printable(error)}", kind="tokenizer", file=file) from error
        return made

    @property
    def ids(self) -> int:
        """The largest id with a text, plus 1. A model's vocabulary may be padded beyond it."""
        return max(self._tokenizer.get_vocab().values(), default=-1) + 1

    def token(self, number: int) -> str | None:
        """A token's text in the vocabulary; None for an unknown id."""
        name = self._tokenizer.id_to_token(number)
        return None if name is None else str(name)

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Ids of the text. special: whether the tokenizer adds its special tokens (BOS).

        Raises FormatError for a tokenizer that turns out to be invalid only now (its unknown token is missing), and
        ContextError (``text``) for a lone surrogate, which a command line that is not UTF-8 gives.
        """
        try:
            if len(text) < LONG:
                return list(self._tokenizer.encode(text, add_special_tokens=special).ids)
            # Of the library's methods only this one lets other threads work meanwhile.
            (encoded,) = self._tokenizer.encode_batch([text], add_special_tokens=special)
            return list(encoded.ids)
        except TypeError:  # raised by the library for a lone surrogate
            at = next((n for n, letter in enumerate(text) if "\ud800" <= letter <= "\udfff"), None)
            if at is None:
                raise
            thing = f"character {at + 1} of the text"
            raise ContextError("is not Unicode", kind="text", thing=thing, got=ascii(text[at])) from None
        except Exception as error:
            if type(error) is not Exception:  # the library raises bare Exception
                raise
            raise FormatError(f"cannot split a text: {_printable(error)}", kind="tokenizer") from error

    def decode(self, ids: list[int]) -> str:
        """Text of the ids, without special tokens; bytes that are not a character become U+FFFD.

        An unknown id gives no text, because a model's vocabulary may be padded. Raises ContextError for an impossible
        id: negative, or beyond 32 bits.
        """
        try:
            return str(self._tokenizer.decode(ids))
        except OverflowError:
            bad = next(i for i in ids if not 0 <= i < 2**32)
            raise ContextError("is not a token id", kind="token-id", got=bad, expected="0 to 2**32 - 1") from None


class TextStream:
    """Turns a growing list of ids into pieces of text whose concatenation is the text of the whole list.

    A character whose bytes are in two tokens is held back until it is complete: the whole list is always decoded.
    One exception is unavoidable: byte fallback (SentencePiece) turns a whole run of byte tokens into
    U+FFFD if its last bytes are invalid; characters of the run that were already returned cannot be taken back.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer, self._ids, self._shown = tokenizer, list[int](), 0

    def push(self, token: int) -> str:
        """The new text that is certain after this token; may be empty."""
        self._ids.append(token)
        text = self._tokenizer.decode(self._ids)
        # A trailing U+FFFD may be the first bytes of a character whose last bytes are in later tokens.
        certain = text if not text.endswith("�") else text.rstrip("�")
        return self._advance(certain)

    def finish(self) -> str:
        """The text that was held back: bytes that did not become a character, as U+FFFD."""
        return self._advance(self._tokenizer.decode(self._ids))

    def _advance(self, text: str) -> str:
        piece, self._shown = text[self._shown :], max(self._shown, len(text))
        return piece


def _printable(error: Exception) -> str:
    """The library's message, which quotes the file: control characters escaped, at most 200 characters."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(error)[:200])
