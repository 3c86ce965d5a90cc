"""Text to ids and back, through the ``tokenizers`` library, and a stream that never splits a character."""

from pathlib import Path
from typing import Self

from tokenizers import Tokenizer as _Tokenizer

from tritgold.errors import ContextError, FormatError


class Tokenizer:
    """A tokenizer.json. Raises FormatError when the file is missing or is not a tokenizer."""

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
        """The same from the text of a tokenizer.json. file: where the text comes from, for messages."""
        made = cls.__new__(cls)
        try:
            made._tokenizer = _Tokenizer.from_str(text)
        except Exception as error:  # the library raises bare Exception
            raise FormatError(f"holds no tokenizer: {_printable(error)}", kind="tokenizer", file=file) from error
        return made

    @property
    def ids(self) -> int:
        """The largest id that has a text, and 1: a model's vocabulary may be padded beyond it."""
        return max(self._tokenizer.get_vocab().values(), default=-1) + 1

    def token(self, number: int) -> str | None:
        """The name of a token, as a vocabulary has it; None for an id without one."""
        name = self._tokenizer.id_to_token(number)
        return None if name is None else str(name)

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Ids of the text, with the special tokens (BOS) that the tokenizer itself adds. special: whether it adds them.

        Raises FormatError for a tokenizer that says too late that it is none: one whose unknown token is not there.
        And ContextError (``text``) for half a character, as a command line of other bytes than UTF-8 has.
        """
        try:
            return list(self._tokenizer.encode(text, add_special_tokens=special).ids)
        except TypeError:  # what the library says of half a character
            at = next((n for n, letter in enumerate(text) if "\ud800" <= letter <= "\udfff"), None)
            if at is None:
                raise
            thing = f"character {at + 1} of the text"
            raise ContextError("is not Unicode", kind="text", thing=thing, got=ascii(text[at])) from None
        except Exception as error:
            if type(error) is not Exception:  # the library's are bare
                raise
            raise FormatError(f"cannot split a text: {_printable(error)}", kind="tokenizer") from error

    def decode(self, ids: list[int]) -> str:
        """Text of the ids, special tokens left out; bytes that form no character become U+FFFD.

        An id that the tokenizer does not know (a model's vocabulary may be padded) has no text. Raises ContextError
        for one that no vocabulary has: negative, or beyond 32 bits.
        """
        try:
            return str(self._tokenizer.decode(ids))
        except OverflowError:
            bad = next(i for i in ids if not 0 <= i < 2**32)
            raise ContextError("is not a token id", kind="token-id", got=bad, expected="0 to 2**32 - 1") from None


class TextStream:
    """Turns a growing list of ids into pieces of text whose concatenation is the text of the whole list.

    A character whose bytes lie in two tokens is held back until it is complete: ids are never decoded alone.
    One exception, which no stream can avoid: byte fallback (SentencePiece) turns a whole run of byte tokens into
    U+FFFD when its last bytes are invalid; characters of the run that were already shown then stay shown.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer, self._ids, self._shown = tokenizer, list[int](), 0

    def push(self, token: int) -> str:
        """The text that has become certain with this token; often a piece, sometimes empty."""
        self._ids.append(token)
        text = self._tokenizer.decode(self._ids)
        # A trailing U+FFFD may be the first bytes of a character whose last bytes are still to come.
        certain = text if not text.endswith("�") else text.rstrip("�")
        return self._advance(certain)

    def finish(self) -> str:
        """Whatever was held back: bytes that never became a character."""
        return self._advance(self._tokenizer.decode(self._ids))

    def _advance(self, text: str) -> str:
        piece, self._shown = text[self._shown :], max(self._shown, len(text))
        return piece


def _printable(error: Exception) -> str:
    """The library's words, which quote the file: escapes shown instead of obeyed, and cut where they are endless."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(error)[:200])
