"""The work around a model: text to ids, logits to a token, requests to a batch."""

from dataclasses import replace
from typing import Any

import numpy as np

from tritgold.config import ModelConfig
from tritgold.decode.batched_forward import Part
from tritgold.decode.sampling import Sampling, candidates, choose
from tritgold.decode.scheduler import Scheduler
from tritgold.decode.serving_options import Request, Serving
from tritgold.errors import NonFiniteError
from tritgold.golden import embedded_model
from tritgold.tokenizer import TextStream, Tokenizer
from tritgold_conformance.bench.micro.way import Way, same
from tritgold_conformance.bench.shapes import SEED

PROMPT, WRITTEN = 16, 16
TEXT = "in the beginning God created the heaven and the earth and the earth was without form and void"
Case = dict[str, Any]


def sample(config: ModelConfig, case: Case, xla: Any) -> list[Way]:
    """One token from the logits of a whole vocabulary."""
    logits = np.random.default_rng(SEED).standard_normal(config.vocab).astype(np.float32) * np.float32(4)
    history = list(range(8))
    found = []
    for name, sampling in {
        "greedy": Sampling(),
        "temperature": Sampling(temperature=0.8),
        "top-k 40": Sampling(temperature=0.8, top_k=40),
        "top-p 0.9": Sampling(temperature=0.8, top_p=0.9),
        "penalty 1.2": Sampling(repetition_penalty=1.2),
        "all of them": Sampling(0.8, 40, 0.9, 1.2),
    }.items():
        tokens, _ = candidates(logits, sampling, history)
        allowed = set(tokens.tolist())

        def one(sampling: Sampling = sampling) -> int:
            return choose(logits, sampling, history)

        def wrong(token: int, allowed: set[int] = allowed) -> str:
            return "" if token in allowed else f"token {token} is not a candidate"

        found.append(Way(name, f"{len(allowed):,} candidates", one, wrong, by="reference"))
    best = int(np.argmax(logits))
    return [*found, Way("argmax", "NumPy's, nothing checked", lambda: int(np.argmax(logits)), same(best))]


def tokenise(config: ModelConfig, case: Case, xla: Any) -> list[Way]:
    """A text to ids and back, with the tokenizer of kjv-ar."""
    with embedded_model("kjv-ar") as path:
        tokenizer = Tokenizer(path / "tokenizer.json")
    words = TEXT.split()
    text = " ".join((words * (case["words"] // len(words) + 1))[: case["words"]])
    ids = tokenizer.encode(text)

    def streamed() -> str:
        stream = TextStream(tokenizer)
        pieces = [stream.push(token) for token in ids[: min(64, len(ids))]]
        return "".join(pieces)

    begins = lambda got: "" if got and text.startswith(got.strip()) else f"streams {got[:40]!r}"  # noqa: E731
    why = f"{len(text)} characters, {len(ids)} ids"
    return [
        Way("encode", why, lambda: tokenizer.encode(text), same(ids), by="reference"),
        Way("decode", why, lambda: tokenizer.decode(ids).strip(), same(text), by="reference"),
        Way("streamed", "a token at a time, whole characters only", streamed, begins, by="reference",
            units=min(64, len(ids))),
    ]  # fmt: skip


class _Idle(Scheduler):
    """A scheduler whose model computes nothing: tokens are stored in one small layer, logits are zeros."""

    def _read(self, parts: list[Part]) -> list[np.ndarray | NonFiniteError]:
        self.counters.forwards += 1
        for part in parts:
            rows = np.zeros((len(part.tokens), self._config.kv_heads, self._config.head_dim), np.float32)
            for layer in range(self._config.layers):
                part.cache.append(layer, rows, rows)
            part.cache.advance(len(part.tokens))
        return [np.zeros((1, self._config.vocab), np.float32) for _ in parts]


def schedule(config: ModelConfig, case: Case, xla: Any) -> list[Way]:
    """Steps of the batch scheduler without a model: admission, pages, prefix cache, choice of tokens."""
    count: int = case["sequences"]
    nothing: Any = None
    small = replace(config, layers=1, vocab=32, context=2 * (PROMPT + WRITTEN), bos=None, eos=(), mask=None, block=None)

    def served(reuse: bool) -> list[int]:
        scheduler = _Idle(nothing, small, Serving(max_sequences=count, radix_cache=reuse, pages=4 * count))
        for number in range(count):
            scheduler.submit(Request([1 + number % 30] * PROMPT, WRITTEN, stop=()))
        scheduler.run()
        return [len(outcome.tokens) for outcome in scheduler.outcomes.values()]

    right = same([WRITTEN] * count)
    return [
        Way("scheduler", f"a step of {count}", lambda: served(False), right, by="reference", units=WRITTEN),
        Way("with reuse", "the radix cache on", lambda: served(True), right, by="reference", units=WRITTEN),
    ]
