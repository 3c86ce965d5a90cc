"""How fast a server is with several clients at once, over HTTP and by direct calls of the same core.

Prompts differ, so that no cache has them; answers are greedy and do not end at EOS.
"""

import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from tritgold.decode.serving_options import Request
from tritgold_conformance.bench.clients import Answered, Ask, asked, over_http
from tritgold_conformance.serving.choosing import Chooser, Choosing
from tritgold_conformance.serving.core import Event, Job
from tritgold_conformance.serving.service import Service

CLIENTS = (1, 4, 16)


def directly(service: Service, tokens: int) -> Ask:
    """Requests of ``tokens`` tokens to the core, without HTTP, JSON and texts.

    Raises RuntimeError for another number of tokens.
    """

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
        if len(times) != tokens:
            raise RuntimeError(f"{len(times)} of {tokens} tokens")
        return Answered(times[0], time.perf_counter() - started, len(times))

    return ask


def load(ask: Ask, prompts: Sequence[list[int]], clients: int) -> dict[str, Any]:
    """Times of ``clients`` clients that together send each prompt once: seconds, and tokens/s of all together."""
    done = asked(ask, prompts, clients)
    whole, first = ([getattr(one, name) for one in done.answered] for name in ("whole", "first"))
    p50, p95, p99 = np.percentile(whole, [50, 95, 99]).tolist()
    return {
        "clients": clients,
        "requests": len(done.answered),
        "seconds": done.seconds,
        "tokens_per_second": done.tokens / done.seconds,
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
