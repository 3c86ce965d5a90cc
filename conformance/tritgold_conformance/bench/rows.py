"""The rows of a model, on an engine in this process: prepared once, then measured a round at a time.

An engine is any object that has ``reset`` and some of ``prefill``, ``read``, ``step``, ``greedy``; a row that needs a
method that it does not have is reported as not offered.
"""

import gc
from collections.abc import Callable
from typing import Any

import numpy as np

from tritgold.errors import EngineError
from tritgold_conformance.bench.timing import timed
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
        self._methods: dict[str, Callable[[Case], list[float]]] = {
            "prefill": lambda case: self._prompt(case, self._read),
            "first-token": lambda case: self._prompt(case, self._chosen),
            "decode": self._decode,
            "greedy": self._greedy,
            "batch": self._batch,
            "gc": self._collected,
            "block-diffusion": self._blocks,
            "block-pass": self._passes,
        }

    def measure(self, row: str, case: Case) -> dict[str, Any]:
        """One round: ``seconds`` of each unit; ``first``, seconds of the first call of a case, None in later rounds."""
        if row not in self._methods:
            raise not_offered(row)
        named, first = (row, repr(sorted(case.items()))), None
        if named != self._case:
            self._case = None
            first = self._ready(row, case)
            self._case = named
        return {"seconds": self._methods[row](case), "first": first}

    def _ready(self, row: str, case: Case) -> float:
        """Compile and run everything once; seconds of the first unit."""
        if row in ("decode", "greedy", "gc"):
            self._fill(case["context"])
        if row == "batch":
            self._batched = None  # free the memory of the previous cache first
            self._batched = self._need("fork")(case["sequences"], capacity=case["context"] + case["steps"] + 1)
            self._fill_batch(case)
        return self._methods[row]({**case, "steps": 1} if "steps" in case else case)[0]

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

    def _chosen(self, tokens: list[int]) -> int:
        return int(np.argmax(self._read(tokens)))

    def _prompt(self, case: Case, read: Callable[[list[int]], object]) -> list[float]:
        tokens = judging_tokens(case["tokens"], self._vocab, seed=2)
        self._engine.reset()
        return timed(lambda: read(tokens))

    def _fill(self, context: int) -> None:
        self._engine.reset()
        self._token = self._chosen(judging_tokens(context, self._vocab, seed=2))
        self._used = context

    def _decode(self, case: Case) -> list[float]:
        """Greedy, token by token, from the whole vector of logits."""
        step = self._need("step")
        return self._steps(case, lambda token: int(np.argmax(step(token))))

    def _collected(self, case: Case) -> list[float]:
        """``decode`` with Python's garbage collector as it is, off, or run after each token."""
        step, each = self._need("step"), case["gc"] == "each token"

        def following(token: int) -> int:
            found = int(np.argmax(step(token)))
            if each:
                gc.collect()
            return found

        gc.collect()
        if case["gc"] == "off":
            gc.disable()
        try:
            return self._steps(case, following)
        finally:
            gc.enable()

    def _greedy(self, case: Case) -> list[float]:
        """The engine's own greedy decoding."""
        self._need("greedy")
        return self._steps(case, greedy_step(self._engine))

    def _steps(self, case: Case, following: Callable[[int], int]) -> list[float]:
        if self._used + case["steps"] > self._capacity:
            self._fill(case["context"])

        def step() -> None:
            self._token = following(self._token)

        seconds = timed(step, case["steps"])
        self._used += case["steps"]
        return seconds

    def _fill_batch(self, case: Case) -> None:
        self._batched.reset()
        tokens = judging_tokens(case["context"], self._vocab, seed=2)
        for sequence in range(case["sequences"]):
            self._batched.read(tokens, sequence=sequence)

    def _batch(self, case: Case) -> list[float]:
        """Steps of all sequences, each with its own token."""
        if self._batched.length + case["steps"] > self._batched.capacity:
            self._fill_batch(case)
        tokens = judging_tokens(case["sequences"], self._vocab, seed=3)
        return timed(lambda: self._batched.step_all(tokens), case["steps"])

    def _blocks(self, case: Case) -> list[float]:
        """A whole text after a prompt of half a block."""
        return timed(lambda: self._diffused(16, case["tokens"], case))

    def _passes(self, case: Case) -> list[float]:
        """A pass, the mean of those that decide the rest of a sub-block of 8 of which the first token is known.

        One token each, in the middle of a block of 32. The first pass reads the block; so do the others without the
        sub-block cache, and with it they read the sub-block.
        """
        passes = list[int]()
        (seconds,) = timed(lambda: passes.append(self._diffused(17, 7, case)))
        return [seconds / passes[0]]

    def _diffused(self, known: int, tokens: int, case: Case) -> int:
        """Number of passes for so many tokens after a prompt of ``known`` tokens."""
        if self._diffuse is None:
            raise not_offered("block diffusion")
        prompt = judging_tokens(known, self._vocab - 1, seed=2)
        return int(self._diffuse(self._engine, prompt, tokens, case)[1])


def greedy_step(engine: Any) -> Callable[[int], int]:
    """One token -> the next, by the engine's ``greedy``, which takes a list of tokens."""
    return lambda token: int(engine.greedy([token]))


def not_offered(what: str) -> EngineError:
    """The error of a row that the engine cannot run; its kind makes it a row of the report, not a failure."""
    return EngineError("is not offered by this engine", kind="not-offered", thing=what)
