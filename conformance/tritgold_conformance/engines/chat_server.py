"""A server that has chat completions alone as an engine: ``--engine 'http://HOST:PORT?chat=MESSAGE'``.

One message is asked, greedily. The judged text is the prompt that the checkpoint's own template and tokenizer make of
it, and what the server writes after it: each token that it wrote is judged after those before, by its
log-probabilities where the server shows them, otherwise by itself. The tokens of a text without ids are the likeliest
that have this text.
"""

import json
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from tritgold.checkpoint import Checkpoint
from tritgold.errors import EngineError, FormatError
from tritgold.formats.untrusted_text import printable
from tritgold.tokenizer import Tokenizer
from tritgold_conformance.chat.template import chat_ids
from tritgold_conformance.engines.http_server import HttpEngine, read_url
from tritgold_conformance.golden.reference_engine import ReferenceEngine
from tritgold_conformance.questions.evidence import Completion

WRITTEN = 40  # most tokens of the answer that is requested
TRIED = 64  # tokens that are tried for the next piece of a text, the likeliest first
LOST = "\ufffd"  # of a character that is not complete


class ChatEngine(HttpEngine):
    """A chat server, asked ``message`` once. Raises FormatError for a checkpoint without tokenizer or template."""

    def __init__(self, checkpoint: Checkpoint, message: str, *server: Any) -> None:
        super().__init__(*server)
        self._checkpoint, self._message = checkpoint, message
        text = checkpoint.tokenizer_json()
        if text is None:
            what, hint = "has no tokenizer, and a chat is text", "--tokenizer FILE gives it one"
            raise FormatError(what, kind="no-tokenizer", file=checkpoint.path, hint=hint)
        self._tokenizer = Tokenizer.from_text(text, checkpoint.path)
        self._prompt = chat_ids(checkpoint, self._tokenizer, message, None)
        self._most = min(WRITTEN, checkpoint.config.context - len(self._prompt))
        if self._most < 1:
            what = "the message leaves no room for an answer"
            raise EngineError(what, kind="engine-unknown", thing="?chat=", got=f"{len(self._prompt)} tokens")

    @cached_property
    def judged_text(self) -> list[int]:
        """The prompt, and all tokens that the server wrote but the last one: ids [tokens]."""
        return [*self._prompt, *(token for token, _ in self._answers[:-1])]

    def complete(self, tokens: list[int]) -> Completion | None:
        """What the server wrote after these; None within the prompt, and for a text that was not asked."""
        at = len(tokens) - len(self._prompt)
        return self._answers[at] if 0 <= at < len(self._answers) and tokens == self.judged_text[: len(tokens)] else None

    def seconds(self, tokens: list[int]) -> dict[str, float] | None:
        """A chat is not timed: its prompt cannot be varied as that of a completion."""
        return None

    @cached_property
    def _answers(self) -> list[Completion]:
        body = {
            "messages": [{"role": "user", "content": self._message}],
            "max_tokens": self._most,
            "temperature": 0,
            "stream": False,
        }
        body |= {"model": self._model} if self._model else {}
        answer = self._chat(body | {"logprobs": True, "top_logprobs": self._shown})
        choices = answer.get("choices") if isinstance(answer, dict) else None
        first = choices[0] if isinstance(choices, list) and choices else None
        said = first.get("message") if isinstance(first, dict) else None
        text = said.get("content") if isinstance(said, dict) else None
        if not isinstance(first, dict) or not isinstance(text, str):
            raise self._refused("the answer holds no message", got=printable(repr(answer), 200))
        logprobs = first.get("logprobs")
        entries = logprobs.get("content") if isinstance(logprobs, dict) else None
        found = list(self._shown_tokens(entries)) if isinstance(entries, list) else []
        ended = first.get("finish_reason") == "stop"
        if not found or len(found) < len(entries or []):  # a token without an id, or with the text of another one
            found = [(token, {}) for token in self._read(text, ended)]
        if not found:
            raise self._refused("the message is empty", got=printable(repr(answer), 200))
        return found[: self._most]

    def _chat(self, body: dict[str, Any]) -> Any:
        """The answer; without log-probabilities where the server refuses to show them."""
        try:
            return self._ask("POST", "/chat/completions", json.dumps(body).encode())
        except EngineError as error:
            if error.kind != "engine-status":
                raise
            plain = {name: value for name, value in body.items() if "logprobs" not in name}
            return self._ask("POST", "/chat/completions", json.dumps(plain).encode())

    def _shown_tokens(self, entries: list[Any]) -> Iterator[Completion]:
        """Token and log-probabilities of each entry, up to the first that names a token that cannot be told."""
        for entry in entries:
            token = self._id(entry)
            if token is None:
                return
            top = entry.get("top_logprobs")
            shown = {self._id(one): one.get("logprob") for one in top} if isinstance(top, list) else {}
            whole = None not in shown and all(type(value) in (int, float) for value in shown.values())
            yield token, {int(i): float(value) for i, value in shown.items() if i is not None} if whole else {}

    def _id(self, entry: Any) -> int | None:
        """By its id, as llama.cpp's server gives it, or by its text, where no other token has the same."""
        if not isinstance(entry, dict):
            return None
        if type(entry.get("id")) is int:
            return int(entry["id"])
        text = entry.get("token")
        return self._by_text.get(text) if isinstance(text, str) else None

    @cached_property
    def _by_text(self) -> dict[str, int | None]:
        """The id of each piece of text; None where several tokens have it, or where it is not a whole character."""
        before = self._piece([])
        found: dict[str, int | None] = {}
        for token in range(min(self._tokenizer.ids, self._checkpoint.config.vocab)):
            text = self._piece([token]).removeprefix(before)
            found[text] = None if text in found or LOST in text or not text else token
        return found

    def _piece(self, ids: list[int]) -> str:
        """The text of the ids as it stands in the middle of a text, where SentencePiece keeps leading spaces."""
        return self._tokenizer.decode([*self._prompt, *ids])

    def _read(self, text: str, ended: bool) -> Iterator[int]:
        """The tokens of a text: the likeliest of those that go on with it, one after the other; then the end.

        Spaces at the beginning are not compared: some servers take them away.
        """
        golden = ReferenceEngine(self._checkpoint, len(self._prompt) + self._most)
        row, ids = golden.prefill(self._prompt)[-1], list[int]()
        text = text.lstrip()
        while len(ids) < self._most:
            if self._written(ids) == text:
                ends = self._checkpoint.config.eos
                if ended and ends:
                    yield max(ends, key=lambda token: float(row[token]))
                return
            ids.append(self._next(row, ids, text))
            yield ids[-1]
            row = golden.step(ids[-1])

    def _next(self, row: np.ndarray, ids: list[int], text: str) -> int:
        known = self._piece(ids)
        for token in np.argsort(-row, kind="stable")[:TRIED].tolist():
            if self._piece([*ids, token]) != known and text.startswith(self._written([*ids, token])):
                return int(token)
        rest = self._tokenizer.encode(text.removeprefix(self._written(ids)), special=False)
        return rest[0] if rest else int(np.argmax(row))

    def _written(self, ids: list[int]) -> str:
        """What the ids have written so far, without a character that is not complete."""
        return self._piece(ids).removeprefix(self._piece([])).lstrip().rstrip(LOST)


def open_server(url: str, checkpoint: Checkpoint, seconds: float) -> HttpEngine:
    """A server of completions, or with ``?chat=MESSAGE`` one of chats. Raises EngineError for another URL."""
    server, message = read_url(url, checkpoint.config, seconds)
    engine = ChatEngine(checkpoint, message, *server) if message else HttpEngine(*server)
    engine.find_model()
    return engine
