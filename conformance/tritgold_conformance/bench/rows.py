"""The rows of a model, on an engine in this process: made ready once, then measured a round at a time.

An engine is whatever has ``reset`` and some of ``prefill``, ``read``, ``step``, ``greedy``; what it lacks is not
offered, and said so.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tritgold.errors import EngineError
from tritgold_conformance.golden.run import judging_tokens

Case = dict[str, Any]


class Rows:
    """The rows of one engine. capacity: positions that it was opened with. diffuse: its block diffusion, as
    ``engines.xla.diffuse``, or None.
    """

    def __init__(self, engine: Any, vocab: int, capacity: int, diffuse: Any = None) -> None:
        self._engine, self._vocab, self._capacity, self._diffuse = engine, vocab, capacity, diffuse
        self._batched: Any = None
        self._used = 0  # positions that the engine holds
        self._token = 0
        self._case: tuple[str, str] | None = None

    def measure(self, row: str, case: Case) -> dict[str, Any]:
        """One round: ``seconds`` of each unit; ``first``, seconds of the first call, in the round that made ready."""
        method = {"prefill": self._prefill, "first-token": self._first_token, "decode": self._decode}.get(row)
        method = {"greedy": self._greedy, "batch": self._batch, "block-diffusion": self._blocks}.get(row, method)
        if method is None:
            raise not_offered(row)
        named = (row, repr(sorted(case.items())))
        first = None
        if named != self._case:
            self._case = None
            first = self._ready(row, case, method)
            self._case = named
        return {"seconds": method(case), "first": first}

    def _ready(self, row: str, case: Case, method: Any) -> float:
        """Everything compiled and touched; seconds of the first unit."""
        if row in ("decode", "greedy"):
            self._fill(case["context"])
            return float(method({**case, "steps": 1})[0])
        if row == "batch":
            self._batched = None  # the cache before: its memory first
            self._batched = self._need("beside")(case["sequences"], capacity=case["context"] + case["steps"] + 1)
            self._fill_batch(case)
            return float(method({**case, "steps": 1})[0])
        return float(method(case)[0])

    def _has(self, method: str) -> bool:
        return callable(getattr(self._engine, method, None))

    def _need(self, method: str) -> Any:
        if not self._has(method):
            raise not_offered(method)
        return getattr(self._engine, method)

    def _read(self, tokens: list[int]) -> np.ndarray:
        """Logits of the last token. An engine without ``read`` computes those of every token."""
        if self._has("read"):
            return np.asarray(self._engine.read(tokens)).reshape(-1)
        return np.asarray(self._need("prefill")(tokens))[-1]

    def _prefill(self, case: Case) -> list[float]:
        tokens = judging_tokens(case["tokens"], self._vocab, seed=2)
        self._engine.reset()
        begin = time.perf_counter()
        self._read(tokens)
        return [time.perf_counter() - begin]

    def _first_token(self, case: Case) -> list[float]:
        tokens = judging_tokens(case["tokens"], self._vocab, seed=2)
        self._engine.reset()
        begin = time.perf_counter()
        int(np.argmax(self._read(tokens)))
        return [time.perf_counter() - begin]

    def _fill(self, context: int) -> None:
        self._engine.reset()
        tokens = judging_tokens(context, self._vocab, seed=2)
        self._token = int(np.argmax(self._read(tokens)))
        self._used = context

    def _decode(self, case: Case) -> list[float]:
        """Greedy, token by token, from the whole vector of logits."""
        step = self._need("step")

        def following(token: int) -> int:
            return int(np.argmax(step(token)))

        return self._steps(case, following)

    def _greedy(self, case: Case) -> list[float]:
        """The engine's own greedy decoding."""
        self._need("greedy")
        return self._steps(case, greedy_step(self._engine))

    def _steps(self, case: Case, following: Any) -> list[float]:
        if self._used + case["steps"] > self._capacity:
            self._fill(case["context"])
        seconds = []
        for _ in range(case["steps"]):
            begin = time.perf_counter()
            self._token = int(following(self._token))
            seconds.append(time.perf_counter() - begin)
        self._used += case["steps"]
        return seconds

    def _fill_batch(self, case: Case) -> None:
        self._batched.reset()
        tokens = judging_tokens(case["context"], self._vocab, seed=2)
        for sequence in range(case["sequences"]):
            self._batched.read(tokens, sequence=sequence)

    def _batch(self, case: Case) -> list[float]:
        """Steps of all sequences, each with a token of its own."""
        if self._batched.length + case["steps"] > self._batched.capacity:
            self._fill_batch(case)
        tokens = judging_tokens(case["sequences"], self._vocab, seed=3)
        seconds = []
        for _ in range(case["steps"]):
            begin = time.perf_counter()
            self._batched.step_all(tokens)
            seconds.append(time.perf_counter() - begin)
        return seconds

    def _blocks(self, case: Case) -> list[float]:
        """A whole text behind a prompt of half a block."""
        if self._diffuse is None:
            raise not_offered("block diffusion")
        prompt = judging_tokens(16, self._vocab - 1, seed=2)
        begin = time.perf_counter()
        self._diffuse(self._engine, prompt, case["tokens"], case)
        return [time.perf_counter() - begin]


def greedy_step(engine: Any) -> Callable[[int], int]:
    """One token -> the next, by the engine's ``greedy``, which takes a list of tokens."""
    return lambda token: int(engine.greedy([token]))


def not_offered(what: str) -> EngineError:
    """A row that is left out."""
    return EngineError("is not offered by this engine", kind="not-offered", thing=what)
