"""Text that becomes other tokens, and tokens that become other text."""

from collections.abc import Callable

from registry import faulty, made
from text_engine import Speaking

KIND = "tokenizer"


def _plain(self: Speaking, text: str) -> list[int]:
    return self.tokenizer.encode(text, add_special_tokens=False).ids


for _name, _what, _change in [
    ("NoBos", "encode puts no BOS in front", _plain),
    ("TwoBos", "encode puts BOS in front twice", lambda s, t: [s.config["bos_token_id"], *Speaking.encode(s, t)]),
    ("EosAfter", "encode puts an end of sequence after", lambda s, t: [*Speaking.encode(s, t), 1]),
    ("LeadingSpaceLost", "encode strips the text", lambda s, t: Speaking.encode(s, t.strip())),
    ("SpaceInFront", "encode puts a space in front", lambda s, t: Speaking.encode(s, " " + t)),
    ("NotMerged", "encode makes one token of each byte", lambda s, t: [0, *(i for c in t for i in _plain(s, c))]),
    ("LowerCase", "encode reads lower case only", lambda s, t: Speaking.encode(s, t.lower())),
    (
        "Composed",
        "encode drops all but ASCII",
        lambda s, t: Speaking.encode(s, t.encode("ascii", "ignore").decode()),
    ),
    ("LinesFolded", "encode folds runs of spaces and lines", lambda s, t: Speaking.encode(s, " ".join(t.split()))),
]:
    faulty(KIND, _what, model="kjv-ar")(made(_name, Speaking, encode=_change))


@faulty(
    KIND,
    "encode splits digits",
    model="kjv-ar",
    unseen="no token of this vocabulary has a digit or a space beside another one, so that all pieces come out alike",
)
class DigitsApart(Speaking):
    def encode(self, text: str) -> list[int]:
        return [0, *(i for piece in _digits(text) for i in _plain(self, piece))]


def _digits(text: str) -> list[str]:
    pieces = [""]
    for letter in text:
        if letter.isdigit():
            pieces += [letter, ""]
        else:
            pieces[-1] += letter
    return [piece for piece in pieces if piece]


def _chat(what: str) -> Callable[[Speaking, str], list[int]]:
    return lambda self, message: self.chat_as(what, message)


for _name, _what, _template in [
    ("ChatWithoutRole", "chat leaves the roles out", "{}<eot>"),
    ("ChatWithoutAnswer", "chat does not open the answer", "User: {}<eot>"),
    ("ChatTrailingSpaceLost", "chat loses the space after the colon", "User: {}<eot>Assistant:"),
]:
    faulty(KIND, _what, model="kjv-ar")(made(_name, Speaking, chat=_chat(_template)))


@faulty(KIND, "stream shows halves of characters", model="kjv-ar")
class HalfCharacters(Speaking):
    def stream(self, ids: list[int]) -> list[str]:
        return [self.bytes_of(i).decode("utf-8", "replace") for i in ids]


@faulty(KIND, "stream drops what is not a whole character", model="kjv-ar")
class DroppedCharacters(Speaking):
    def stream(self, ids: list[int]) -> list[str]:
        return [text for i in ids if (text := self.bytes_of(i).decode("utf-8", "ignore"))]


@faulty(KIND, "stream returns one text for everything", model="kjv-ar")
class NotStreamed(Speaking):
    def stream(self, ids: list[int]) -> list[str]:
        return ["".join(Speaking.stream(self, ids))]


@faulty(KIND, "stream strips each piece", model="kjv-ar")
class StrippedPieces(Speaking):
    def stream(self, ids: list[int]) -> list[str]:
        return [piece.strip() for piece in Speaking.stream(self, ids) if piece.strip()]
