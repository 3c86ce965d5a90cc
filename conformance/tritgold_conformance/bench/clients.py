"""Clients of a server: so many at once, each of which sends a request, waits for its whole answer, and sends the next.

Times are by the clients' clocks and include connecting.
"""

import http.client
import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Answered(NamedTuple):
    """One answer: seconds to its first token and to its end, and its number of tokens."""

    first: float
    whole: float
    tokens: int


class Load(NamedTuple):
    """All answers, and the seconds from the first request to the last answer."""

    answered: list[Answered]
    seconds: float

    @property
    def tokens(self) -> int:
        """Tokens of all answers."""
        return sum(answer.tokens for answer in self.answered)


Ask = Callable[[list[int]], Answered]


class RefusedError(Exception):
    """An answer that is not 200. retry: its Retry-After."""

    def __init__(self, status: int, retry: str | None) -> None:
        super().__init__(f"status {status}")
        self.status, self.retry = status, retry


def over_http(port: int, tokens: int) -> Ask:
    """Requests of ``tokens`` tokens to a server on this machine, with streaming: ours, or any that takes token ids.

    Greedy, and not ended at EOS. Raises RefusedError for an answer that is not 200, RuntimeError for another number of
    tokens.
    """

    def ask(prompt: list[int]) -> Answered:
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True,
                "stream_options": {"include_usage": True}}  # fmt: skip
        started, first, count = time.perf_counter(), 0.0, 0
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        try:
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            with connection.getresponse() as answer:
                if answer.status != 200:
                    raise RefusedError(answer.status, answer.getheader("retry-after"))
                for line in answer:
                    if line.startswith(b"data: {"):
                        first = first or time.perf_counter() - started
                        count = (json.loads(line[6:]).get("usage") or {}).get("completion_tokens", count)
        finally:
            connection.close()
        if count != tokens:
            raise RuntimeError(f"{count} of {tokens} tokens")
        return Answered(first, time.perf_counter() - started, count)

    return ask


def asked(ask: Ask, prompts: Sequence[list[int]], clients: int) -> Load:
    """What ``clients`` clients got that together send each prompt once. Raises the first error of one of them."""
    left, lock, answered = list(prompts), threading.Lock(), list[Answered]()
    failed: list[Exception] = []

    def client() -> None:
        while True:
            with lock:
                if not left or failed:
                    return
                prompt = left.pop()
            try:
                answer = ask(prompt)
            except Exception as error:
                failed.append(error)
                return
            with lock:
                answered.append(answer)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return Load(answered, time.perf_counter() - started)
