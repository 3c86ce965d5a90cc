"""How fast a server is with several clients at once, over HTTP and by direct calls of the same core.

A client sends a request, waits for the whole answer, and sends the next one. Times are by the clients' clocks and
include connecting. Prompts differ, so that no cache has them; answers are greedy and do not end at EOS.
"""

import http.client
import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tritgold.decode.serving_options import Request
from tritgold_conformance.serving.choosing import Chooser, Choosing
from tritgold_conformance.serving.core import Event, Job
from tritgold_conformance.serving.service import Service

CLIENTS = (1, 4, 16)


class Answered(NamedTuple):
    """One answer: seconds to its first token and to its end, and its number of tokens."""

    first: float
    whole: float
    tokens: int


Ask = Callable[[list[int]], Answered]


class RefusedError(Exception):
    """An answer that is not 200. retry: its Retry-After."""

    def __init__(self, status: int, retry: str | None) -> None:
        super().__init__(f"status {status}")
        self.status, self.retry = status, retry


def over_http(port: int, tokens: int) -> Ask:
    """Requests of ``tokens`` tokens to a server on this machine, with streaming: ours, or any that takes token ids.

    Raises RefusedError for an answer that is not 200, RuntimeError for another number of tokens.
    """

    def ask(prompt: list[int]) -> Answered:
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True,
                "stream_options": {"include_usage": True}}  # fmt: skip
        started, first, count = time.perf_counter(), 0.0, 0
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        try:
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
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


def directly(service: Service, tokens: int) -> Ask:
    """Requests of ``tokens`` tokens to the core, without HTTP, JSON and texts."""

    def ask(prompt: list[int]) -> Answered:
        started, times, ended = time.perf_counter(), list[float](), threading.Event()

        def hear(event: Event) -> None:
            if event.kind == "token":
                times.append(time.perf_counter() - started)
            elif event.kind in ("ended", "refused"):
                ended.set()

        chooser = Chooser(Choosing(), service.config, prompt)
        service.core.submit([Job(Request(prompt, tokens, stop=(), choose=chooser.choose), chooser, hear)])
        ended.wait()
        return Answered(times[0], time.perf_counter() - started, len(times))

    return ask


def load(ask: Ask, prompts: Sequence[list[int]], clients: int) -> dict[str, Any]:
    """Times of ``clients`` clients that together send each prompt once: seconds, and tokens/s of all together."""
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
    seconds = time.perf_counter() - started
    whole, first = ([getattr(one, name) for one in answered] for name in ("whole", "first"))
    p50, p95, p99 = np.percentile(whole, [50, 95, 99]).tolist()
    return {
        "clients": clients,
        "requests": len(answered),
        "seconds": seconds,
        "tokens_per_second": sum(one.tokens for one in answered) / seconds,
        "first_token_p50": float(np.median(first)),
        "first_token_p95": float(np.percentile(first, 95)),
        "first_token_p99": float(np.percentile(first, 99)),
        "first_token_min": min(first),
        "p50": p50,
        "p95": p95,
        "p99": p99,
        "min": min(whole),
    }


def benchmark(service: Service, port: int, prompt: list[int], requests: int, tokens: int) -> list[dict[str, Any]]:
    """A row for each number of CLIENTS, over HTTP and directly; each prompt is a different token and ``prompt``."""
    vocab, rows = service.config.vocab, list[dict[str, Any]]()
    turns = iter(range(1 << 30))

    def some(count: int) -> list[list[int]]:
        return [[n % vocab, *prompt] for n in (next(turns) for _ in range(count))]

    for name, ask in (("http", over_http(port, tokens)), ("direct", directly(service, tokens))):
        load(ask, some(2), 1)  # so that all programs are compiled before they are timed
        rows += [{"way": name, **load(ask, some(requests), clients)} for clients in CLIENTS]
    return rows
