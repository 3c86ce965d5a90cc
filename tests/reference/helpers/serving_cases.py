"""What the tests of serving share: what a request gives alone, requests that begin alike, and where every page is."""

from collections.abc import Iterable
from functools import cache

import numpy as np
from plain_diffusion import prompt_of, small_model

from tritgold.decode.autoregressive import generate
from tritgold.decode.sampling import GREEDY, Sampling
from tritgold.decode.scheduler import Scheduler
from tritgold.decode.serving_options import Request
from tritgold.kv_cache.base import KvScheme
from tritgold.kv_cache.float32 import F32
from tritgold.kv_cache.paged import PagePool
from tritgold.kv_cache.radix import RadixCache
from tritgold.model import forward
from tritgold.trace import Trace

EXACT = F32()
OPENED = small_model(3)  # 64 positions, no end of sequence
DRAWN = Sampling(temperature=6.0, top_p=0.95, repetition_penalty=1.2, seed=11)


def request(family: int, alike: int, length: int, max_tokens: int, how: Sampling = GREEDY) -> Request:
    """Of one family the first ``alike`` tokens are the same; what follows depends on all the numbers."""
    return Request((*prompt_of(family, alike), *prompt_of(family + 7 * length, length - alike)), max_tokens, how)


@cache
def alone(asked: Request, scheme: KvScheme = EXACT) -> tuple[list[int], str | None, Trace]:
    """Tokens, reason and activations: the prompt in one pass, one token after the other, a cache of its own."""
    trace, own = Trace(), scheme.cache(OPENED.config, OPENED.config.context)

    def logits(tokens: list[int]) -> np.ndarray:
        return forward(tokens, OPENED.weights, OPENED.config, own, trace, last_only=True)[-1]

    prompt, stop = list(asked.prompt), asked.stop
    steps = list(generate(prompt, OPENED.config, logits, asked.max_tokens, asked.sampling, stop))
    return [step.token for step in steps], steps[-1].reason, trace


def tail(trace: Trace, tokens: int) -> dict[str, bytes]:
    """Each array without the rows of the first ``tokens`` tokens; logits are those of the last tokens anyway."""
    rows = {
        name: array[:, tokens:] if name.endswith(".probs") else array[tokens:] for name, array in trace.arrays.items()
    }
    rows["logits"] = trace["logits"]
    return {name: array.tobytes() for name, array in rows.items()}


def assert_pages_have_one_owner(pool: PagePool, radix: RadixCache | None, held: Iterable[list[int]]) -> None:
    """Each page is free, cached or held, and only one of these; the numbers add up to the pool."""
    free = pool.allocate(pool.free_pages)
    pool.release(free[::-1])
    cached = [page for node in radix.nodes() for page in node.pages] if radix else []
    everywhere = [*free, *cached, *(page for pages in held for page in pages)]
    assert sorted(everywhere) == list(range(pool.pages))


def assert_sound(scheduler: Scheduler) -> None:
    """What must hold between two steps."""
    running, radix, pool = scheduler.running, scheduler.radix, scheduler.pool
    assert len(running) <= scheduler.serving.max_sequences
    assert_pages_have_one_owner(pool, radix, [s.cache.table[s.cache.shared :] for s in running])
    assert all(not s.cache.table for s in scheduler.waiting)
    promised = sum(s.pages_to_come for s in running)
    assert all(s.pages_to_come >= 0 for s in running)
    assert promised <= pool.free_pages + (radix.evictable_pages if radix else 0)
    if radix is None:
        return
    for node in radix.nodes():
        readers = [s for s in running if node.pages[-1] in s.cache.table[: s.cache.shared]]
        assert node.locks == len(readers)
    cached = radix.cached_pages * pool.page_size
    locked = cached - radix.evictable_pages * pool.page_size
    assert cached <= max(scheduler.serving.radix_cache_max_tokens, locked)
