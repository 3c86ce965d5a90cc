"""From tokens to text that may be sent: only complete characters, and nothing that may become part of a stop text."""

from collections.abc import Sequence

from tritgold.tokenizer import TextStream, Tokenizer


class TextPieces:
    """The text of one answer as it grows. text: everything sent so far; it stays empty without a tokenizer.

    stopped: whether a stop text has occurred; the text ends before it.
    """

    def __init__(self, tokenizer: Tokenizer | None, stops: Sequence[str] = ()) -> None:
        self._stream = None if tokenizer is None else TextStream(tokenizer)
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.text, self.stopped = "", False

    def push(self, token: int) -> str:
        """Add a token; returns the text that may be sent now."""
        return "" if self._stream is None or self.stopped else self._show(self._stream.push(token), last=False)

    def finish(self) -> str:
        """No more tokens: returns the text that was held back."""
        return "" if self._stream is None or self.stopped else self._show(self._stream.finish(), last=True)

    def _show(self, piece: str, last: bool) -> str:
        held = self._held + piece
        found = [at for stop in self._stops if (at := held.find(stop)) >= 0]
        if found:
            self.stopped = True
            certain = min(found)
        else:
            certain = len(held) if last else len(held) - self._undecided(held)
        shown, self._held = held[:certain], held[certain:]
        self.text += shown
        return shown

    def _undecided(self, held: str) -> int:
        """How many characters at the end may be the beginning of a stop text.

        >>> TextPieces(None, ["abc", "bcd"])._undecided("xxab")
        2
        """
        longest = max((len(stop) - 1 for stop in self._stops), default=0)
        sizes = range(min(longest, len(held)), 0, -1)
        return next((n for n in sizes if any(stop.startswith(held[-n:]) for stop in self._stops)), 0)


class TokenTexts:
    """The texts of single tokens, and names for them in log-probabilities."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer
        self._known: dict[int, str] = {}

    def text(self, token: int) -> str:
        """The text of a token; "" without a tokenizer; with U+FFFD if it is part of a character."""
        if token not in self._known:
            self._known[token] = "" if self._tokenizer is None else self._tokenizer.decode([token])
        return self._known[token]

    def name(self, token: int, by_id: bool = False) -> str:
        """Its text if that is complete; otherwise, and with ``by_id``, ``token_id:N`` like vLLM."""
        text = self.text(token)
        return f"token_id:{token}" if by_id or not text or "\ufffd" in text else text

    def names(self, tokens: Sequence[int], by_id: bool = False) -> list[str]:
        """Different names for several tokens: of tokens with the same text, all but the first are named by id."""
        seen, found = set[str](), list[str]()
        for token in tokens:
            name = self.name(token, by_id)
            name = name if name not in seen else self.name(token, by_id=True)
            seen.add(name)
            found.append(name)
        return found
