"""Several prompts together, as in a batch server: by the scheduler, or with known defects of servers."""

import time
from dataclasses import asdict
from typing import Any

import click

from tritgold.checkpoint import Checkpoint
from tritgold.decode.autoregressive import check_limits
from tritgold.decode.sampling import GREEDY
from tritgold.decode.scheduler import Scheduler
from tritgold.decode.server_defects import ServerDefect, served
from tritgold.decode.serving_options import Counters, Outcome, Request, Serving
from tritgold.tokenizer import Tokenizer
from tritgold_conformance.commands import backends
from tritgold_conformance.commands.decoding import Decoding
from tritgold_conformance.commands.decoding_options import SERVER_DEFECTS
from tritgold_conformance.commands.generation import of_scheme, xla_engine
from tritgold_conformance.serving.xla_scheduler import XlaScheduler

Report = dict[str, Any]


def is_batch(prompts: list[list[int]], decoding: Decoding) -> bool:
    """Whether a batch server is needed: for several prompts, or if its sizes or defects are given."""
    asked = (decoding.max_sequences, decoding.chunk, decoding.radix_cache)
    return len(prompts) > 1 or asked != (None, None, None) or bool(set(decoding.defect).intersection(SERVER_DEFECTS))


def serve_prompts(
    checkpoint: Checkpoint,
    prompts: list[list[int]],
    tokenizer: Tokenizer | None,
    max_tokens: int,
    backend: str,
    decoding: Decoding,
) -> Report:
    """The texts of all prompts, in order, and the facts for a report.

    Raises click.UsageError for options that a batch does not support, and the errors of ``Scheduler`` and ``served``,
    before anything is computed.
    """
    _check(checkpoint, backend, decoding)
    scheme, sampling = decoding.kv_scheme(), decoding.sampling()
    sizes = {name: getattr(decoding, name) for name in ("max_sequences", "chunk", "radix_cache")}
    if backend == "xla":
        sizes["radix_cache"] = False
    serving = Serving(scheme=scheme, **{name: size for name, size in sizes.items() if size is not None})
    started, counters = time.perf_counter(), None
    if decoding.defect:
        outcomes = _wrongly(checkpoint, prompts, max_tokens, decoding, serving)
    else:
        outcomes, counters = _scheduled(checkpoint, prompts, max_tokens, backend, decoding, serving)
    texts = [
        {
            "prompt_ids": prompt,
            "ids": outcome.tokens,
            "text": None if tokenizer is None else tokenizer.decode(outcome.tokens),
            "reason": outcome.reason,
            "reused": outcome.reused,
            "error": None if outcome.error is None else str(outcome.error),
        }
        for prompt, outcome in zip(prompts, outcomes, strict=True)
    ]
    return {
        "backend": backend,
        "decode": "ar",
        "sampling": asdict(sampling) if sampling != GREEDY else None,
        "kv_cache": of_scheme(scheme, checkpoint.config),
        "defects": sorted(set(decoding.defect)),
        "serving": {name: getattr(serving, name) for name in sizes},
        "counters": None if counters is None else asdict(counters),
        "seconds": round(time.perf_counter() - started, 3),
        "texts": texts,
    }


def _check(checkpoint: Checkpoint, backend: str, decoding: Decoding) -> None:
    """Raises click.UsageError for options that a batch does not have."""
    decoding.diffusion(checkpoint.config)  # with ar, only to refuse the options of blocks
    if (way := decoding.way(checkpoint.config)) != "ar":
        raise click.UsageError(f"several prompts, and options of a batch server, need --decode ar; here it is {way}")
    backends.refuse(backend, way, decoding)
    if decoding.sparsity:
        raise click.UsageError("--sparsity works with a single prompt, and without the options of a batch server")
    if not decoding.defect:
        return
    if decoding.kv_cache or decoding.temperature or decoding.repetition_penalty != 1:
        raise click.UsageError("--defect of a server needs the exact KV cache (f32) and --temperature 0")
    if decoding.max_sequences:
        raise click.UsageError(
            "--max-sequences has no effect with --defect of a server, which reads prompts one after the other"
        )
    needs = [name for name in decoding.defect if name in ("repeated-token", "missing-key")]
    if needs and decoding.radix_cache is False:
        raise click.UsageError(
            f"--defect {', '.join(needs)} needs the radix cache, which --no-radix-cache switches off"
        )


def _scheduled(
    checkpoint: Checkpoint,
    prompts: list[list[int]],
    max_tokens: int,
    backend: str,
    decoding: Decoding,
    serving: Serving,
) -> tuple[list[Outcome], Counters]:
    """The texts of the golden scheduler, or of the JAX engine's."""
    config, sampling = checkpoint.config, decoding.sampling()
    scheduler: Scheduler | XlaScheduler
    if backend == "xla":
        limits = [check_limits(prompt, config, max_tokens, sampling=sampling) for prompt in prompts]
        room = max(limit.positions(len(prompt)) for prompt, limit in zip(prompts, limits, strict=True))
        engine = xla_engine(checkpoint, room, decoding, min(serving.max_sequences, len(prompts)))
        scheduler = XlaScheduler(engine, reuse=False)
    else:
        scheduler = Scheduler(checkpoint.weights, config, serving)
    numbers = [scheduler.submit(Request(prompt, max_tokens, sampling)) for prompt in prompts]
    while len(scheduler.outcomes) < len(numbers):
        scheduler.step()
    return [scheduler.outcomes[number] for number in numbers], scheduler.counters


def _wrongly(
    checkpoint: Checkpoint, prompts: list[list[int]], max_tokens: int, decoding: Decoding, serving: Serving
) -> list[Outcome]:
    """Prompts one after the other: each finds in the cache what it has in common with the start of earlier texts.

    Only the last token of an earlier text was never read: ``missing-key`` needs a prompt that begins with the whole
    text.
    """
    config = checkpoint.config
    for prompt in prompts:
        check_limits(prompt, config, max_tokens)  # before any of them is read
    outcomes: list[Outcome] = []
    earlier: list[list[int]] = []
    for prompt in prompts:
        cached = max((_alike(prompt, text) for text in earlier), default=0) if serving.radix_cache else 0
        defects = set(map(ServerDefect, decoding.defect))
        if prompt[:cached] not in earlier:
            defects.discard(ServerDefect.MISSING_KEY)
        tokens = served(prompt, checkpoint.weights, config, max_tokens, defects, serving.chunk, cached)
        outcomes.append(Outcome(tokens, "stop" if tokens[-1] in config.eos else "length", cached))
        earlier.append(prompt + tokens)
    return outcomes


def _alike(one: list[int], other: list[int]) -> int:
    """The number of equal tokens at the beginning of both."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
