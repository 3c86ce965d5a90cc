"""A server as an engine: ``--engine http://HOST:PORT``, OpenAI-style completions with log-probabilities.

One request for each prefix of the input: the prompt as token ids, greedy, one new token. A server shows only the most
likely tokens, so the levels before next tokens are not assessed. Only http to the given host; no redirects, no proxies.
"""

import http.client
import itertools
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tritgold.config import ModelConfig
from tritgold.errors import EngineError
from tritgold.formats.untrusted_text import parse_json, printable
from tritgold_conformance.contract.clock import median_seconds
from tritgold_conformance.engines.completion_answers import (
    UnreadableError,
    first_choice,
    generated_tokens,
    next_token,
)

SHOWN = 20  # requested log-probabilities: the default maximum of vLLM
ENTRY = 500  # bytes of an answer for each log-probability, more than any server needs
SPARE = 1 << 20
STEPS = 16  # tokens by which decoding is timed
STATUS_KIND = "engine-status"
FORM = "http://HOST:PORT[/PATH][?model=NAME&logprobs=N&chat=MESSAGE]"


class HttpEngine:
    """A completion server. seconds: for one answer, from connecting to its last byte."""

    name = "http"
    timed = False  # calls are not timed: ``seconds`` times its answers
    clock = "judge"

    def __init__(self, host: str, port: int, path: str, model: str, shown: int, seconds: float, vocab: int) -> None:
        self._host, self._port, self._path, self._model = host, port, path, model
        self._shown, self._seconds, self._vocab = min(shown, vocab), seconds, vocab
        self._thing = f"engine http://{host}:{port}"
        self._server = ""

    def versions(self) -> dict[str, str]:
        """The name of the server software and of the model, if known."""
        said = {"server": self._server, "model": self._model}
        return {key: value for key, value in said.items() if value}

    def complete(self, tokens: list[int]) -> tuple[int, dict[int, float]] | None:
        """The generated token, and the log-probabilities that the server shows. None if the server shows none.

        llama.cpp shows none if the token is part of a character. Raises EngineError if the answer is not a completion.
        """
        # return_tokens_as_token_ids is an option of vLLM; other servers ignore it.
        answer = self._completion(tokens, 1, logprobs=self._shown, return_tokens_as_token_ids=True)
        shown = answer
        try:
            shown = first_choice(answer).get("logprobs")
            return next_token(shown)
        except UnreadableError as error:
            raise self._refused(str(error), got=printable(repr(shown), 200)) from None

    def write(self, tokens: list[int], count: int) -> str:
        """The text that it generates after these, greedily, at most ``count`` tokens. Raises EngineError if none."""
        answer, text = self._completion(tokens, count), None
        with suppress(UnreadableError):
            text = first_choice(answer).get("text")
        if not isinstance(text, str):
            raise self._refused("the answer holds no text", got=printable(repr(answer), 200))
        return text

    def seconds(self, tokens: list[int]) -> dict[str, float] | None:
        """By the judge's clock, medians of RUNS answers, including connection and sampling.

        ``prefill``: one answer with one token. The tokens are rotated for each run, so that no prefix cache helps.
        ``step``: the additional time of STEPS more tokens, divided by the number of additional tokens that the server
        reports (``usage``); missing if it reports none.
        """
        turned = itertools.count()

        def read() -> None:
            first = next(turned) % len(tokens)
            self._completion([*tokens[first:], *tokens[:first]], 1)

        written: list[int] = []

        def write() -> None:
            answer = self._completion(tokens, 1 + STEPS, ignore_eos=True)
            written.append(generated_tokens(answer, 1 + STEPS))

        found = {"prefill": median_seconds(read)}
        more = median_seconds(write) - median_seconds(lambda: self._completion(tokens, 1))
        if min(written) > 1 and more > 0:
            found["step"] = more / (min(written) - 1)
        return found

    def _completion(self, tokens: list[int], count: int, **options: Any) -> Any:
        body = {"prompt": tokens, "max_tokens": count, "temperature": 0, "stream": False, **options}
        if self._model:
            body["model"] = self._model
        return self._ask("POST", "/completions", json.dumps(body).encode())

    def find_model(self) -> None:
        """Use the first model that the server lists, if no model was named: some servers require a name."""
        if self._model:
            return
        try:
            listed = self._ask("GET", "/models", None)
            self._model = printable(str(listed["data"][0]["id"]))
        except (EngineError, LookupError, TypeError):
            self._model = ""  # it lists none; the first completion shows whether it needs one

    def _ask(self, method: str, what: str, body: bytes | None) -> Any:
        """The JSON of one answer, within the limits of time and size."""
        limit = SPARE + ENTRY * self._shown
        connection = http.client.HTTPConnection(self._host, self._port, timeout=self._seconds)
        late = threading.Event()
        try:
            connection.connect()
            with _deadline(connection.sock, self._seconds, late):
                connection.request(method, self._path + what, body, {"Content-Type": "application/json"})
                with connection.getresponse() as response:
                    self._server = printable(response.getheader("Server") or "")
                    raw, status = _read(response, limit + 1), response.status
        except (OSError, http.client.HTTPException, ValueError) as error:
            if late.is_set() or isinstance(error, TimeoutError):
                raise self._late() from None
            what = f"gives no answer: {type(error).__name__}: {printable(error)}"
            raise EngineError(what, kind="engine-http", thing=self._thing) from None
        finally:
            connection.close()
        if late.is_set():
            raise self._late()
        if len(raw) > limit:
            raise EngineError("answers too much", kind="engine-output-size", thing=self._thing, expected=limit)
        if status != 200:
            raise self._status(method, what, status, printable(raw[:300].decode(errors="replace")))
        try:
            return parse_json(raw.decode())
        except ValueError as error:
            raise self._refused(f"the answer is not JSON: {printable(error)}") from None

    def _status(self, method: str, what: str, status: int, text: str) -> EngineError:
        """The error for another status, which a server with only chat completions gives too."""
        said = f"answers {method} {what} with status {status}: {text}"
        hint = "docs/judging.md#a-server"
        if (what, status) in (("/completions", 404), ("/completions", 405), ("/completions", 501)):
            hint = f"?chat=MESSAGE judges a server that has chat completions alone; {hint}"
        return EngineError(said, kind=STATUS_KIND, thing=self._thing, hint=hint)

    def _late(self) -> EngineError:
        what = f"took longer than {self._seconds:g} s"
        return EngineError(what, kind="engine-timeout", thing=self._thing, hint="--timeout allows more")

    def _refused(self, message: str, got: object = None) -> EngineError:
        return EngineError(message, kind="engine-output", thing=self._thing, got=got, hint="docs/judging.md#a-server")


def _read(response: http.client.HTTPResponse, most: int) -> bytes:
    """The body, at most ``most`` bytes. In pieces, because ``read`` has no limit for a chunk of length -1."""
    raw = bytearray()
    while len(raw) < most and (piece := response.read1(most - len(raw))):
        raw += piece
    return bytes(raw)


Server = tuple[str, int, str, str, int, float, int]


def read_url(url: str, config: ModelConfig, seconds: float) -> tuple[Server, str]:
    """What HttpEngine is made of, and the message of ``?chat=``, empty if there is none.

    Options of ``http://HOST:PORT`` are ``?model=NAME&logprobs=N&chat=MESSAGE``. Raises EngineError for another URL.
    """
    try:
        parts = urlsplit(url)
        options = parse_qs(parts.query, strict_parsing=bool(parts.query))
        port, shown = parts.port or 80, int(options.pop("logprobs", [str(SHOWN)])[0])
        model, chat = options.pop("model", [""])[0], options.pop("chat", [""])[0]
    except ValueError:
        parts, options, port, shown, model, chat = urlsplit("x:"), {}, 0, 0, "", ""
    if parts.scheme != "http" or not parts.hostname or parts.username is not None or options or shown < 1:
        raise EngineError("is not a server", kind="engine-unknown", thing=f"engine {url}", expected=FORM)
    path = parts.path.rstrip("/")
    path = path if path.endswith("/v1") else path + "/v1"
    return (parts.hostname, port, path, model, shown, seconds, config.vocab), chat


@contextmanager
def _deadline(connected: socket.socket, seconds: float, late: threading.Event) -> Iterator[None]:
    """Close the connection after so many seconds, and set ``late``.

    The socket's own time-out starts again with each byte, so a server that sends one byte a minute would never end.
    """

    def hang_up() -> None:
        late.set()
        with suppress(OSError):  # the server has closed it already
            connected.shutdown(socket.SHUT_RDWR)

    watch = threading.Timer(seconds, hang_up)
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()
        watch.join()
        connected.close()
